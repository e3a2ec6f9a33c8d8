"""Starting one process, as cheaply as this Python can.

The rule: a task starts in its own session, with default signals, an empty signal
mask and only the descriptors 0, 1 and 2, which the slot process itself has already
set up. ``posix_spawn`` does it without copying our memory; Python 3.6, 3.7 and PyPy
have none, and fork and exec there. Either way a failed exec is an OSError here, in
the caller, before anything ran.

Commands are looked up in the PATH of the *order*, as execvp would, and a script
without a first line ``#!`` is given to /bin/sh, as execvp does.
"""

import errno
import os
import signal
import stat
import struct
import time
from typing import Any, Dict, List, Tuple

_CACHE_SECONDS = 1.0  # a command installed in the middle of a bag is soon seen
_CACHE_SIZE = 256
_ERRNO = struct.Struct("=i")


class Commands:
    """Where commands are, remembered for a moment."""

    def __init__(self) -> None:
        self._found: Dict[Tuple[str, str], Tuple[str, float]] = {}

    def find(self, name: str, path: str) -> str:
        """The file to execute; raises OSError as execvp would."""
        if "/" in name:
            return name
        now = time.monotonic()
        found, until = self._found.get((name, path), ("", 0.0))
        if until > now:
            return found
        found = search(name, path)
        if found.startswith("/"):  # others depend on where we stand
            if len(self._found) >= _CACHE_SIZE:
                self._found.clear()
            self._found[name, path] = (found, now + _CACHE_SECONDS)
        return found

    def forget(self) -> bool:
        """Look everything up again; False when nothing was remembered."""
        known = bool(self._found)
        self._found.clear()
        return known


def search(name: str, path: str) -> str:
    """Look the command up in a PATH; raises FileNotFoundError or PermissionError."""
    denied = False
    for folder in path.split(":") if name else []:
        candidate = os.path.join(folder or ".", name)
        try:
            mode = os.stat(candidate).st_mode
        except OSError:
            continue
        if stat.S_ISREG(mode):
            if os.access(candidate, os.X_OK):
                return candidate
            denied = True
    if denied:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), name)
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)


def _by_posix_spawn(path: Any, argv: List[Any], env: Dict[Any, Any]) -> int:
    return os.posix_spawn(path, argv, env, setsid=True, setsigmask=[])  # novm


def _by_fork(path: Any, argv: List[Any], env: Dict[Any, Any]) -> int:
    if isinstance(path, str):
        path, argv, env = _all_encoded(path, argv, env)
    reader, writer = os.pipe()  # closed by a successful exec
    try:
        pid = os.fork()
        if pid == 0:
            _become(path, argv, env, writer)
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
        raise ValueError("a NUL or '=' where the system allows none")
    raise OSError(number, os.strerror(number))


def _become(path: Any, argv: List[Any], env: Dict[Any, Any], writer: int) -> None:
    """In the child: never returns, and reports through the pipe why exec failed."""
    number = 0
    try:
        os.setsid()
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        os.execve(path, argv, env)
    except OSError as error:
        number = error.errno or errno.EINVAL
    except BaseException:  # a ValueError of argv or env: number 0
        pass
    finally:
        os.write(writer, _ERRNO.pack(number))
        os._exit(127)


def encoded(text: Any) -> bytes:
    """As UTF-8, whatever the locale: Python 3.6 under LC_ALL=C would take ASCII alone."""
    return text if text.__class__ is bytes else text.encode("utf-8", "surrogateescape")


def encoded_env(env: Dict[Any, Any]) -> Dict[bytes, bytes]:
    return {encoded(name): encoded(value) for name, value in env.items()}


def _all_encoded(
    path: str, argv: List[str], env: Dict[Any, Any]
) -> Tuple[bytes, List[bytes], Dict[bytes, bytes]]:
    return encoded(path), [encoded(word) for word in argv], encoded_env(env)


_start = _by_posix_spawn if hasattr(os, "posix_spawn") else _by_fork


def start(path: str, argv: List[str], env: Dict[Any, Any]) -> int:
    """Start the program at ``path``; its process id.

    Raises OSError when the system refuses, ValueError for arguments that no system
    can pass on.
    """
    global _start
    try:
        return _start(path, argv, env)
    except OSError as error:
        if error.errno != errno.ENOEXEC:
            raise
        return _start("/bin/sh", ["/bin/sh", path] + argv[1:], env)
    except NotImplementedError:  # a libc whose posix_spawn knows no setsid
        _start = _by_fork
        return _by_fork(path, argv, env)
    except UnicodeEncodeError:  # a locale too small for these arguments
        return _start(*_all_encoded(path, argv, env))
