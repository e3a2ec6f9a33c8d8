"""Files in a directory that somebody else may change at any moment.

The rule: a task's directory is the task's. While the pilot, which is outside of the task's walls,
opens, moves or removes something there, a process of the task may put a symbolic link in its place
that leads to a file of the pilot. So nothing here is reached by a path of several names: each name
is opened relative to the descriptor of the directory above it, and no link is followed by the
system. What was opened is looked at by its descriptor, and only that descriptor is used.

Outputs may be reached through symbolic links that stay within the directory. Those links are read
and followed here, name by name, by the same rule (``Root.find``).
"""

import errno
import itertools
import os
import stat
from typing import List, NamedTuple, Optional, Sequence, Tuple

MOST_DEPTH = 100  # directories below a task's directory in which outputs are looked for
_MOST_LINKS = 40  # symbolic links on the way to one file, as the system has it
_BATCH = 10000  # names of a directory that are removed at a time
# Over a directory that is to be emptied, each of one level; somebody may fill it meanwhile.
MOST_PASSES = 200000
FEW_PASSES = 2000  # if it can be tried again later
_MODE = 0o700

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK
# Without O_NONBLOCK a named pipe, or a file that is leased, would make us wait.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
_NOT_A_DIRECTORY = (errno.ENOTDIR, errno.ELOOP)  # either may be said of a symbolic link
_TAKEN = (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR, errno.EISDIR)


class LeadsOut(Exception):
    """The path leads out of the directory, or through too many links or directories."""


class Place(NamedTuple):
    """A file's name in a directory that is open as ``folder`` until ``Root.leave``. ``seen`` is the
    status of what has the name, which is no symbolic link."""

    folder: int
    name: str
    seen: os.stat_result


def open_directory(name: str, parent: Optional[int] = None, unlock: bool = False) -> int:
    """The descriptor of the directory of that name, which may not be a symbolic link. With
    ``unlock`` its mode is changed if it does not let us in. Raises OSError."""
    try:
        return os.open(name, _DIRECTORY, dir_fd=parent)
    except PermissionError:
        if not unlock:
            raise
        let_in(name, _MODE, parent)
        return os.open(name, _DIRECTORY, dir_fd=parent)


def open_file(name: str, parent: int, unlock: bool = False) -> Tuple[int, os.stat_result]:
    """The descriptor of the regular file of that name, to read from, and its status. Raises
    OSError, also for anything that is not a regular file."""
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
    """Of that name itself, be it a symbolic link. Raises OSError."""
    return os.stat(name, dir_fd=parent, follow_symlinks=False)


def let_in(name: str, bits: int, parent: Optional[int]) -> None:
    """Add these bits to the mode of a file or a directory, never of what a symbolic link points
    to. Raises OSError."""
    if not hasattr(os, "O_PATH"):  # not Linux
        mode = os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
        os.chmod(name, stat.S_IMODE(mode) | bits, dir_fd=parent, follow_symlinks=False)
        return
    # A descriptor that stands for the name only; through it the system changes that very inode.
    fd = os.open(name, os.O_PATH | os.O_NOFOLLOW, dir_fd=parent)
    try:
        mode = os.fstat(fd).st_mode
        if not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
            raise OSError(errno.EINVAL, "neither a file nor a directory", name)
        os.chmod("/proc/self/fd/{}".format(fd), stat.S_IMODE(mode) | bits)
    finally:
        os.close(fd)


def names_of(path: str) -> List[str]:
    """The names of which a path is made."""
    return [name for name in path.split("/") if name not in ("", ".")]


def open_parent(folder: int, path: str, make: bool = False) -> Tuple[int, str]:
    """The directory above the last name of a path below ``folder``, opened, and that name. With
    ``make`` directories that are missing are made. ``folder`` is closed, or is the result. Raises
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
    """A directory of which files are taken. ``paths`` are what it is called in absolute links.
    Of one that is our ``own`` files may be moved away, and modes changed so that everything in it
    can be read."""

    def __init__(self, path: str, paths: Sequence[str] = ()) -> None:
        """``path`` is trusted, and may be a link. Raises OSError."""
        self.own = False
        self.fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        self._paths = tuple(paths) + (path,)

    def close(self) -> None:
        os.close(self.fd)

    def find(self, path: str) -> Place:
        """Where the path leads, along links that stay in here. Raises LeadsOut and OSError."""
        opened: List[int] = []  # the directories gone through, but for the root
        try:
            name, seen = self._follow(names_of(path)[::-1], opened)
            folder = opened.pop() if opened else self.fd
            return Place(folder, name, seen)
        finally:
            _close_all(opened)

    def leave(self, place: Place) -> None:
        """Whoever has found a place is done with it."""
        if place.folder != self.fd:
            os.close(place.folder)

    def _follow(self, left: List[str], opened: List[int]) -> Tuple[str, os.stat_result]:
        """Go along the names that are ``left``, the next one last."""
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
        # It ended with "..", or at the root itself: that is no file.
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))

    def _inner(self, target: str) -> str:
        """An absolute path, relative to the root. Raises LeadsOut."""
        for path in self._paths + tuple(map(os.path.realpath, self._paths)):
            path = path.rstrip("/") + "/"
            if (target + "/").startswith(path):
                return target[len(path) :]
        raise LeadsOut


class OwnRoot(Root):
    """One of ours, which is open as ``fd``, and at that path."""

    def __init__(self, fd: int, path: str) -> None:
        self.own = True
        open_up(fd)
        self.fd = fd
        self._paths = (path,)

    def close(self) -> None:
        pass  # it is not ours


def _close_all(fds: List[int]) -> None:
    while fds:
        os.close(fds.pop())


# Removing


def remove(path: str, passes: int = MOST_PASSES) -> None:
    """Remove whatever is at path; nothing there is fine. Only the last name of the path may be
    one that others change. Raises OSError."""
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
    """The same, of a name in an open directory."""
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
    """Remove everything in the directory that is open as ``root``. Raises OSError, also when
    others make files there faster than they can be removed.

    No recursion and no long paths: directories found below are first moved up into root, so a tree
    deeper than any path can name goes too.
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
    """Remove a directory in root, after its directories were moved up into root. ``number`` is the
    last that was used to name those; returns the last one used now."""
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
        # Somebody changes it at this moment: it is looked at again in the next pass.
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
            let_in(name, _MODE, folder)  # its ".." changes: it must be writable
            unlocked = True
        except OSError as error:
            if error.errno not in _TAKEN:
                raise
    return number  # it is looked at again in the next pass


def open_up(folder: int) -> None:
    """Let us list and change what is in there."""
    if stat.S_IMODE(os.fstat(folder).st_mode) != _MODE:
        os.fchmod(folder, _MODE)


def _unlinked(name: str, folder: int) -> bool:
    """Remove a name that is not a directory's; False for a directory. Raises OSError."""
    try:
        try:
            os.unlink(name, dir_fd=folder)  # most are files: they cost one call each
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
    """Up to so many names of a directory: it may have more than memory can hold."""
    if os.scandir not in os.supports_fd:  # before Python 3.7
        return os.listdir(folder)[:most]
    with os.scandir(folder) as entries:  # novm
        return [entry.name for entry in itertools.islice(entries, most)]
