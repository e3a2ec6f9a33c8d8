"""Holding a task to its disk: how much its directory takes, measured while the task runs.

The rule: looking takes a bounded part of the slot's time. A directory of a million files is not
measured in one go but a little at each look, and a look may find only that it is not through yet.

What counts is what the task's own directories take on disk, each file once however many names it
has, and files there that the task has removed but still has open. For its inputs a task gets as
much in addition as they take. Elsewhere on the host (a /tmp that all share, the user's home) nobody
can say whose a file is: what is written there does not count.

Directories are entered through descriptors, never through a path: the task may put a symbolic link
in the place of a directory at any time.
"""

import os
import stat
import time
from typing import Generator, Iterable, List, Optional, Sequence, Set, Tuple

from covey.pilot.slots import process_tree
from covey.pilot.walls import open_files

FIRST_LOOK_SECONDS, LAST_LOOK_SECONDS = 0.1, 1.0
LOOK_MORE_SECONDS = 0.02  # until a look goes on that was not through
SLICE_SECONDS = 0.01  # that one look may take
MOST_DEPTH = 200  # levels of directories, each of which takes a descriptor
_SLICE_FILES = 200  # after which a look asks for the time
_BLOCK_BYTES = 512
_LARGE_BLOCK = 65536
_TOO_DEEP = 1 << 62
_BY_PATH = getattr(os, "O_PATH", 0)  # to have a directory, not to read it; Linux

File = Tuple[int, int]  # device and inode
Measuring = Generator[int, None, None]


class Disk:
    """The disk limits of one slot's tasks, one after the other."""

    def __init__(self) -> None:
        self._limit_bytes = 0
        self._inputs_bytes = 0
        self._folders: List[str] = []
        self._measuring: Optional[Measuring] = None
        self._pause = FIRST_LOOK_SECONDS
        self.used_bytes = 0  # at the last complete look

    def begin(self, limit_mb: int, folders: Iterable[str], inputs: Iterable[str]) -> None:
        """Of a task that has these directories; ``inputs`` are the files that were placed there,
        as links or copies."""
        self.end()
        self._limit_bytes = limit_mb << 20
        self._inputs_bytes = sum(_most_bytes(found) for found in map(_look, inputs) if found)
        self._folders = list(folders)
        self._pause = FIRST_LOOK_SECONDS
        self.used_bytes = 0

    def over(self) -> bool:
        """Look, or go on looking: does the task have more than it may?"""
        until = time.monotonic() + SLICE_SECONDS
        if self._measuring is None:
            self._measuring = measure(self._folders)
        for measured in self._measuring:
            used = measured - self._inputs_bytes
            self.used_bytes = max(self.used_bytes, used)
            if used > self._limit_bytes:
                return True
            if time.monotonic() >= until:
                self._pause = LOOK_MORE_SECONDS
                return False
        self._measuring = None
        self._pause = min(LAST_LOOK_SECONDS, max(FIRST_LOOK_SECONDS, self._pause * 1.2))
        return False

    def pause(self) -> float:
        """Seconds until the next look."""
        return self._pause

    def words(self) -> str:
        """What to say of a task that is over its limit."""
        if self.used_bytes >= _TOO_DEEP - self._inputs_bytes:
            words = "its directory is nested more than {} levels deep: its size is not known"
            return words.format(MOST_DEPTH)
        used_mb = (self.used_bytes + (1 << 20) - 1) >> 20
        return "over its limit of {} MB of disk (used {} MB)".format(
            self._limit_bytes >> 20, used_mb
        )

    def end(self) -> None:
        if self._measuring is not None:
            self._measuring.close()
            self._measuring = None


def measure(folders: Sequence[str]) -> Measuring:
    """Say now and then how many bytes have been found so far; at last, how many there are."""
    seen: Set[File] = set()
    used = 0
    for folder in folders:
        for found_bytes in _measure_one(folder, seen):
            yield used + found_bytes
        used += found_bytes
    devices = {found.st_dev for found in map(_look, folders) if found is not None}
    family = process_tree.family(process_tree.children(os.getpid()))
    for _, found in open_files.written(family, open_files.removed):
        if found.st_dev in devices and _identity(found) not in seen:
            seen.add(_identity(found))
            used += found.st_blocks * _BLOCK_BYTES
    yield used


def _measure_one(folder: str, seen: Set[File]) -> Measuring:
    """At least one number, the last one being all of it."""
    used = count = 0
    stack: List[Tuple[int, List[str]]] = []  # open directories, and what is to be looked at there
    try:
        _enter(folder, None, stack)
        while stack:
            fd, names = stack[-1]
            if not names:
                os.close(stack.pop()[0])
                continue
            name = names.pop()
            found = _look(name, fd)
            if found is None or _identity(found) in seen:
                continue
            if found.st_nlink > 1 or stat.S_ISDIR(found.st_mode):
                seen.add(_identity(found))
            used += found.st_blocks * _BLOCK_BYTES
            if stat.S_ISDIR(found.st_mode):
                if len(stack) >= MOST_DEPTH:
                    yield _TOO_DEEP
                    return
                _enter(name, fd, stack)
            count += 1
            if count % _SLICE_FILES == 0:
                yield used
        yield used
    finally:
        for fd, _ in stack:
            os.close(fd)


def _enter(path: str, above: Optional[int], stack: List[Tuple[int, List[str]]]) -> None:
    """Have this directory on the stack; one that cannot be read has nothing in it for us."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
    try:
        fd = os.open(path, flags, dir_fd=above)
    except PermissionError:
        fd = _open_closed(path, flags, above)
    except OSError:
        return  # it has just been removed, or replaced
    if fd >= 0:
        stack.append((fd, _names(fd)))


def _open_closed(path: str, flags: int, above: Optional[int]) -> int:
    """A directory that the task has closed to itself, and so to us: open it for both. By
    descriptor: a chmod by path would follow a symbolic link to wherever the task likes."""
    try:
        handle = os.open(path, flags | _BY_PATH, dir_fd=above)
    except OSError:
        return -1
    try:
        same = "/proc/self/fd/{}".format(handle)
        os.chmod(same, stat.S_IMODE(os.fstat(handle).st_mode) | 0o500)
        return os.open(same, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return -1
    finally:
        os.close(handle)


def _names(fd: int) -> List[str]:
    try:
        return os.listdir(fd)
    except OSError:
        return []


def _look(path: str, above: Optional[int] = None) -> Optional[os.stat_result]:
    try:
        return os.stat(path, dir_fd=above, follow_symlinks=False)
    except (OSError, ValueError):
        return None


def _most_bytes(found: os.stat_result) -> int:
    """What a file may take on a file system with larger blocks, and without holes."""
    return max(found.st_blocks * _BLOCK_BYTES, -(-found.st_size // _LARGE_BLOCK) * _LARGE_BLOCK)


def _identity(found: os.stat_result) -> File:
    return found.st_dev, found.st_ino
