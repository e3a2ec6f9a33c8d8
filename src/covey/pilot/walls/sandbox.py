"""Sandboxes keep tasks of different owners apart: each task has its own view of the host.

The rule: a task sees a read-only system, its own directory, what its bag's setup made (read-only),
an empty /tmp and its own processes. It sees nothing of the pilot, other tasks and other people's
homes, and can signal none of their processes. The network is the host's. Whether this host supports
that is found out by trying it; if not, the pilot does not serve several owners.

Besides its own directory, a task may write only to directories in memory (/tmp, /var/tmp and
/dev/shm), which end with the task and have a size: each as much as the task's memory limit. A
control group counts them for the task; otherwise ``resource_limits`` measures them.

Bubblewrap makes the sandbox if it is installed and works; else we do it ourselves (``namespaces``).
Either is started with an empty environment and gets everything through a file: what a task's owner
chose (LD_PRELOAD, for example) must not affect the process that makes the sandbox.

A task inside is still the pilot's user. So root is refused: it could read everything in /etc.
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
MORE = ("/sys", "/run/systemd/resolve")  # has information about processors; resolves names
DEVICES = ("/dev/nvidia*", "/dev/kfd", "/dev/dri")
IN_MEMORY = ("/tmp", "/var/tmp", "/dev/shm")  # a task's own, and empty
PROBE_SECONDS = 20.0
PROBE_BYTES = 1 << 20
_PROBE = (
    'test ! -e "$1" || exit 3; readlink /proc/self/ns/pid > "$2" && true > "$3" && '
    "! true 2> /dev/null > /usr/.x"
)


class NoWalls(Exception):
    """Tasks cannot be kept apart here; the message says why."""


class TaskView(NamedTuple):
    """What one task sees besides the system: directories that it may write to, others that it may
    only read, and where it starts. ``memory_bytes``: the size of each directory in memory."""

    writes: Tuple[str, ...]
    reads: Tuple[str, ...]
    chdir: str
    memory_bytes: int


class CommonView(NamedTuple):
    """What all tasks of this pilot see. The ``hidden`` paths are below ``shown`` ones."""

    shown: Tuple[str, ...]
    links: Tuple[Tuple[str, str], ...]  # (target, path)
    devices: Tuple[str, ...]
    hidden: Tuple[str, ...]


def survey(shown: Sequence[str], hidden: Sequence[str]) -> CommonView:
    """The view of this host; ``shown`` are more directories that all may read."""
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
    """``sized``: versions before 0.7 cannot limit the size of directories in memory."""

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
        """The command to start, and the descriptor that it must inherit. Raises InputRefused,
        OSError, ValueError."""
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
        """The process id of the sandbox with the task in it. Raises InputRefused, OSError,
        ValueError."""
        command, fd = self.command(view, file, argv, env)
        try:
            os.set_inheritable(fd, True)
            return spawn.start(self._program, command, [])
        finally:
            os.close(fd)


class OwnNamespaces:
    """A sandbox without any other program."""

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
    """Raises InputRefused for a program that the task would not see."""
    if file.startswith("/") and not _is_below(file, tuple(roots) + view.writes + view.reads):
        words = "{}: tasks of a pilot that several owners share cannot see this program"
        raise InputRefused(words.format(file))


def find(directory: str, shown: Sequence[str], hidden: Sequence[str]) -> Sandbox:
    """A sandbox that works on this host, tried in the directory. Raises NoWalls."""
    if os.getuid() == 0:
        raise NoWalls(
            "the pilot runs as root, so nothing is hidden from tasks: start it as an ordinary user"
        )
    fixed = survey(shown, [directory] + list(hidden))
    for path in fixed.hidden:
        os.makedirs(path, 0o700, exist_ok=True)  # it must exist to be hidden
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
    """Try the sandbox. Raises NoWalls and others."""
    os.makedirs(directory, 0o700, exist_ok=True)
    place = os.path.realpath(tempfile.mkdtemp(dir=directory, prefix="probe-"))
    try:
        home, other, printed = (os.path.join(place, name) for name in ("home", "other", "printed"))
        os.mkdir(home)
        os.mkdir(other)
        inside = os.path.join(home, "inside")
        argv = ["/bin/sh", "-c", _PROBE, "sh", other, inside, os.path.join(home, "written")]
        status = _run(way, TaskView((home,), (), home, PROBE_BYTES), argv, printed)
        with open(printed, errors="replace") as file:
            words = file.read().strip().splitlines()
        if not os.path.exists(inside):
            problem = words[-1] if words else "status %d" % status
            raise NoWalls(problem if status >> 8 != 3 else "tasks would see each other's files")
        with open(inside) as file:
            if file.read().strip() == os.readlink("/proc/self/ns/pid"):
                raise NoWalls("tasks would see the host's processes")
        if status or not os.path.exists(os.path.join(home, "written")):
            raise NoWalls("tasks could write to the system, or not to their own directory")
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _run(way: Sandbox, view: TaskView, argv: List[str], printed: str) -> int:
    """Start the command with its output in that file, and wait for its end; returns its status."""
    kept = [(fd, os.dup(fd)) for fd in (1, 2)]
    output = os.open(printed, os.O_WRONLY | os.O_CREAT, 0o600)
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
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return status
        time.sleep(0.005)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    raise NoWalls("a test process did not end in time")


def _is_below(path: str, roots: Sequence[str]) -> bool:
    return any(path == root or path.startswith(root.rstrip("/") + "/") for root in roots)


def _file_of(data: bytes) -> int:
    """A descriptor from which the data can be read; nobody else can find it."""
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
