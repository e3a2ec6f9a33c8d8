"""This machine as a site: a site job is a pilot process, in a session of its own.

A pilot outlives the server that started it. The next server finds it by its command line, which
names the start file in the job's folder. The command line is right from the first moment; a file
with the process id would be missing if the server was killed before it wrote the file.

A pidfd reports the end of a process at once, even of one that is not a child. A killed pilot has
ended when the processes that it forked have ended, too. These end its tasks, and only then may the
tasks run elsewhere.
"""

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

from msgspec import Meta, Struct

from covey.core.protocol.tokens import job_secret
from covey.core.record.actions import Note
from covey.core.record.events import JobEnded, JobRefused, JobStarted, JobSubmitted
from covey.core.record.model import JobId, JobRecord, SiteFacts, SiteSpec
from covey.sites.driver import OpenSite, SiteContext
from covey.sites.options import options_of

POLL_MS = 500  # if the kernel has no pidfd
START_FILE = "start.json"
# A pilot gets all slots: another one here would share the same cores.
FACTS = SiteFacts(here=True, whole_nodes=True, accounts=())


class Watched(NamedTuple):
    """A process of a job. `reason`: why the job's process before it ended, if there was another.

    `child` must be kept until the process has ended: when a Popen object is deleted, Python takes
    the exit status of the child, and then it cannot be read again."""

    job: JobId
    fd: int
    reason: str
    child: "subprocess.Popen[bytes] | None" = None


class LocalOptions(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Further options of the pilot; in covey.toml they are in `[local]`."""

    memory_mb: Annotated[int, Meta(ge=0, description="Memory of a pilot.")] = 0
    gpus: Annotated[str, Meta(description="GPUs of a pilot, such as 0,1; empty: all.")] = ""
    cache: Annotated[str, Meta(description="Directory for input files.")] = ""
    cache_mb: Annotated[int, Meta(description="Size of that directory, at most.")] = 0


class Local:
    """`folder` has a folder for each job. `command` starts the pilot file; the path of a start file
    is appended. `address_file` tells pilots where the server is."""

    name = "local"
    options: type[Struct] = LocalOptions

    def __init__(self, folder: Path, address_file: Path, command: Sequence[str]) -> None:
        self._folder = folder
        self._address_file = address_file
        self._command = command

    def facts(self, spec: SiteSpec) -> SiteFacts:
        options_of(spec, LocalOptions)
        return FACTS

    def open(self, spec: SiteSpec, context: SiteContext) -> OpenSite:
        return LocalSite(spec, context, self._folder, self._address_file, self._command)


class LocalSite(OpenSite):
    """A pilot gets its job's secret, made from the server's master secret, in its start file:
    everybody can read arguments and environments."""

    def __init__(
        self,
        spec: SiteSpec,
        context: SiteContext,
        folder: Path,
        address_file: Path,
        command: Sequence[str],
    ) -> None:
        self.spec = spec
        self._folder = folder
        self._address_file = address_file
        self._master = context.master
        self._command = command
        self._post = context.post
        self._note = context.note
        self._closed = False
        self._lock = threading.Lock()
        self._watched: dict[int, Watched] = {}  # by process id
        self._wake_read, self._wake_write = os.pipe()
        self._thread: threading.Thread | None = None

    # -- orders ----------------------------------------------------------------------------

    def submit(self, jobs: Sequence[JobRecord]) -> None:
        for job in jobs:
            folder = self._folder / job.id
            try:
                process = self._launch(job, folder)
            except OSError as error:
                shutil.rmtree(folder, ignore_errors=True)
                self._post(JobRefused(job.id, str(error)))
                continue
            self._post(JobSubmitted(job.id))
            self._post(JobStarted(job.id))
            self._watch(process.pid, job.id, child=process)

    def watch(self, jobs: Sequence[JobRecord]) -> None:
        for job in jobs:
            with self._lock:
                known = any(job.id == watched.job for watched in self._watched.values())
            if known or (self._folder / job.id).is_dir():
                self._post(JobSubmitted(job.id))
                self._post(JobStarted(job.id))
            if not known:
                left = _processes_of(self._folder / job.id / START_FILE)
                self._watch_rest(job.id, "its process is gone", left, first=True)
        self._clear({job.id for job in jobs})

    def cancel(self, jobs: Sequence[JobRecord]) -> None:
        """A pilot that gets SIGTERM finishes its tasks; without tasks it ends at once."""
        ids = {job.id for job in jobs}
        with self._lock:
            pids = [pid for pid, watched in self._watched.items() if watched.job in ids]
        for pid in pids:
            _signal(pid, signal.SIGTERM)

    def change(self, spec: SiteSpec) -> bool:
        self.spec = spec
        return True

    def jobs(self) -> tuple[JobRecord, ...]:
        return ()  # its successor finds them in the folder

    def terminate(self) -> int:
        """A second signal ends a pilot at once. It is another signal than the first: two equal ones
        might arrive as one."""
        with self._lock:
            pids = list(self._watched)
        for number in (signal.SIGTERM, signal.SIGINT):
            for pid in pids:
                _signal(pid, number)
        return len(pids)

    def alive(self) -> int:
        with self._lock:
            return len(self._watched)

    def close(self, seconds: float = 0.0) -> None:
        """Watch no longer. Pilots go on."""
        self._closed = True
        os.write(self._wake_write, b"\0")
        if self._thread is not None:
            self._thread.join(seconds)

    # -- inside ----------------------------------------------------------------------------

    def _launch(self, job: JobRecord, folder: Path) -> "subprocess.Popen[bytes]":
        folder.mkdir(parents=True, mode=0o700, exist_ok=True)
        start = {
            "address_file": str(self._address_file),
            "secret": job_secret(self._master, job.id),
            "directory": str(folder / "work"),
            "slots": job.slots,
            "site": job.site,
            "job": job.id,
            "cache": str(self._folder.parent / "cache"),
            **self._more(job),
        }
        start_file = folder / START_FILE
        with open(os.open(start_file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            json.dump(start, file)
        with open(folder / "log", "ab") as log:
            return subprocess.Popen(
                [*self._command, str(start_file)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=folder,
                start_new_session=True,
            )

    def _more(self, job: JobRecord) -> dict[str, object]:
        """Settings of the site and of this job, without empty ones."""
        spec = self.spec
        more: dict[str, object] = {
            name: value for name, value in spec.options.items() if value != ""
        }
        settings: dict[str, object] = {
            "setup": spec.setup,
            "check": spec.check,
            "shared": spec.shared,
            "memory_mb": job.memory_mb,
            "disk_mb": job.disk_mb,
            "until": time.time() + job.wall_seconds if job.wall_seconds else 0,
        }
        more.update((name, value) for name, value in settings.items() if value)
        return more

    def _clear(self, known: set[JobId]) -> None:
        """End pilots in the folder that are not on record, and remove what ended pilots left."""
        with self._lock:
            known |= {watched.job for watched in self._watched.values()}
        for folder in self._folder.iterdir() if self._folder.is_dir() else ():
            if folder.name in known:
                continue
            left = _processes_of(folder / START_FILE)
            if left:
                self._note(Note("site jobs that are not on record", detail=f"here: {folder.name}"))
                _signal(left[0], signal.SIGTERM)
                self._watch(left[0], JobId(folder.name))
            else:
                shutil.rmtree(folder, ignore_errors=True)

    def _watch(
        self,
        pid: int,
        job: JobId,
        reason: str = "",
        child: "subprocess.Popen[bytes] | None" = None,
    ) -> None:
        try:
            fd = os.pidfd_open(pid)
        except OSError:
            fd = -1
        with self._lock:
            self._watched[pid] = Watched(job, fd, reason, child)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, daemon=True, name="local-site")
                self._thread.start()
        os.write(self._wake_write, b"\0")

    def _run(self) -> None:
        while not self._closed:
            poll = select.poll()
            poll.register(self._wake_read, select.POLLIN)
            with self._lock:
                watched = dict(self._watched)
            for process in watched.values():
                if process.fd >= 0:
                    poll.register(process.fd, select.POLLIN)
            blind = any(process.fd < 0 for process in watched.values())
            for fd, _ in poll.poll(POLL_MS if blind else None):
                if fd == self._wake_read:
                    os.read(self._wake_read, 4096)
            for pid, process in watched.items():
                if _over(pid, process.fd):
                    self._try_reaping(pid, process)

    def _try_reaping(self, pid: int, watched: Watched) -> None:
        """If this fails, it is tried again: the thread must go on for the other pilots."""
        try:
            self._reap(pid, watched)
        except Exception as error:
            words = f"{watched.job}: {type(error).__name__}: {error}"
            self._note(Note("the end of a pilot cannot be handled", detail=words))
            time.sleep(POLL_MS / 1000)

    def _reap(self, pid: int, watched: Watched) -> None:
        reason = watched.reason or "its process ended"
        code = _exit_code(pid, watched.child)
        if code is not None:
            reason = f"exit status {code}" if code >= 0 else _signal_name(-code)
            with self._lock:  # the exit status cannot be read twice
                self._watched[pid] = watched._replace(reason=reason)
        left = _processes_of(self._folder / watched.job / START_FILE)
        if watched.fd >= 0:
            os.close(watched.fd)
        with self._lock:
            del self._watched[pid]
        self._watch_rest(watched.job, reason, left)

    def _watch_rest(self, job: JobId, reason: str, left: list[int], first: bool = False) -> None:
        """Watch the job's remaining processes. Without any, the job has ended."""
        if left:
            self._watch(left[0], job, "" if first else reason)
        else:
            self._ended(job, reason)

    def _ended(self, job: JobId, reason: str) -> None:
        folder = self._folder / job
        if reason != "exit status 0":
            with contextlib.suppress(OSError):
                words = (folder / "log").read_text(errors="replace").strip().splitlines()
                reason += f" ({words[-1].lstrip(' -')[:200]})" if words else ""
        shutil.rmtree(folder, ignore_errors=True)
        self._post(JobEnded(job, reason))


def end_orphans(folder: Path, seconds: float) -> tuple[int, int]:
    """End the pilots that a server of this directory has started and left behind, and remove their
    folders. Returns how many there were, and how many still run. Call it while no server runs.

    First they get signals, as in `terminate`; after `seconds` they are killed, and their helper
    processes (guard, keeper) end the tasks."""
    jobs = sorted(folder.iterdir()) if folder.is_dir() else []
    processes = {job: _own_processes(job / START_FILE) for job in jobs}
    pilots = sum(1 for pids in processes.values() if pids)
    for number in (signal.SIGTERM, signal.SIGINT):
        for job, pids in processes.items():
            if pids:
                _signal_own(pids[0], number, job / START_FILE)
    _wait_gone(jobs, seconds)
    for job in jobs:
        for pid in _own_processes(job / START_FILE)[:1]:
            _signal_own(pid, signal.SIGKILL, job / START_FILE)
    _wait_gone(jobs, seconds)
    left = 0
    for job in jobs:
        if _own_processes(job / START_FILE):
            left += 1
        else:
            shutil.rmtree(job, ignore_errors=True)
    return pilots, left


def _wait_gone(jobs: list[Path], seconds: float) -> None:
    give_up = time.monotonic() + seconds
    while any(_own_processes(job / START_FILE) for job in jobs):
        if time.monotonic() > give_up:
            return
        time.sleep(0.05)


def _own_processes(start_file: Path) -> list[int]:
    """The processes of this user: those of other users may have any command line."""
    found = []
    for pid in _processes_of(start_file):
        with contextlib.suppress(OSError):
            if os.stat(f"/proc/{pid}").st_uid == os.getuid():
                found.append(pid)
    return found


def _signal_own(pid: int, number: int, start_file: Path) -> None:
    """Signal a pilot's process. Another process may have its id by now; so the process is checked
    again once a descriptor holds it."""
    try:
        fd = os.pidfd_open(pid)
    except OSError:
        return
    try:
        if pid in _own_processes(start_file):
            signal.pidfd_send_signal(fd, number)
    except OSError:
        pass  # it has just ended
    finally:
        os.close(fd)


def _exit_code(pid: int, child: "subprocess.Popen[bytes] | None") -> int | None:
    """Of an ended process (negative: a signal); None if the process was not a child of this one."""
    if child is not None:
        return child.wait()
    try:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    except ChildProcessError:
        return None


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal has no name
        return f"signal {number}"


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _over(pid: int, fd: int) -> bool:
    if fd < 0:
        return _started(pid) == ""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(0))


def _processes_of(start_file: Path) -> list[int]:
    """The living processes of the pilot with this start file, the oldest first: the pilot, and
    processes that it forked, which have its command line."""
    argument = b"\0" + os.fsencode(start_file) + b"\0"
    found = []
    for name in os.listdir("/proc"):
        with contextlib.suppress(OSError):
            if name.isdigit() and argument in Path(f"/proc/{name}/cmdline").read_bytes():
                started = _started(int(name))
                if started:
                    found.append((int(started), int(name)))
    return [pid for _, pid in sorted(found)]


def _started(pid: int) -> str:
    """The time when a living process began, in the kernel's ticks; empty if there is none."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]
