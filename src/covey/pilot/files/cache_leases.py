"""Which cached files the pilots of this host use, and which things only one pilot may have.

The rule: a dead process holds nothing. Every claim is a kernel lock (`flock`) on a file that a
living process has open. On a file system without such locks every claim is granted: then the worst
case is that two pilots of a host fetch the same file.
"""

import errno
import fcntl
import os
from typing import Dict, List, Optional, Sequence, Set

COMPACT_BYTES = 1 << 18


class CacheLock:
    """An exclusive or shared claim to a path, until `close` or the end of the process."""

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self.fd = fd

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def remove(self) -> None:
        """Give up the claim and delete the file, for files that only one process ever uses."""
        try:
            os.unlink(self.path)
        except OSError:
            pass
        self.close()


def lock(path: str, shared: bool = False, wait: bool = False) -> Optional[CacheLock]:
    """The claim; None if somebody else has it and `wait` is false."""
    while True:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        flags = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        try:
            fcntl.flock(fd, flags if wait else flags | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                os.close(fd)
                return None
        try:
            if os.path.samestat(os.fstat(fd), os.stat(path)):
                return CacheLock(path, fd)
        except FileNotFoundError:
            pass  # its last owner removed the file: our lock is on a file without a name
        os.close(fd)


class Leases:
    """The names of files that this pilot uses, in a file that other pilots read before they delete
    cached files.

    Call `hold` and `drop` under a shared `guard`; then check whether the file is there. Delete
    only under an exclusive guard, and only files that are not in `everyone`. Not thread-safe."""

    def __init__(self, directory: str, key: str) -> None:
        os.makedirs(directory, 0o700, exist_ok=True)
        self._directory = directory
        self._guard = os.path.join(directory, "guard")
        self._counts: Dict[str, int] = {}
        self._size, self._most = 0, COMPACT_BYTES
        mine = lock(os.path.join(directory, key + ".lease"))
        if mine is None:
            raise OSError(errno.EEXIST, "another pilot has the key %s" % key)
        self._mine = mine

    def guard(self, shared: bool) -> CacheLock:
        guard = lock(self._guard, shared, wait=True)
        assert guard is not None  # it waited
        return guard

    def hold(self, name: str) -> None:
        self._counts[name] = self._counts.get(name, 0) + 1
        if self._counts[name] == 1:
            self._note("+" + name)

    def drop(self, name: str) -> None:
        left = self._counts.get(name, 0) - 1
        if left > 0:
            self._counts[name] = left
        elif left == 0:
            del self._counts[name]
            self._note("-" + name)

    def holds(self, name: str) -> bool:
        return name in self._counts

    def everyone(self) -> Set[str]:
        """The names that any living pilot uses. Lease files of dead pilots are removed."""
        used = set(self._counts)
        for entry in os.listdir(self._directory):
            path = os.path.join(self._directory, entry)
            if not entry.endswith(".lease") or path == self._mine.path:
                continue
            claim = lock(path)
            if claim is not None:
                claim.remove()
            else:
                used |= _read(path)
        return used

    def close(self) -> None:
        self._mine.remove()

    def _note(self, line: str) -> None:
        lines, full = [line], self._size > self._most
        if full:
            lines = ["+" + name for name in self._counts]
            os.ftruncate(self._mine.fd, 0)
            self._size = 0
        data = "".join(entry + "\n" for entry in lines).encode("utf-8")
        os.write(self._mine.fd, data)
        self._size += len(data)
        if full:
            self._most = max(COMPACT_BYTES, 2 * self._size)


def _read(path: str) -> Set[str]:
    used: Set[str] = set()
    try:
        with open(path, encoding="utf-8") as file:
            for line in file:
                (used.add if line[0] == "+" else used.discard)(line[1:].rstrip("\n"))
    except OSError:
        pass  # the pilot that owned this file has just ended
    return used


def claim(directory: str, kind: str, wanted: Sequence[str], most: int) -> Dict[str, CacheLock]:
    """Lock up to `most` of the `wanted` things of this host that no other pilot has, in order."""
    os.makedirs(directory, 0o700, exist_ok=True)
    claims: Dict[str, CacheLock] = {}
    for name in wanted:
        if len(claims) >= most:
            break
        path = os.path.join(directory, "%s-%s" % (kind, _plain(name)))
        claimed = lock(path)
        if claimed is not None:
            claims[name] = claimed
    return claims


def _plain(name: str) -> str:
    kept: List[str] = [each if each.isalnum() or each in "-_" else "_" for each in name]
    return "".join(kept)
