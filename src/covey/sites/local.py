"""This machine as a site: a site job is a pilot process, in a session of its own.

A pilot outlives the server that started it. What the next server needs to find it again lies in
the job's folder: its process id, with the time it was started (ids are reused, pairs are not).
The end of a process is noticed at once, through a pidfd, whoever its parent is.
"""

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import threading
from pathlib import Path

from covey.core.events import JobEnded, JobRefused, JobSubmitted
from covey.core.model import JobId, JobRecord
from covey.ports import Post

POLL_MS = 500  # where there is no pidfd


class LocalSite:
    """`command` starts the pilot file; the path of a start file is appended."""

    def __init__(
        self, folder: Path, address_file: Path, secret: str, command: list[str], post: Post
    ) -> None:
        self._folder = folder
        self._address_file = address_file
        self._secret = secret
        self._command = command
        self._post = post
        self._lock = threading.Lock()
        self._watched: dict[int, tuple[JobId, int]] = {}  # pid -> job, pidfd
        self._wake_read, self._wake_write = os.pipe()
        self._thread: threading.Thread | None = None

    # -- the Sites port --------------------------------------------------------------------

    def submit(self, job: JobRecord) -> None:
        folder = self._folder / job.id
        try:
            process = self._launch(job, folder)
        except OSError as error:
            self._post(JobRefused(job.id, str(error)))
            return
        self._watch(process.pid, job.id)
        self._post(JobSubmitted(job.id))

    def watch(self, jobs: tuple[JobRecord, ...]) -> None:
        for job in jobs:
            with self._lock:
                known = any(job.id == other for other, _ in self._watched.values())
            pid = None if known else _living(self._folder / job.id / "pid")
            if pid is not None:
                self._watch(pid, job.id)
            elif not known:
                self._ended(job.id, "its process is gone")

    def terminate(self) -> int:
        """Ask every pilot to end at once: a second signal is the impatient one, and two equal
        ones might arrive as one."""
        with self._lock:
            pids = list(self._watched)
        for number in (signal.SIGTERM, signal.SIGINT):
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
        return len(pids)

    def alive(self) -> int:
        with self._lock:
            return len(self._watched)

    # -- inside ----------------------------------------------------------------------------

    def _launch(self, job: JobRecord, folder: Path) -> "subprocess.Popen[bytes]":
        folder.mkdir(parents=True, mode=0o700, exist_ok=True)
        start = {
            "address_file": str(self._address_file),
            "secret": self._secret,
            "directory": str(folder / "work"),
            "slots": job.slots,
            "site": job.site,
            "job": job.id,
        }
        start_file = folder / "start.json"
        with open(os.open(start_file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            json.dump(start, file)
        with open(folder / "log", "ab") as log:
            process = subprocess.Popen(
                [*self._command, str(start_file)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=folder,
                start_new_session=True,
            )
        (folder / "pid").write_text(f"{process.pid} {_started(process.pid)}")
        return process

    def _watch(self, pid: int, job: JobId) -> None:
        try:
            fd = os.pidfd_open(pid)
        except OSError:
            fd = -1
        with self._lock:
            self._watched[pid] = (job, fd)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, daemon=True, name="local-site")
                self._thread.start()
        os.write(self._wake_write, b"\0")

    def _run(self) -> None:
        while True:
            poll = select.poll()
            poll.register(self._wake_read, select.POLLIN)
            with self._lock:
                watched = dict(self._watched)
            for _, fd in watched.values():
                if fd >= 0:
                    poll.register(fd, select.POLLIN)
            blind = any(fd < 0 for _, fd in watched.values())
            for fd, _ in poll.poll(POLL_MS if blind else None):
                if fd == self._wake_read:
                    os.read(self._wake_read, 4096)
            for pid, (job, fd) in watched.items():
                if _over(pid, fd):
                    self._reap(pid, job, fd)

    def _reap(self, pid: int, job: JobId, fd: int) -> None:
        reason = "its process ended"
        with contextlib.suppress(ChildProcessError):
            _, status = os.waitpid(pid, 0)
            code = os.waitstatus_to_exitcode(status)
            reason = f"exit status {code}" if code >= 0 else signal.Signals(-code).name
        if fd >= 0:
            os.close(fd)
        with self._lock:
            del self._watched[pid]
        self._ended(job, reason)

    def _ended(self, job: JobId, reason: str) -> None:
        folder = self._folder / job
        if reason != "exit status 0":
            with contextlib.suppress(OSError):
                words = (folder / "log").read_text(errors="replace").strip().splitlines()
                reason += f" ({words[-1][:200]})" if words else ""
        shutil.rmtree(folder, ignore_errors=True)
        self._post(JobEnded(job, reason))


def _over(pid: int, fd: int) -> bool:
    if fd < 0:
        return _started(pid) == ""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(0))


def _living(path: Path) -> int | None:
    """The process that this file names, if it is still that process."""
    try:
        pid, started = path.read_text().split()
    except (OSError, ValueError):
        return None
    return int(pid) if _started(int(pid)) == started else None


def _started(pid: int) -> str:
    """When a living process began, in the kernel's own ticks; nothing if there is none."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]
