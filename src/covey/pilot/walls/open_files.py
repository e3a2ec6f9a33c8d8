"""Files that processes have open for writing and that no look at a directory would show as theirs:
removed ones, and files in memory.

The rule: only what a process of the task itself writes to is the task's. That a file is new in a
directory that all share (/dev/shm) does not say whose it is.
"""

import os
from typing import Callable, Dict, Iterable, Iterator, Optional, Set, Tuple

SHARED = "/dev/shm"
_REMOVED = " (deleted)"
_ANONYMOUS = "/memfd:"
_WRITABLE = 0o200  # in the mode of a link in /proc/PID/fd
_BLOCKS_IN_KB = 2
_MOST_LOOKED_AT = 10000  # open files, which takes a few hundredths of a second


def removed(target: str) -> bool:
    """Whether a file has no name any more. Those that never had one are in memory."""
    return target.endswith(_REMOVED) and not target.startswith(_ANONYMOUS)


def in_memory(target: str) -> bool:
    return target.startswith((_ANONYMOUS, SHARED + "/"))


def written(
    pids: Iterable[int], wanted: Callable[[str], bool]
) -> Iterator[Tuple[str, os.stat_result]]:
    """The wanted ones of all files that these processes have open for writing; some twice. Of very
    many open files only some are looked at."""
    left = _MOST_LOOKED_AT
    for pid in pids:
        folder = "/proc/{}/fd/".format(pid)
        try:
            names = os.listdir(folder)[:left]
        except OSError:  # it has just ended, or hides
            continue
        left -= len(names)
        for name in names:
            try:
                target = os.readlink(folder + name)
                if wanted(target) and os.lstat(folder + name).st_mode & _WRITABLE:
                    yield target, os.stat(folder + name)
            except OSError:
                continue  # it has just closed the file


class SharedMemory:
    """What one task after the other has in /dev/shm, and in files in memory without a name."""

    def __init__(self) -> None:
        self._before: Set[str] = set()
        self._made: Dict[str, Tuple[int, int]] = {}  # path -> device and inode

    def begin(self) -> None:
        """Just before the task starts: what is there now is not the task's."""
        self._made = {}
        self._before = set(_listed())

    def used_kb(self, pids: Iterable[int]) -> int:
        """What the task that consists of these processes has there now."""
        sizes: Dict[Tuple[int, int], int] = {}
        for target, found in written(pids, in_memory):
            if target.startswith(SHARED + "/") and not target.endswith(_REMOVED):
                if target[len(SHARED) + 1 :].partition("/")[0] in self._before:
                    continue
                self._made[target] = (found.st_dev, found.st_ino)
            sizes[found.st_dev, found.st_ino] = found.st_blocks // _BLOCKS_IN_KB
        for path, identity in self._made.items():
            found_kb = _size_kb(path, identity)
            if found_kb:
                sizes[identity] = found_kb
        return sum(sizes.values())

    def end(self) -> None:
        """The task is over: remove what it made and left."""
        for path, identity in self._made.items():
            try:
                if _size_kb(path, identity) is not None:
                    os.unlink(path)
                    folder = os.path.dirname(path)
                    while folder != SHARED:
                        os.rmdir(folder)
                        folder = os.path.dirname(folder)
            except OSError:
                pass  # somebody else has done it, or has files there too
        self._made = {}


def _listed() -> Iterable[str]:
    try:
        return os.listdir(SHARED)
    except OSError:  # not every system has it
        return ()


def _size_kb(path: str, identity: Tuple[int, int]) -> Optional[int]:
    """None if the file is not there any more, or another one is."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    if (found.st_dev, found.st_ino) != identity:
        return None
    return found.st_blocks // _BLOCKS_IN_KB
