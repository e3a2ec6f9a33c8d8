"""A sandbox made by ourselves if there is no bubblewrap: user, mount, process and IPC namespaces.

    slot ── outer ── first process inside ── task

The rule: everything happens between fork and exec, in processes that never return. Any failure
reaches the slot as one errno, before the task began. The outer process ends exactly as the task
did, with its exit code or by its signal. The first process inside collects orphans, and its end
ends everything inside. When the task begins, all privileges are gone: its user is not root, and no
program that it executes can gain any.
"""

import errno
import os
import signal
import struct
from typing import Any, Dict, List, NamedTuple, Sequence, Tuple

_NEW_NS, _NEW_IPC, _NEW_USER, _NEW_PID = 0x20000, 0x8000000, 0x10000000, 0x20000000
_READ_ONLY, _NO_SUID, _NO_DEV, _NO_EXEC, _REMOUNT, _BIND, _REC, _PRIVATE = (
    1, 2, 4, 8, 32, 4096, 16384, 1 << 18,
)  # fmt: skip
_FLAGS = {"ro": 1, "nosuid": 2, "nodev": 4, "noexec": 8, "noatime": 1024, "nodiratime": 2048}
_RELATIME = 1 << 21
_DETACH = 2
_PDEATHSIG, _DUMPABLE, _NO_NEW_PRIVS = 1, 4, 38
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_STATUS = struct.Struct("=i")


class Walls(NamedTuple):
    """``fixed`` and ``view`` are as in ``sandbox``; ``in_memory`` are new, empty directories in
    memory with a limited size."""

    fixed: Any
    in_memory: Sequence[str]
    view: Any


class _System:
    """System calls that Python does not have."""

    def __init__(self) -> None:
        import ctypes

        self._errno = ctypes.get_errno
        self._ulong = ctypes.c_ulong
        self._libc = ctypes.CDLL(None, use_errno=True)

    def _do(self, name: str, *arguments: Any) -> None:
        if getattr(self._libc, name)(*arguments) != 0:
            number = self._errno()
            raise OSError(number, "%s: %s" % (name, os.strerror(number)))

    def unshare(self, flags: int) -> None:
        self._do("unshare", flags)

    def prctl(self, option: int, value: int) -> None:
        self._do("prctl", option, *[self._ulong(argument) for argument in (value, 0, 0, 0)])

    def mount(self, source: str, target: str, kind: str, flags: int, data: str = "") -> None:
        words = [os.fsencode(word) if word else None for word in (source, target, kind)]
        self._do("mount", *words, self._ulong(flags), os.fsencode(data) or None)

    def pivot(self, new: str, old: str) -> None:
        self._do("pivot_root", os.fsencode(new), os.fsencode(old))

    def detach(self, path: str) -> None:
        self._do("umount2", os.fsencode(path), _DETACH)


def start(walls: Walls, argv: List[bytes], env: Dict[bytes, bytes]) -> int:
    """Returns the outer process when the task has begun. Raises OSError and ValueError."""
    if any(b"\0" in word for word in argv + list(env) + list(env.values())):
        raise ValueError("a NUL character where none is allowed")
    system = _System()
    reader, writer = os.pipe()  # closed by the task's exec, or by the end of the failed process
    try:
        pid = os.fork()
        if pid == 0:
            _guarded(writer, _outer, system, walls, argv, env, reader, writer)
    except BaseException:
        os.close(reader)
        os.close(writer)
        raise
    os.close(writer)
    try:
        failure = os.read(reader, _STATUS.size)
    finally:
        os.close(reader)
    if failure:
        os.waitpid(pid, 0)
        number = _STATUS.unpack(failure)[0]
        raise OSError(number, "cannot start in a sandbox: %s" % os.strerror(number))
    return pid


def _guarded(writer: int, function: Any, *arguments: Any) -> None:
    """Runs in a child and never returns. An exception goes to the slot, as a number."""
    number = errno.EINVAL
    try:
        function(*arguments)
    except OSError as error:
        number = error.errno or errno.EINVAL
    except BaseException:
        pass
    try:
        os.write(writer, _STATUS.pack(number))
    finally:
        os._exit(127)


def _outer(
    system: _System,
    walls: Walls,
    argv: List[bytes],
    env: Dict[bytes, bytes],
    reader: int,
    writer: int,
) -> None:
    slot = os.getppid()
    os.setsid()
    os.close(reader)
    system.prctl(_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != slot:
        os._exit(1)
    system.prctl(_DUMPABLE, 1)  # else /proc/self belongs to root and is not writable
    user, group = os.getuid(), os.getgid()
    system.unshare(_NEW_USER | _NEW_NS | _NEW_IPC | _NEW_PID)
    _map(user, group)
    status_reader, status_writer = os.pipe()
    first = os.fork()
    if first == 0:
        os.close(status_reader)
        _guarded(writer, _first, system, walls, argv, env, status_writer, writer)
    os.close(status_writer)
    os.close(writer)
    status = os.read(status_reader, _STATUS.size)
    os.waitpid(first, 0)
    _end_like(_STATUS.unpack(status)[0] if status else 9)


def _map(user: int, group: int) -> None:
    """Have the same user and group inside as outside, and no others."""
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", "%d %d 1" % (user, user)),
        ("gid_map", "%d %d 1" % (group, group)),
    ):
        fd = os.open("/proc/self/" + name, os.O_WRONLY)
        try:
            os.write(fd, text.encode("ascii"))
        finally:
            os.close(fd)


def _end_like(status: int) -> None:
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [number])
        os.kill(os.getpid(), number)
    os._exit(os.WEXITSTATUS(status))


def _first(
    system: _System,
    walls: Walls,
    argv: List[bytes],
    env: Dict[bytes, bytes],
    status_writer: int,
    writer: int,
) -> None:
    """The first process inside, with process id 1."""
    system.prctl(_PDEATHSIG, signal.SIGKILL)
    _build(system, walls)
    os.chdir(walls.view.chdir)
    task = os.fork()
    if task == 0:
        os.close(status_writer)
        _guarded(writer, _become, system, argv, env)
    os.close(writer)
    while True:
        pid, status = os.wait()
        if pid == task:
            os.write(status_writer, _STATUS.pack(status))
            os._exit(0)


def _become(system: _System, argv: List[bytes], env: Dict[bytes, bytes]) -> None:
    system.prctl(_NO_NEW_PRIVS, 1)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    try:
        os.execve(argv[0], argv, env)
    except OSError as error:
        if error.errno != errno.ENOEXEC:
            raise
        os.execve(b"/bin/sh", [b"/bin/sh"] + argv, env)


def _build(system: _System, walls: Walls) -> None:
    """Make a new root that has only what the task may see, and leave the old one."""
    fixed, view = walls.fixed, walls.view
    system.mount("", "/", "", _REC | _PRIVATE)
    system.mount("tmpfs", "/tmp", "tmpfs", _NO_SUID | _NO_DEV, "mode=0755")
    os.mkdir("/tmp/old")
    os.mkdir("/tmp/new")
    os.chdir("/tmp")
    system.pivot(".", "old")
    os.chdir("/")
    system.mount("tmpfs", "/new", "tmpfs", _NO_SUID | _NO_DEV, "mode=0755")
    for path in fixed.shown:
        _bind(system, path)
    for target, path in fixed.links:
        os.symlink(target, "/new" + path)
    _devices(system, fixed.devices)
    os.mkdir("/new/proc")
    system.mount("proc", "/new/proc", "proc", _NO_SUID | _NO_DEV | _NO_EXEC)
    size = ",size=%d" % view.memory_bytes
    for path in tuple(walls.in_memory) + tuple(fixed.hidden):
        os.makedirs("/new" + path, exist_ok=True)
        data = "mode=0755" + (size if path in walls.in_memory else "")
        system.mount("tmpfs", "/new" + path, "tmpfs", _NO_SUID | _NO_DEV, data)
    for path in tuple(view.writes) + tuple(view.reads):
        _bind(system, path)
    _close(system, tuple(fixed.shown) + tuple(view.reads), view.writes)
    for path in ("", "/dev") + tuple(fixed.hidden):  # nobody needs to write between the mounts
        flags = _READ_ONLY | _NO_SUID | (0 if path == "/dev" else _NO_DEV)
        system.mount("", "/new" + path, "", _BIND | _REMOUNT | flags)
    os.chdir("/new")
    system.pivot(".", ".")
    system.detach(".")
    os.chdir("/")


def _bind(system: _System, path: str) -> None:
    if os.path.isdir("/old" + path):
        os.makedirs("/new" + path, exist_ok=True)
    else:
        os.close(os.open("/new" + path, os.O_CREAT | os.O_WRONLY, 0o600))
    system.mount("/old" + path, "/new" + path, "", _BIND | _REC)


def _devices(system: _System, more: Sequence[str]) -> None:
    os.mkdir("/new/dev")
    system.mount("tmpfs", "/new/dev", "tmpfs", _NO_SUID, "mode=0755")
    for path in ["/dev/" + name for name in _DEVICES] + list(more):
        if os.path.exists("/old" + path):
            _bind(system, path)
    for name, target in (("fd", "fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")):
        os.symlink("/proc/self/" + target, "/new/dev/" + name)


def _close(system: _System, paths: Sequence[str], writable: Sequence[str]) -> None:
    """Make these paths read-only, with all mounts below. Their mounts must keep their other
    restrictions, or the kernel refuses."""
    for point, flags in _mounts():
        inside = point[len("/new") :] if point.startswith("/new/") else ""
        if _is_below(inside, paths) and not _is_below(inside, writable) and not flags & _READ_ONLY:
            system.mount("", point, "", _BIND | _REMOUNT | _READ_ONLY | flags)


def _is_below(path: str, roots: Sequence[str]) -> bool:
    return any(path == root or path.startswith(root + "/") for root in roots)


def _mounts() -> List[Tuple[str, int]]:
    mounts = []
    with open("/old/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            fields = line.split()
            options = fields[5].split(",")
            flags = sum(_FLAGS.get(option, 0) for option in options)
            flags |= _RELATIME if "relatime" in options else 0
            mounts.append((_unescaped(fields[4]), flags))
    return mounts


def _unescaped(path: str) -> str:
    for code, letter in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        path = path.replace(code, letter)
    return path
