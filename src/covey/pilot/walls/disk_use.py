"""Enforce a task's disk limit: its directory is measured while the task runs.

The rule: measuring takes a bounded part of the slot's time. A directory of a million files is not
measured in one go but a little at each look, so that one look may not reach the end.

What counts is the disk space of the task's own directories, each file once however many names it
has, and removed files there that the task still has open. The space of its inputs is added to its
limit. Elsewhere on the host (a shared /tmp, the user's home) nobody can say who owns a file: what
is written there does not count.

Directories are entered through descriptors, never through a path: the task may replace a directory
by a symbolic link at any time.
"""

import os
import stat
import time
from typing import Generator, Iterable, List, Optional, Sequence, Set, Tuple

from covey.pilot.slots import process_tree
from covey.pilot.walls import open_files

FIRST_LOOK_SECONDS, LAST_LOOK_SECONDS = 0.1, 1.0
LOOK_MORE_SECONDS = 0.02  # until an unfinished look continues
SLICE_SECONDS = 0.01  # the most time for one look
MOST_DEPTH = 200  # levels of directories; each needs a descriptor
_SLICE_FILES = 200  # files between two checks of the time
_BLOCK_BYTES = 512
_LARGE_BLOCK = 65536
_TOO_DEEP = 1 << 62
_BY_PATH = getattr(os, "O_PATH", 0)  # opens a directory without reading it; only on Linux

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
        """Begin with a task that has these directories; ``inputs`` are the files that were placed
        there, as links or copies."""
        self.end()
        self._limit_bytes = limit_mb << 20
        self._inputs_bytes = sum(_most_bytes(about) for about in map(_look, inputs) if about)
        self._folders = list(folders)
        self._pause = FIRST_LOOK_SECONDS
        self.used_bytes = 0

    def over(self) -> bool:
        """Look, or continue an unfinished look: is the task over its limit?"""
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
        """The message for a task that is over its limit."""
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
    """Yields the bytes counted so far, now and then; at last the total."""
    seen: Set[File] = set()
    used = 0
    for folder in folders:
        for folder_bytes in _measure_one(folder, seen):
            yield used + folder_bytes
        used += folder_bytes
    devices = {about.st_dev for about in map(_look, folders) if about is not None}
    family = process_tree.family(process_tree.children(os.getpid()))
    for _, about in open_files.written(family, open_files.removed):
        if about.st_dev in devices and _identity(about) not in seen:
            seen.add(_identity(about))
            used += about.st_blocks * _BLOCK_BYTES
    yield used


def _measure_one(folder: str, seen: Set[File]) -> Measuring:
    """Yields at least one number; the last one is the total."""
    used = count = 0
    stack: List[Tuple[int, List[str]]] = []  # open directories, and the names still to look at
    try:
        _enter(folder, None, stack)
        while stack:
            fd, names = stack[-1]
            if not names:
                os.close(stack.pop()[0])
                continue
            name = names.pop()
            about = _look(name, fd)
            if about is None or _identity(about) in seen:
                continue
            if about.st_nlink > 1 or stat.S_ISDIR(about.st_mode):
                seen.add(_identity(about))
            used += about.st_blocks * _BLOCK_BYTES
            if stat.S_ISDIR(about.st_mode):
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
    """Push this directory onto the stack; one that cannot be read counts as empty."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
    try:
        fd = os.open(path, flags, dir_fd=above)
    except PermissionError:
        fd = _open_closed(path, flags, above)
    except OSError:
        return  # it has just been removed or replaced
    if fd >= 0:
        stack.append((fd, _names(fd)))


def _open_closed(path: str, flags: int, above: Optional[int]) -> int:
    """Open a directory whose mode the task has changed so that neither of us can read it. Works by
    descriptor: a chmod by path would follow a symbolic link of the task."""
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


def _most_bytes(about: os.stat_result) -> int:
    """What a copy may take on a file system with larger blocks and without holes."""
    return max(about.st_blocks * _BLOCK_BYTES, -(-about.st_size // _LARGE_BLOCK) * _LARGE_BLOCK)


def _identity(about: os.stat_result) -> File:
    return about.st_dev, about.st_ino
