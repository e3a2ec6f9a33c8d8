"""Putting a task's inputs into its directory.

The rule: a file is linked where that is possible, for a link costs nothing and the host's copy is
read-only; it is copied where the task may write to it, or where the file system cannot link. No
path leads out of the directory.
"""

import errno
import os
from typing import Callable

_CANNOT_LINK = (
    errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.EACCES, errno.ENOSYS,
)  # fmt: skip
_PIECE_BYTES = 4 << 20


class Refused(Exception):
    """What was asked for is wrong, on any host."""


def check_path(path: str) -> None:
    """Raises Refused unless it names something below a task's directory."""
    if not path or path.startswith("/") or "\0" in path or ".." in path.split("/"):
        raise Refused("{!r} is not a path below the task's directory".format(path))


def place(source: str, path: str, copy: bool, breathe: Callable[[], None]) -> None:
    """Have the file in the directory in which this process stands. It takes the place of an
    earlier one at the same path. A long copy calls ``breathe`` now and then, which may raise.
    Raises Refused, and OSError when this host fails."""
    check_path(path)
    for last in (False, True):
        try:
            if copy:
                _copy(source, path, True, breathe)
            else:
                _link(source, path, breathe)
            return
        except (FileExistsError, FileNotFoundError, NotADirectoryError) as error:
            if last or not os.path.exists(source):
                raise
            _make_way(path, error)


def _link(source: str, path: str, breathe: Callable[[], None]) -> None:
    try:
        os.link(source, path)
    except OSError as error:
        if error.errno not in _CANNOT_LINK:
            raise
        _copy(source, path, False, breathe)


def _make_way(path: str, error: OSError) -> None:
    """Remove what an earlier input put there, or make the directories above it."""
    try:
        if isinstance(error, FileExistsError):
            os.unlink(path)
        else:
            os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    except (IsADirectoryError, PermissionError, FileExistsError, NotADirectoryError):
        words = "two inputs want to be at {!r}, one of them as a directory"
        raise Refused(words.format(path)) from None


def _copy(source: str, path: str, writable: bool, breathe: Callable[[], None]) -> None:
    with open(source, "rb", 0) as old:
        found = os.fstat(old.fileno())
        mode = found.st_mode & 0o777
        with open(path, "xb", 0) as new:
            # By descriptor: a worker that lives in the directory may put a link in its place.
            os.chmod(new.fileno(), mode | 0o600 if writable else mode)
            piece = old.read(_PIECE_BYTES)
            while piece:
                left = memoryview(piece)
                while left:
                    left = left[new.write(left) :]
                piece = old.read(_PIECE_BYTES)
                if piece:
                    breathe()
            # Unchanged inputs are known by this, where outputs are looked for.
            os.utime(new.fileno(), ns=(found.st_atime_ns, found.st_mtime_ns))
