"""Files known by the SHA-256 of their content.

`<folder>/ab/cdef…` is a whole file: verified, durable, never changed. `<folder>/incoming/<digest>`
is one that still arrives, in pieces. The rule: a file that is said to be complete has been synced
with its name, and nothing that arrived is believed before the digest of the whole is right. So an
upload may break off, be repeated, or come from several senders at once.
"""

import contextlib
import hashlib
import os
import re
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from covey.core.errors import BadFile, NotFound, StoreFailed
from covey.wire import Stored

INCOMING = "incoming"
READ_BYTES = 1 << 20
SYNC_BYTES = 64 << 20  # so that the sync at the end has little left to do
MOST_ARRIVING = 10_000
RESERVE_BYTES = 64 << 20  # of the disk are left to the record, whoever sends what

_DIGEST = re.compile(r"[0-9a-f]{64}")


class Collected(NamedTuple):
    """What was removed."""

    files: int
    bytes: int


class _Arriving:
    """The part of a file that is here, and the hash of it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.size = 0
        self.hash = hashlib.sha256()
        self.syncing = False  # it has its name, but perhaps not for good


class Blobs:
    """For several threads. All calls may raise StoreFailed; then nothing has changed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._guard = threading.Lock()
        self._arriving: dict[str, _Arriving] = {}
        self._lasting: set[Path] = set()  # folders whose names are known to be durable

    # -- reading ---------------------------------------------------------------------------

    def has(self, digest: str) -> bool:
        """Whether all of it is here for good."""
        place = self._place(digest)
        one = self._arriving.get(digest)
        return not (one is not None and one.syncing) and place.exists()

    def missing(self, digests: Iterable[str]) -> list[str]:
        """Those of which not all is here. The others are as good as new: whoever asks is about
        to use them, so they are not collected soon."""
        return [digest for digest in dict.fromkeys(digests) if not self._renew(digest)]

    def state(self, digest: str) -> Stored:
        if self.has(digest):
            return Stored(size=self._place(digest).stat().st_size, complete=True)
        return Stored(size=_size(self._incoming(digest)), complete=False)

    def path(self, digest: str) -> Path:
        """Raises NotFound unless it is complete."""
        if not self.has(digest):
            raise NotFound(f"file {digest} is not on this server")
        return self._place(digest)

    def open(self, digest: str) -> BinaryIO:
        return self.path(digest).open("rb")

    def read_file(self, digest: str) -> Iterator[bytes]:
        with self.open(digest) as file:
            while data := file.read(READ_BYTES):
                yield data

    # -- writing ---------------------------------------------------------------------------

    def put_piece(self, digest: str, offset: int, size: int, data: bytes) -> Stored:
        """Some of a file of `size` bytes. What is here already is not written again, and what
        would leave a gap not at all: the answer says where to go on. Raises BadFile when the
        whole is not what its digest says; it must then be sent again from the start."""
        place = self._place(digest)
        if offset < 0 or offset + len(data) > size:
            raise BadFile(f"bytes {offset} to {offset + len(data)} are not in a file of {size}")
        if self._renew(digest):
            return Stored(size=place.stat().st_size, complete=True)
        if len(self._arriving) >= MOST_ARRIVING and digest not in self._arriving:
            raise StoreFailed("too many files arrive at once; try again later")
        with self._locked(digest) as one, _told_as_failure():
            if place.exists():  # another sender was faster, or could not sync its name
                sync(place.parent)
                self._forget(digest)
                return Stored(size=place.stat().st_size, complete=True)
            self._recall(digest, one)
            if one.size > size:
                self._discard(digest, one)
            if offset <= one.size:
                self._append(digest, one, data[one.size - offset :])
            if one.size < size:
                return Stored(size=one.size, complete=False)
            self._complete(digest, one)
            return Stored(size=size, complete=True)

    def collect(self, keep: set[str], older_than_seconds: float) -> Collected:
        """Remove files that nobody uses (with what was derived from them) and broken uploads,
        unless they are so young that their use may still be announced."""
        before = time.time() - older_than_seconds
        removed: list[int] = []
        for path, digest in self._everything():
            if digest in keep:
                continue
            with self._locked(digest), _told_as_failure():
                removed += _remove_older(path, before)
                if not self._incoming(digest).exists():
                    self._forget(digest)
        return Collected(len(removed), sum(removed))

    # -- inside ----------------------------------------------------------------------------

    def _place(self, digest: str) -> Path:
        if not _DIGEST.fullmatch(digest):
            raise BadFile(f"{digest[:80]!r} is not a SHA-256 digest in lower-case hexadecimal")
        return self.folder / digest[:2] / digest[2:]

    def _incoming(self, digest: str) -> Path:
        return self.folder / INCOMING / digest

    def _renew(self, digest: str) -> bool:
        if not self.has(digest):
            return False
        try:
            os.utime(self._place(digest))
        except FileNotFoundError:  # just collected
            return False
        return True

    @contextlib.contextmanager
    def _locked(self, digest: str) -> Iterator[_Arriving]:
        while True:
            with self._guard:
                one = self._arriving.setdefault(digest, _Arriving())
            with one.lock:
                if self._arriving.get(digest) is not one:
                    continue  # it was completed while we waited
                yield one
                return

    def _recall(self, digest: str, one: _Arriving) -> None:
        """An earlier server may have received some of it."""
        path = self._incoming(digest)
        if _size(path) == one.size:
            return
        one.size, one.hash = 0, hashlib.sha256()
        with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
            while data := file.read(READ_BYTES):
                one.hash.update(data)
                one.size += len(data)

    def _append(self, digest: str, one: _Arriving, data: bytes) -> None:
        path = self._incoming(digest)
        self._check_space(len(data))
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            rest = memoryview(data)
            while rest:
                written = os.pwrite(descriptor, rest, one.size + len(data) - len(rest))
                rest = rest[written:]
            if (one.size + len(data)) // SYNC_BYTES > one.size // SYNC_BYTES:
                os.fdatasync(descriptor)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(descriptor, one.size)
            raise
        finally:
            os.close(descriptor)
        one.hash.update(data)
        one.size += len(data)

    def _check_space(self, count: int) -> None:
        found = os.statvfs(_existing(self.folder))
        reserve = min(RESERVE_BYTES, found.f_blocks * found.f_frsize // 20)
        if count and found.f_bavail * found.f_frsize - count < reserve:
            raise StoreFailed("the server's disk is full: no more files until there is space")

    def _complete(self, digest: str, one: _Arriving) -> None:
        if one.hash.hexdigest() != digest:
            self._discard(digest, one)
            self._forget(digest)
            raise BadFile(
                f"what arrived as {digest} has another digest: it was damaged on its way, or "
                "changed while it was read. Send it again"
            )
        path, place = self._incoming(digest), self._place(digest)
        try:
            sync(path)
        except OSError:  # what the kernel could not write it will not try to write again
            self._discard(digest, one)
            raise
        if place.parent not in self._lasting:
            place.parent.mkdir(mode=0o700, exist_ok=True)
            sync(self.folder)
            self._lasting.add(place.parent)
        one.syncing = True
        os.replace(path, place)
        sync(place.parent)
        self._forget(digest)

    def _discard(self, digest: str, one: _Arriving) -> None:
        self._incoming(digest).unlink(missing_ok=True)
        one.size, one.hash = 0, hashlib.sha256()

    def _forget(self, digest: str) -> None:
        with self._guard:
            del self._arriving[digest]

    def _everything(self) -> Iterator[tuple[Path, str]]:
        """All files here, and the digest of the one that each belongs to."""
        for folder in _listed(self.folder):
            start = "" if folder.name == INCOMING else folder.name
            for path in _listed(folder):
                digest = (start + path.name)[:64]
                if _DIGEST.fullmatch(digest):
                    yield path, digest


def sync(path: Path) -> None:
    """Make a file, or the names in a directory, durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _told_as_failure() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreFailed(f"files cannot be written: {error.strerror or error}") from error


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _existing(path: Path) -> Path:
    """The directory, or the one that it will be made in."""
    return next(one for one in (path, *path.parents) if one.exists())


def _listed(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def _remove_older(path: Path, before: float) -> list[int]:
    """Its size, if it was removed."""
    try:
        found = path.stat()
        if found.st_mtime > before:
            return []
        path.unlink()
    except FileNotFoundError:  # it was completed meanwhile
        return []
    return [found.st_size]
