"""Start one process, as cheaply as this Python can.

The rule: a task starts in its own process group, inside the session of its slot, with default
signals, an empty signal mask and only the descriptors 0, 1 and 2, which the slot process itself has
already set up. A session of its own would add nothing (each slot has one, without a terminal), and
costs a short task one or two per cent if the kernel schedules by sessions. A failed exec is an
OSError here, in the caller, before anything ran.

There are three ways. ``vfork`` is the fastest. It is inside a private function that ``subprocess``
uses in CPython since 3.11; a Python whose function takes other arguments does without it.
``posix_spawn`` does not copy our memory either. Python 3.6, 3.7 and PyPy fork.

If the system refuses a vfork (too many processes, an emulator), ``fork_exec`` forks instead and
returns before its child has called exec. So only the end of the child tells whether exec failed:
after a child exited with UNEXECUTED, call ``never_began``, and start it again. From then on
processes are forked here, which tells at once, until one has begun. This works because a slot has
one such child at a time, and only that child writes its reason into the file.

Whatever the locale, text is UTF-8 for a task, and bytes that are not UTF-8 stay as they were.

Commands are searched in the PATH of the *order*, as execvp does, and a script without a first line
``#!`` is given to /bin/sh, as execvp does.
"""

import errno
import os
import signal
import stat
import struct
import sys
import time
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

from covey.pilot.slots import slot_signals

_fork_exec: Any = None
if sys.platform == "linux" and sys.implementation.name == "cpython":
    from _posixsubprocess import fork_exec as _fork_exec

_CACHE_SECONDS = 1.0  # short, so that a command installed during a bag is soon found
_CACHE_SIZE = 256
_ERRNO = struct.Struct("=i")
UNEXECUTED = 255 << 8  # the wait status of a child whose exec failed


class Commands:
    """Where commands are, remembered for a moment."""

    def __init__(self) -> None:
        self._found: Dict[Tuple[str, str], Tuple[str, float]] = {}

    def find(self, name: str, path: str) -> str:
        """The file to execute for a name without a slash. Raises OSError as execvp would."""
        now = time.monotonic()
        file, until = self._found.get((name, path), ("", 0.0))
        if until > now:
            return file
        file = search(name, path)
        if file.startswith("/"):  # other results depend on the working directory
            if len(self._found) >= _CACHE_SIZE:
                self._found.clear()
            self._found[name, path] = (file, now + _CACHE_SECONDS)
        return file

    def forget(self) -> bool:
        """Forget all; False if nothing was remembered."""
        had_some = bool(self._found)
        self._found.clear()
        return had_some


def search(name: str, path: str) -> str:
    """Search the command in a PATH. Raises FileNotFoundError or PermissionError."""
    denied = False
    for folder in path.split(":") if name else []:
        candidate = os.path.join(folder or ".", name)
        try:
            mode = os.stat(encoded(candidate)).st_mode
        except OSError:
            continue
        if stat.S_ISREG(mode):
            if os.access(encoded(candidate), os.X_OK):
                return candidate
            denied = True
    if denied:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), name)
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)


Way = Callable[[bytes, List[bytes], List[bytes]], int]

_start: Way
_words = _spare = -1


def _by_vfork(path: bytes, argv: List[bytes], env: List[bytes]) -> int:
    """Returns when the child has called exec, or has written why it could not: into a file to which
    nobody else writes, so that the position in it tells."""
    os.lseek(_words, 0, os.SEEK_SET)  # an earlier child may have been killed while it wrote here
    slot_signals.let_through()
    try:
        pid: int = _fork_exec(
            argv, [path], False, (), None, env, -1, -1, -1, -1, -1, -1,
            _spare, _words, False, False, 0, None, None, None, -1, None, True,
        )  # fmt: skip
    finally:
        slot_signals.hold()
    if os.lseek(_words, 0, os.SEEK_CUR):
        os.waitpid(pid, 0)
        raise _unexecuted()
    return pid


def _unexecuted() -> OSError:
    words = os.pread(_words, os.lseek(_words, 0, os.SEEK_CUR), 0)  # such as "OSError:2:"
    number = int(words.split(b":")[1], 16) or errno.EINVAL
    return OSError(number, os.strerror(number))


def never_began() -> bool:
    """Whether the process that was started last, and exited with UNEXECUTED, could not call exec.
    If so, the next ones are started in a way that tells at once."""
    global _start
    if _start is not _by_vfork or not os.lseek(_words, 0, os.SEEK_CUR):
        return False
    _start = _by_fork_again
    return True


def _by_fork_again(path: bytes, argv: List[bytes], env: List[bytes]) -> int:
    """Fork until a process has begun."""
    global _start
    pid = _by_fork(path, argv, env)
    os.lseek(_words, 0, os.SEEK_SET)
    _start = _by_vfork
    return pid


def _by_posix_spawn(path: bytes, argv: List[bytes], env: List[bytes]) -> int:
    return os.posix_spawn(path, argv, mapping(env), setpgroup=0, setsigmask=[])  # novm


def _by_fork(path: bytes, argv: List[bytes], env: List[bytes]) -> int:
    reader, writer = os.pipe()  # closed by a successful exec
    try:
        pid = os.fork()
        if pid == 0:
            _become(path, argv, mapping(env), writer)
        os.close(writer)
        writer = -1
        failure = os.read(reader, _ERRNO.size)
    finally:
        os.close(reader)
        if writer >= 0:
            os.close(writer)
    if not failure:
        return pid
    os.waitpid(pid, 0)
    number = _ERRNO.unpack(failure)[0]
    if number == 0:
        raise ValueError("a NUL character or '=' where none is allowed")
    raise OSError(number, os.strerror(number))


def _become(path: bytes, argv: List[bytes], env: Dict[bytes, bytes], writer: int) -> None:
    """Runs in the child and never returns; reports through the pipe why exec failed."""
    number = 0
    try:
        os.setpgid(0, 0)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        os.execve(path, argv, env)
    except OSError as error:
        number = error.errno or errno.EINVAL
    except BaseException:  # a ValueError for argv or env: number 0
        pass
    finally:
        os.write(writer, _ERRNO.pack(number))
        os._exit(127)


def encoded(text: Any) -> bytes:
    """The text as UTF-8, whatever the locale: Python 3.6 under LC_ALL=C would use ASCII."""
    return text if text.__class__ is bytes else text.encode("utf-8", "surrogateescape")


def variables(env: Mapping[str, str]) -> List[bytes]:
    """The variables in the form that exec takes. Raises ValueError."""
    for name in env:
        if not name or "=" in name:
            raise ValueError("an environment variable cannot have the name {!r}".format(name))
    return [(name + "=" + env[name]).encode("utf-8", "surrogateescape") for name in env]


def mapping(env: List[bytes]) -> Dict[bytes, bytes]:
    return dict(variable.split(b"=", 1) for variable in env)


def ways() -> List[Way]:
    """The ways that this Python has, the best first."""
    choices: List[Way] = [_by_fork]
    if hasattr(os, "posix_spawn"):
        choices.insert(0, _by_posix_spawn)
    if _fork_exec is not None and sys.version_info >= (3, 11) and hasattr(os, "memfd_create"):
        choices.insert(0, _by_vfork)
    return choices


_start = _by_fork


def prepare(way: Optional[Way] = None) -> None:
    """Call it before the first task, in each process that starts tasks: choose the best way, or
    this one."""
    global _start, _words, _spare
    _start = way or ways()[0]
    if _start is _by_vfork:
        _words = os.memfd_create("covey-exec")  # novm
        _spare = os.dup(_words)  # the child closes one


def start(path: Any, argv: List[Any], env: List[bytes]) -> int:
    """Start the program at ``path``; returns its process id.

    Raises OSError if the system refuses, ValueError for arguments that no system can pass on.
    """
    path, argv = encoded(path), [encoded(word) for word in argv]
    try:
        return _start(path, argv, env)
    except OSError as error:
        if error.errno != errno.ENOEXEC:
            raise
        return _start(b"/bin/sh", [b"/bin/sh", path] + argv[1:], env)
    except TypeError:
        if _start is not _by_vfork:
            raise
        prepare(ways()[1])  # this Python's function takes other arguments
        return start(path, argv, env)
