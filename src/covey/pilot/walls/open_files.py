"""Files that processes have open for writing and that no listing of a directory would show as
theirs: removed files, and files in memory.

The rule: a file belongs to the task only if a process of the task itself writes to it. In a shared
directory (/dev/shm), nobody can say who owns a new file.
"""

import os
from typing import Callable, Dict, Iterable, Iterator, Optional, Set, Tuple

SHARED = "/dev/shm"
_REMOVED = " (deleted)"
_ANONYMOUS = "/memfd:"
_WRITABLE = 0o200  # in the mode of a link in /proc/PID/fd
_BLOCKS_IN_KB = 2
_MOST_LOOKED_AT = 10000  # open files; that takes a few hundredths of a second


def removed(target: str) -> bool:
    """Whether a file has no name any more. A file that never had one is in memory."""
    return target.endswith(_REMOVED) and not target.startswith(_ANONYMOUS)


def in_memory(target: str) -> bool:
    return target.startswith((_ANONYMOUS, SHARED + "/"))


def written(
    pids: Iterable[int], wanted: Callable[[str], bool]
) -> Iterator[Tuple[str, os.stat_result]]:
    """The wanted files that these processes have open for writing; some of them twice. If there are
    very many open files, only some are checked."""
    left = _MOST_LOOKED_AT
    for pid in pids:
        folder = "/proc/{}/fd/".format(pid)
        try:
            names = os.listdir(folder)[:left]
        except OSError:  # the process has just ended, or hides its files
            continue
        left -= len(names)
        for name in names:
            try:
                target = os.readlink(folder + name)
                if wanted(target) and os.lstat(folder + name).st_mode & _WRITABLE:
                    yield target, os.stat(folder + name)
            except OSError:
                continue  # the process has just closed the file


class SharedMemory:
    """What a slot's tasks have in /dev/shm and in unnamed files in memory, one after the other."""

    def __init__(self) -> None:
        self._before: Set[str] = set()
        self._made: Dict[str, Tuple[int, int]] = {}  # path -> device and inode

    def begin(self) -> None:
        """Call it just before the task starts: what is there now does not belong to the task."""
        self._made = {}
        self._before = set(_listed())

    def used_kb(self, pids: Iterable[int]) -> int:
        """What the task with these processes has there now."""
        sizes: Dict[Tuple[int, int], int] = {}
        for target, about in written(pids, in_memory):
            if target.startswith(SHARED + "/") and not target.endswith(_REMOVED):
                if target[len(SHARED) + 1 :].partition("/")[0] in self._before:
                    continue
                self._made[target] = (about.st_dev, about.st_ino)
            sizes[about.st_dev, about.st_ino] = about.st_blocks // _BLOCKS_IN_KB
        for path, identity in self._made.items():
            size_kb = _size_kb(path, identity)
            if size_kb:
                sizes[identity] = size_kb
        return sum(sizes.values())

    def end(self) -> None:
        """The task is over: remove the files that it made and left."""
        for path, identity in self._made.items():
            try:
                if _size_kb(path, identity) is not None:
                    os.unlink(path)
                    folder = os.path.dirname(path)
                    while folder != SHARED:
                        os.rmdir(folder)
                        folder = os.path.dirname(folder)
            except OSError:
                pass  # somebody else has removed it, or has files there too
        self._made = {}


def _listed() -> Iterable[str]:
    try:
        return os.listdir(SHARED)
    except OSError:  # not every system has this directory
        return ()


def _size_kb(path: str, identity: Tuple[int, int]) -> Optional[int]:
    """None if the file is gone or is another one now."""
    try:
        about = os.lstat(path)
    except OSError:
        return None
    if (about.st_dev, about.st_ino) != identity:
        return None
    return about.st_blocks // _BLOCKS_IN_KB
