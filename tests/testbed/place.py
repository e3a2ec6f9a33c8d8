"""Where a system of the testbed lives: a directory of its own, which says whose it is.

The rules: all that a system writes is below its directory; its processes carry the directory's name
in their environment or their command line; whatever else it makes (a namespace, rules of a
firewall) is noted before it is made, as the command that takes it away. So `close` finds all of it,
and so does the next run when this one was killed: whoever makes a place holds its lock as long as
he lives, and a place that nobody holds is swept away with all that runs in it.
"""

import fcntl
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

from tests.faults.world import command_line, environment, parent, send, tail, wait_until

PREFIX = "covey-testbed-"
MARK = "TESTBED_MARK"
PORTS = range(24000, 32000)  # below those that Linux gives to whoever calls out
LONGEST = 70  # characters of a place's name: names of sockets have no more than 107
JOBS = (b"SLURM_JOB_ID=", b"JOB_ID=")
# What whoever runs the tests may have set; and the mark of a world, which ends with a test.
NOT_OURS = ("COVEY_", "SLURM_", "SBATCH_", "SGE_", "FAULTS_MARK")
PATH = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"  # where daemons are


class Place:
    def __init__(self, kind: str) -> None:
        with alone():  # between making and locking, nobody sweeps
            self.root = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{kind}-"))
            self._lock = (self.root / "lock").open("w")
            fcntl.flock(self._lock, fcntl.LOCK_EX)
        assert len(str(self.root)) <= LONGEST, f"too long for a socket: {self.root} (TMPDIR)"
        self.root.chmod(0o755)  # jobs of other users come here too
        self.folder("log")
        self._daemons: list[subprocess.Popen[bytes]] = []

    def folder(self, name: str) -> Path:
        path = self.root / name
        path.mkdir(parents=True, exist_ok=True)
        return path

    def write(self, name: str, text: str, mode: int = 0o644) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode)
        path.write_text(text)
        return path

    def undo_later(self, *words: str) -> None:
        """Said before the deed, so that no death comes between them."""
        with (self.root / "undo").open("a") as notes:
            notes.write(json.dumps(words) + "\n")

    def start(
        self, name: str, words: Sequence[str], env: Mapping[str, str] | None = None
    ) -> "subprocess.Popen[bytes]":
        """A daemon that stays in the foreground; what it says goes to a log of that name."""
        with (self.root / "log" / f"{name}.out").open("ab") as log:
            process = subprocess.Popen(
                words,
                cwd=self.root,
                env={**clean_environment(), **(env or {}), MARK: str(self.root)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._daemons.append(process)
        return process

    def wait_listening(self, daemon: "subprocess.Popen[bytes]", port: int) -> None:
        def listens() -> bool:
            assert daemon.poll() is None, f"{daemon.args!r} has ended\n{self.logs()}"
            return port in listening(daemon.pid)

        wait_until(listens, 30, self.logs)

    def logs(self) -> str:
        files = [*self.root.glob("log/*"), *self.root.glob("spool/**/messages")]
        return "\n".join(f"{file}:\n{tail(file)}" for file in sorted(files))

    def close(self) -> None:
        _end(self.root, self._daemons)
        self._lock.close()


@contextmanager
def alone() -> Iterator[None]:
    """One of this user's systems starts at a time: a port that is free stays so until it is taken,
    and what has no owner yet is not taken for what has lost him."""
    path = Path(tempfile.gettempdir()) / f"{PREFIX}{os.getuid()}.lock"
    with path.open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def sweep() -> list[Path]:
    """Takes away what runs that were killed have left; says what that was."""
    found = []
    with alone():
        for root in Path(tempfile.gettempdir()).glob(f"{PREFIX}*/"):
            if root.stat().st_uid == os.getuid() and _is_left(root):
                _end(root, [])
                found.append(root)
    return found


def _is_left(root: Path) -> bool:
    try:
        with (root / "lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
    except BlockingIOError:
        return False


def _end(root: Path, daemons: Sequence["subprocess.Popen[bytes]"]) -> None:
    def ended() -> bool:
        left = processes(root)
        for pid in left:
            send(pid, signal.SIGKILL)
        for daemon in daemons:
            daemon.poll()
        return not left

    wait_until(ended, 30, lambda: f"these cannot be killed: {processes(root)}")
    notes = root / "undo"
    for line in reversed(notes.read_text().splitlines() if notes.exists() else []):
        subprocess.run(json.loads(line), capture_output=True, timeout=30, env={"PATH": PATH})
    shutil.rmtree(root)


def processes(root: Path) -> list[int]:
    """All that belong to this place, and all that came from them."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    found = {pid for pid in pids if pid != os.getpid() and _belongs(pid, root)}
    return sorted(found | descendants(found))


def descendants(ancestors: set[int]) -> set[int]:
    parents = {int(name): parent(int(name)) for name in os.listdir("/proc") if name.isdigit()}
    found: set[int] = set()
    young = ancestors
    while young := {pid for pid, of in parents.items() if of in young} - found:
        found |= young
    return found - ancestors


def _belongs(pid: int, root: Path) -> bool:
    """Daemons have the mark. Jobs have their submitter's environment, but know their cluster. Some
    write a title over their environment: it names their configuration, or they are at home here."""
    name = os.fsencode(root)
    if name in command_line(pid) or _stands_in(pid, root):
        return True
    words = environment(pid).split(b"\0")
    if os.fsencode(MARK) + b"=" + name in words:
        return True
    is_job = any(word.startswith(JOBS) for word in words)
    return is_job and any(
        word.startswith((b"SLURM_CONF=" + name, b"SGE_ROOT=" + name)) for word in words
    )


def _stands_in(pid: int, root: Path) -> bool:
    try:
        return Path(os.readlink(f"/proc/{pid}/cwd")).is_relative_to(root)
    except OSError:
        return False


def clean_environment() -> dict[str, str]:
    """As it is here, but for the settings of other systems, and with the paths of daemons."""
    own = {name: text for name, text in os.environ.items() if not name.startswith(NOT_OURS)}
    return {**own, "PATH": PATH, "LC_ALL": "C"}


def program(name: str) -> str:
    found = shutil.which(name, path=PATH)
    assert found, f"{name} is missing: tools/install-test-packages"
    return found


def free_ports(count: int) -> list[int]:
    """They stay free for whoever is `alone`."""
    ports = random.SystemRandom().sample(PORTS, len(PORTS))
    return list(islice(filter(_is_free, ports), count))


def listening(pid: int) -> set[int]:
    """The ports that somebody listens on where that process is, in its namespace."""
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            _, address, _, state, *_ = line.split()
            if state == "0A":
                found.add(int(address.rpartition(":")[2], 16))
    return found


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
        return True


class System(ABC):
    """What a place is for. `within` are words before every command: whence it runs."""

    kind = ""

    def __init__(self, within: Sequence[str] = ()) -> None:
        self.within = tuple(within)
        self.place = Place(self.kind)

    @abstractmethod
    def launch(self) -> None:
        """Chooses ports and starts daemons; returns when they have their ports."""

    @abstractmethod
    def is_ready(self) -> bool: ...

    def wait_ready(self, seconds: float = 60) -> None:
        wait_until(self.is_ready, seconds, self.place.logs)

    def wait(self, condition: Callable[[], object], seconds: float = 30) -> None:
        """That something comes true here; if it does not, the logs may say why."""
        wait_until(condition, seconds, self.place.logs)

    @abstractmethod
    def reset(self) -> None:
        """As new, for the next test."""

    def close(self) -> None:
        self.place.close()


@contextmanager
def running(*systems: System, ready: bool = True) -> Iterator[None]:
    """All of them, started together, gone afterwards; `wait_ready` is for whoever uses them if that
    is not waited for here."""
    try:
        for system in systems:
            with alone():
                system.launch()
        for system in systems if ready else ():
            system.wait_ready()
        yield
    finally:
        for system in reversed(systems):
            system.close()
