"""Put a task's inputs into its directory.

The rule: a file is linked if possible, because a link costs nothing and the cached file is
read-only. It is copied if the task may write to it, or if the file system cannot link. No path
leads out of the directory.
"""

import errno
import os
from typing import Callable, Optional, Tuple

from covey.pilot.files.safe_paths import names_of, open_parent

_CANNOT_LINK = (
    errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.EACCES, errno.ENOSYS,
)  # fmt: skip
_PIECE_BYTES = 4 << 20


class InputRefused(Exception):
    """An input's path is wrong, on any host."""


def check_path(path: str) -> None:
    """Raises InputRefused unless the path names something below a task's directory."""
    names = names_of(path)
    if not names or path.startswith("/") or "\0" in path or ".." in names:
        raise InputRefused("{!r} is not a path below the task's directory".format(path))


def place(
    source: str,
    path: str,
    copy: bool,
    breathe: Callable[[], None],
    directory: Optional[int] = None,
) -> None:
    """Put the file into the directory open as ``directory``, or else into the current directory.
    It replaces an earlier input with the same path. A long copy calls ``breathe`` now and then,
    which may raise. Raises InputRefused, and OSError if this host fails."""
    check_path(path)
    try:
        folder, name = _open_parent(path, True, directory)
    except (NotADirectoryError, FileExistsError):
        raise _collision(path) from None
    try:
        for last in (False, True):
            try:
                if copy:
                    _copy(source, name, folder, True, breathe)
                else:
                    _link(source, name, folder, breathe)
                return
            except FileExistsError:
                if last:
                    raise
                _make_way(path, name, folder)
    finally:
        os.close(folder)


def displace(path: str, directory: Optional[int] = None) -> None:
    """Remove a file that was placed. Raises OSError."""
    folder, name = _open_parent(path, False, directory)
    try:
        os.unlink(name, dir_fd=folder)
    finally:
        os.close(folder)


def _open_parent(path: str, make: bool, directory: Optional[int]) -> Tuple[int, str]:
    """Follow no links: a worker may change this directory at any moment (``safe_paths``)."""
    if directory is None:
        folder = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
    else:
        folder = os.dup(directory)
    return open_parent(folder, path, make)


def _link(source: str, name: str, folder: int, breathe: Callable[[], None]) -> None:
    try:
        os.link(source, name, dst_dir_fd=folder)
    except OSError as error:
        if error.errno not in _CANNOT_LINK:
            raise
        _copy(source, name, folder, False, breathe)


def _make_way(path: str, name: str, folder: int) -> None:
    """Remove an earlier input."""
    try:
        os.unlink(name, dir_fd=folder)
    except (IsADirectoryError, PermissionError):
        raise _collision(path) from None


def _collision(path: str) -> InputRefused:
    words = "two inputs have the path {!r}, and one of them is a directory"
    return InputRefused(words.format(path))


def _copy(source: str, name: str, folder: int, writable: bool, breathe: Callable[[], None]) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    with open(source, "rb", 0) as old:
        about = os.fstat(old.fileno())
        mode = about.st_mode & 0o777
        with open(os.open(name, flags, 0o600, dir_fd=folder), "wb", 0) as new:
            os.chmod(new.fileno(), mode | 0o600 if writable else mode)
            piece = old.read(_PIECE_BYTES)
            while piece:
                left = memoryview(piece)
                while left:
                    left = left[new.write(left) :]
                piece = old.read(_PIECE_BYTES)
                if piece:
                    breathe()
            # The search for outputs knows unchanged inputs by their modification time.
            os.utime(new.fileno(), ns=(about.st_atime_ns, about.st_mtime_ns))
