"""Keeping tasks of different owners apart: each in a view of the host of its own.

The rule: a task sees a read-only system, its own directory, what its bag's setup made (read-only),
an empty /tmp and its own processes; of the pilot, other tasks and other people's homes it sees
nothing, and there is nothing that it could signal. The network is the host's. Whether this host
can do that is found out by doing it; a pilot that cannot does not serve several owners.

What a task may write to, besides its own directory, is in memory (/tmp, /var/tmp and /dev/shm),
ends with the task and has a size: each of them as much as the task may have of memory. A control
group counts it as the task's; elsewhere ``resource_limits`` looks how full they are.

Bubblewrap does it, where it is installed and may; else we do it ourselves (``namespaces``). Either
is started with an empty environment and is told everything through a file: what a task's owner
chose (LD_PRELOAD, say) must not touch the process that builds the walls.

A task inside is still the pilot's user. So root is refused: nothing in /etc would be kept from it.
"""

import glob
import os
import shutil
import tempfile
import time
from typing import Any, Dict, List, NamedTuple, Sequence, Tuple, Union

from covey.pilot.files.inputs import InputRefused
from covey.pilot.slots import spawn
from covey.pilot.walls import namespaces

ROOTS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt")
MORE = ("/sys", "/run/systemd/resolve")  # what tells of processors, and where names are resolved
DEVICES = ("/dev/nvidia*", "/dev/kfd", "/dev/dri")
IN_MEMORY = ("/tmp", "/var/tmp", "/dev/shm")  # a task's own, and empty
PROBE_SECONDS = 20.0
PROBE_BYTES = 1 << 20
_PROBE = (
    'test ! -e "$1" || exit 3; readlink /proc/self/ns/pid > "$2" && true > "$3" && '
    "! true 2> /dev/null > /usr/.x"
)


class NoWalls(Exception):
    """Tasks cannot be kept apart here; says why."""


class TaskView(NamedTuple):
    """What one task sees besides the system: directories that it may write to, others that it
    may only read, and where it starts. ``memory_bytes``: the size of each directory that is in
    memory."""

    writes: Tuple[str, ...]
    reads: Tuple[str, ...]
    chdir: str
    memory_bytes: int


class CommonView(NamedTuple):
    """What all tasks of this pilot see alike. ``hidden`` lies somewhere in what is ``shown``."""

    shown: Tuple[str, ...]
    links: Tuple[Tuple[str, str], ...]  # (target, path)
    devices: Tuple[str, ...]
    hidden: Tuple[str, ...]


def survey(shown: Sequence[str], hidden: Sequence[str]) -> CommonView:
    """Of this host; ``shown`` are more directories for all to read."""
    links = [(os.readlink(path), path) for path in ROOTS if os.path.islink(path)]
    plain = [path for path in ROOTS + MORE if os.path.isdir(path) and not os.path.islink(path)]
    seen = plain + [os.path.realpath(path) for path in shown if os.path.isdir(path)]
    secret = [os.path.realpath(path) for path in hidden]
    return CommonView(
        tuple(seen),
        tuple(links),
        tuple(path for pattern in DEVICES for path in sorted(glob.glob(pattern))),
        tuple(
            path
            for path in secret
            if _is_below(path, seen)
            and not _is_below(path, [other for other in secret if other != path])
        ),
    )


class Bubblewrap:
    """``sized``: older ones (before 0.7) cannot limit what is in memory."""

    name = "bubblewrap"
    in_memory = IN_MEMORY

    def __init__(self, program: str, fixed: CommonView, sized: bool = True) -> None:
        self._program = program
        self._sized = sized
        self._roots = fixed.shown + tuple(path for _, path in fixed.links)
        words = [
            "--unshare-user", "--unshare-pid", "--unshare-ipc", "--die-with-parent",
            "--cap-drop", "ALL",
        ]  # fmt: skip
        for path in fixed.shown:
            words += ["--ro-bind", path, path]
        for target, path in fixed.links:
            words += ["--symlink", target, path]
        words += ["--proc", "/proc", "--dev", "/dev"]
        for path in fixed.devices:
            words += ["--dev-bind", path, path]
        self._words = [spawn.encoded(word) for word in words]
        self._hidden = [spawn.encoded(path) for path in fixed.hidden]

    def command(
        self, view: TaskView, file: str, argv: Sequence[str], env: Dict[bytes, bytes]
    ) -> Tuple[List[Any], int]:
        """What to start, and the descriptor that it must inherit. Raises Refused, OSError,
        ValueError."""
        check_visible(file, self._roots, view)
        words = list(self._words)
        for path in IN_MEMORY:
            if self._sized:
                words += [b"--size", b"%d" % view.memory_bytes]
            words += [b"--tmpfs", spawn.encoded(path)]
        for hidden in self._hidden:
            words += [b"--tmpfs", hidden]
        for option, paths in ((b"--bind", view.writes), (b"--ro-bind", view.reads)):
            for path in paths:
                words += [option, spawn.encoded(path), spawn.encoded(path)]
        for closed in [b"/", b"/dev"] + self._hidden:
            words += [b"--remount-ro", closed]  # nobody needs to write between the mounts
        words += [b"--chdir", spawn.encoded(view.chdir)]
        for name, value in env.items():
            words += [b"--setenv", name, value]
        if any(b"\0" in word for word in words) or any(b"=" in name for name in env):
            raise ValueError("a NUL character or '=' where none is allowed")
        fd = _file_of(b"".join(word + b"\0" for word in words))
        return [self._program, "--args", str(fd), "--", file] + list(argv[1:]), fd

    def start(self, view: TaskView, file: str, argv: List[str], env: Dict[bytes, bytes]) -> int:
        """The process id of the walls; the task is inside. Raises Refused, OSError, ValueError."""
        command, fd = self.command(view, file, argv, env)
        try:
            os.set_inheritable(fd, True)
            return spawn.start(self._program, command, [])
        finally:
            os.close(fd)


class OwnNamespaces:
    """The same, without any program."""

    name = "user namespaces"
    in_memory = IN_MEMORY

    def __init__(self, fixed: CommonView) -> None:
        self._fixed = fixed
        self._roots = fixed.shown + tuple(path for _, path in fixed.links)

    def start(self, view: TaskView, file: str, argv: List[str], env: Dict[bytes, bytes]) -> int:
        check_visible(file, self._roots, view)
        walls = namespaces.Walls(self._fixed, IN_MEMORY, view)
        words = [spawn.encoded(word) for word in [file] + list(argv[1:])]
        return namespaces.start(walls, words, env)


Sandbox = Union[Bubblewrap, OwnNamespaces]


def check_visible(file: str, roots: Sequence[str], view: TaskView) -> None:
    """Raises Refused for a program that the task would not see."""
    if file.startswith("/") and not _is_below(file, tuple(roots) + view.writes + view.reads):
        words = "{}: tasks of a pilot that several owners share cannot see this program"
        raise InputRefused(words.format(file))


def find(directory: str, shown: Sequence[str], hidden: Sequence[str]) -> Sandbox:
    """A way that works on this host, tried in the directory. Raises Unavailable."""
    if os.getuid() == 0:
        raise NoWalls(
            "the pilot runs as root, so nothing is hidden from tasks: start it as an ordinary user"
        )
    fixed = survey(shown, [directory] + list(hidden))
    for path in fixed.hidden:
        os.makedirs(path, 0o700, exist_ok=True)  # what is not there cannot be hidden, but comes
    program = shutil.which("bwrap")
    reasons = []
    ways: List[Sandbox] = [Bubblewrap(program, fixed)] if program else []
    if not program:
        reasons.append("bubblewrap (bwrap) is not installed")
    ways.append(OwnNamespaces(fixed))
    if program:
        ways.append(Bubblewrap(program, fixed, sized=False))
    for way in ways:
        try:
            _probe(way, directory)
            return way
        except (NoWalls, OSError, ValueError) as error:
            reason = "%s: %s" % (way.name, error)
            if reason not in reasons:
                reasons.append(reason)
    raise NoWalls("; ".join(reasons))


def _probe(way: Sandbox, directory: str) -> None:
    """Really do it. Raises Unavailable and others."""
    os.makedirs(directory, 0o700, exist_ok=True)
    place = os.path.realpath(tempfile.mkdtemp(dir=directory, prefix="probe-"))
    try:
        home, other, said = (os.path.join(place, name) for name in ("home", "other", "said"))
        os.mkdir(home)
        os.mkdir(other)
        inside = os.path.join(home, "inside")
        argv = ["/bin/sh", "-c", _PROBE, "sh", other, inside, os.path.join(home, "written")]
        status = _run(way, TaskView((home,), (), home, PROBE_BYTES), argv, said)
        with open(said, errors="replace") as file:
            words = file.read().strip().splitlines()
        if not os.path.exists(inside):
            problem = words[-1] if words else "status %d" % status
            raise NoWalls(problem if status >> 8 != 3 else "tasks would see each other's files")
        with open(inside) as file:
            if file.read().strip() == os.readlink("/proc/self/ns/pid"):
                raise NoWalls("tasks would see the host's processes")
        if status or not os.path.exists(os.path.join(home, "written")):
            raise NoWalls("tasks could write to the system, or not to their directory")
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _run(way: Sandbox, view: TaskView, argv: List[str], said: str) -> int:
    """Start it with its output in that file, and wait for its end: the status."""
    kept = [(fd, os.dup(fd)) for fd in (1, 2)]
    output = os.open(said, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        for fd, _ in kept:
            os.dup2(output, fd)
        pid = way.start(view, argv[0], argv, {b"PATH": b"/usr/bin:/bin"})
    finally:
        for fd, copy in kept:
            os.dup2(copy, fd)
            os.close(copy)
        os.close(output)
    until = time.monotonic() + PROBE_SECONDS
    while time.monotonic() < until:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return status
        time.sleep(0.005)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    raise NoWalls("it did not end in time")


def _is_below(path: str, roots: Sequence[str]) -> bool:
    return any(path == root or path.startswith(root.rstrip("/") + "/") for root in roots)


def _file_of(data: bytes) -> int:
    """A descriptor from which that can be read; nobody else can find it."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("walls")  # novm
    else:
        fd, name = tempfile.mkstemp(prefix="covey-")
        os.unlink(name)
    try:
        while data:
            data = data[os.write(fd, data) :]
        os.lseek(fd, 0, os.SEEK_SET)
        return fd
    except BaseException:
        os.close(fd)
        raise
