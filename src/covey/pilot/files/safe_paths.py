"""Files in a directory that somebody else may change at any moment.

The rule: a task's directory belongs to the task. While the pilot, which runs outside of the task's
sandbox, opens, moves or removes something there, a process of the task may replace it by a symbolic
link to a file of the pilot. So nothing here is reached by a path of several names: each name is
opened relative to the descriptor of the directory above it, and the system follows no link. After a
file is opened, only its descriptor is checked and used.

Outputs may be reached through symbolic links that stay within the directory. This module reads and
follows those links itself, name by name, by the same rule (``Root.find``).
"""

import errno
import itertools
import os
import stat
from typing import List, NamedTuple, Optional, Sequence, Tuple

MOST_DEPTH = 100  # how deep below a task's directory outputs are searched
_MOST_LINKS = 40  # symbolic links on the way to one file; the system's own limit
_BATCH = 10000  # names of a directory that are removed at a time
# How many times a directory is gone through, one level each, until it is empty. Others may fill it.
MOST_PASSES = 200000
FEW_PASSES = 2000  # if it can be tried again later
_MODE = 0o700

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK
# Without O_NONBLOCK we would wait for a named pipe or a leased file.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
_NOT_A_DIRECTORY = (errno.ENOTDIR, errno.ELOOP)  # a symbolic link may cause either
_TAKEN = (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR, errno.EISDIR)


class LeadsOut(Exception):
    """The path leads out of the directory, or through too many links or directories."""


class Place(NamedTuple):
    """A file's name in a directory that is open as ``folder`` until ``Root.leave``. ``seen`` is the
    file's status; it is not a symbolic link."""

    folder: int
    name: str
    seen: os.stat_result


def open_directory(name: str, parent: Optional[int] = None, unlock: bool = False) -> int:
    """Open the directory with this name, which must not be a symbolic link; returns a descriptor.
    With ``unlock``, its mode is changed if it does not let us in. Raises OSError."""
    try:
        return os.open(name, _DIRECTORY, dir_fd=parent)
    except PermissionError:
        if not unlock:
            raise
        let_in(name, _MODE, parent)
        return os.open(name, _DIRECTORY, dir_fd=parent)


def open_file(name: str, parent: int, unlock: bool = False) -> Tuple[int, os.stat_result]:
    """Open the regular file with this name for reading; returns its descriptor and status. Raises
    OSError, also for anything but a regular file."""
    try:
        fd = os.open(name, _FILE, dir_fd=parent)
    except PermissionError:
        if not unlock:
            raise
        let_in(name, 0o600, parent)
        fd = os.open(name, _FILE, dir_fd=parent)
    seen = os.fstat(fd)
    if not stat.S_ISREG(seen.st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "not a regular file", name)
    return fd, seen


def status(name: str, parent: int) -> os.stat_result:
    """The status of this name itself, even if it is a symbolic link. Raises OSError."""
    return os.stat(name, dir_fd=parent, follow_symlinks=False)


def let_in(name: str, bits: int, parent: Optional[int]) -> None:
    """Add these bits to the mode of a file or directory, never to the target of a symbolic link.
    Raises OSError."""
    if not hasattr(os, "O_PATH"):  # not Linux
        mode = os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
        os.chmod(name, stat.S_IMODE(mode) | bits, dir_fd=parent, follow_symlinks=False)
        return
    # This descriptor stands for the name itself; through it the system changes exactly that inode.
    fd = os.open(name, os.O_PATH | os.O_NOFOLLOW, dir_fd=parent)
    try:
        mode = os.fstat(fd).st_mode
        if not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
            raise OSError(errno.EINVAL, "neither a file nor a directory", name)
        os.chmod("/proc/self/fd/{}".format(fd), stat.S_IMODE(mode) | bits)
    finally:
        os.close(fd)


def names_of(path: str) -> List[str]:
    """The names that make up a path."""
    return [name for name in path.split("/") if name not in ("", ".")]


def open_parent(folder: int, path: str, make: bool = False) -> Tuple[int, str]:
    """Open the directory above the last name of a path below ``folder``; returns it and that name.
    With ``make``, missing directories are made. ``folder`` is closed, or is the result. Raises
    OSError; NotADirectoryError for a symbolic link on the way."""
    names = names_of(path)
    try:
        for name in names[:-1]:
            below = _descend(name, folder, make)
            os.close(folder)
            folder = below
    except BaseException:
        os.close(folder)
        raise
    return folder, names[-1]


def _descend(name: str, folder: int, make: bool) -> int:
    if name == "..":
        raise OSError(errno.EINVAL, "leads out of the directory", name)
    try:
        return open_directory(name, folder)
    except FileNotFoundError:
        if not make:
            raise
    except OSError as error:
        if error.errno not in _NOT_A_DIRECTORY:
            raise
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), name) from error
    os.mkdir(name, 0o777, dir_fd=folder)
    return open_directory(name, folder)


class Root:
    """A directory from which files are taken. ``paths`` are its names in absolute links. If it is
    our ``own``, files may be moved away, and modes changed so that everything in it is readable."""

    def __init__(self, path: str, paths: Sequence[str] = ()) -> None:
        """``path`` is trusted, and may be a link. Raises OSError."""
        self.own = False
        self.fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        self._paths = tuple(paths) + (path,)

    def close(self) -> None:
        os.close(self.fd)

    def find(self, path: str) -> Place:
        """The place where the path leads, along links that stay inside. Raises LeadsOut and
        OSError."""
        opened: List[int] = []  # the directories on the way, except the root
        try:
            name, seen = self._follow(names_of(path)[::-1], opened)
            folder = opened.pop() if opened else self.fd
            return Place(folder, name, seen)
        finally:
            _close_all(opened)

    def leave(self, place: Place) -> None:
        """Release a place that ``find`` returned."""
        if place.folder != self.fd:
            os.close(place.folder)

    def _follow(self, left: List[str], opened: List[int]) -> Tuple[str, os.stat_result]:
        """Follow the names in ``left``; the next name is the last of the list."""
        links = 0
        while left:
            name = left.pop()
            folder = opened[-1] if opened else self.fd
            if name == "..":
                if not opened:
                    raise LeadsOut
                os.close(opened.pop())
                continue
            seen = status(name, folder)
            if stat.S_ISLNK(seen.st_mode):
                links += 1
                if links > _MOST_LINKS:
                    raise LeadsOut
                target = os.readlink(name, dir_fd=folder)
                if target.startswith("/"):
                    target = self._inner(target)
                    _close_all(opened)
                left += names_of(target)[::-1]
            elif left:
                if len(opened) == MOST_DEPTH:
                    raise LeadsOut
                opened.append(open_directory(name, folder, self.own))
            else:
                return name, seen
        # The path ended with "..", or at the root itself: not a file.
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))

    def _inner(self, target: str) -> str:
        """Make an absolute path relative to the root. Raises LeadsOut."""
        for path in self._paths + tuple(map(os.path.realpath, self._paths)):
            path = path.rstrip("/") + "/"
            if (target + "/").startswith(path):
                return target[len(path) :]
        raise LeadsOut


class OwnRoot(Root):
    """A directory of ours, open as ``fd`` and with this path."""

    def __init__(self, fd: int, path: str) -> None:
        self.own = True
        open_up(fd)
        self.fd = fd
        self._paths = (path,)

    def close(self) -> None:
        pass  # the caller closes the descriptor


def _close_all(fds: List[int]) -> None:
    while fds:
        os.close(fds.pop())


# Removing


def remove(path: str, passes: int = MOST_PASSES) -> None:
    """Remove whatever is at the path, if anything. Only the path's last name may be under the
    control of others. Raises OSError."""
    above, name = os.path.split(path.rstrip("/"))
    try:
        parent = os.open(above or ".", os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        return
    try:
        remove_at(name, parent, passes)
    finally:
        os.close(parent)


def remove_at(name: str, parent: int, passes: int = MOST_PASSES) -> None:
    """As ``remove``, for a name in an open directory."""
    try:
        if not _unlinked(name, parent):
            folder = open_directory(name, parent, True)
            try:
                empty(folder, passes)
            finally:
                os.close(folder)
            os.rmdir(name, dir_fd=parent)
    except FileNotFoundError:
        pass


def empty(root: int, passes: int = MOST_PASSES) -> None:
    """Remove everything in the directory that is open as ``root``. Raises OSError, also if others
    make files there faster than they are removed.

    There is no recursion, and there are no long paths: directories below are first moved up into
    root. So a tree that is deeper than any path can name is removed too.
    """
    open_up(root)
    number = 0
    for _ in range(passes):
        folders = []
        batch = some_names(root, _BATCH)
        for name in batch:
            if not _unlinked(name, root):
                folders.append(name)
        if not batch:
            return
        for name in folders:
            number = _dissolve(name, root, number)
    raise OSError(errno.EBUSY, "another program makes files in a directory that is being removed")


def _dissolve(name: str, root: int, number: int) -> int:
    """Remove a directory in root, after moving its directories up into root. ``number`` is the last
    number used to name those; returns the last number used now."""
    try:
        folder = open_directory(name, root, True)
        try:
            open_up(folder)
            batch = some_names(folder, _BATCH)
            while batch:
                for inner in batch:
                    if not _unlinked(inner, folder):
                        number = _move_up(inner, folder, root, number)
                batch = some_names(folder, _BATCH) if len(batch) == _BATCH else []
        finally:
            os.close(folder)
        os.rmdir(name, dir_fd=root)
    except OSError as error:
        # Somebody is changing it: the next pass looks at it again.
        if error.errno not in (errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST) + _NOT_A_DIRECTORY:
            raise
    return number


def _move_up(name: str, folder: int, root: int, number: int) -> int:
    unlocked = False
    for _ in range(FEW_PASSES):
        number += 1
        target = ".covey-{}".format(number)
        try:
            os.rename(name, target, src_dir_fd=folder, dst_dir_fd=root)
            return number
        except PermissionError:
            if unlocked:
                raise
            let_in(name, _MODE, folder)  # a move changes its "..", so it must be writable
            unlocked = True
        except OSError as error:
            if error.errno not in _TAKEN:
                raise
    return number  # the next pass looks at it again


def open_up(folder: int) -> None:
    """Let us list and change the content of a directory."""
    if stat.S_IMODE(os.fstat(folder).st_mode) != _MODE:
        os.fchmod(folder, _MODE)


def _unlinked(name: str, folder: int) -> bool:
    """Remove a name, except a directory's; False for a directory. Raises OSError."""
    try:
        try:
            os.unlink(name, dir_fd=folder)  # most names are files: one call each
        except FileNotFoundError:
            raise
        except OSError:
            if stat.S_ISDIR(status(name, folder).st_mode):
                return False
            raise
    except FileNotFoundError:
        pass
    return True


def some_names(folder: int, most: int) -> List[str]:
    """Up to ``most`` names of a directory, which may have more than memory can hold."""
    if os.scandir not in os.supports_fd:  # before Python 3.7
        return os.listdir(folder)[:most]
    with os.scandir(folder) as entries:  # novm
        return [entry.name for entry in itertools.islice(entries, most)]
