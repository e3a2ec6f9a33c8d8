"""Files known by the SHA-256 of their content.

`<folder>/ab/cdef…` is a whole file: verified, durable, never changed. A file that still arrives, in
pieces, is `<folder>/incoming/<digest>`, or `<folder>/incoming/<digest>.<sender>` where senders must
not learn from each other. The rule: a file that is said to be complete has been synced with its
name, and nothing that arrived is believed before the digest of the whole is right. So an upload may
break off, be repeated, or come from several connections at once.

Whose a file is, is not known here: see `holdings`.
"""

import contextlib
import hashlib
import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO, NamedTuple

from covey.core.errors import BadFile, NotFound, StoreFailed
from covey.wire import Stored

INCOMING = "incoming"
READ_BYTES = 1 << 20
SYNC_BYTES = 64 << 20  # so that the sync at the end has little left to do
MOST_ARRIVING = 10_000  # of one sender
RESERVE_BYTES = 64 << 20  # of the disk are left to the record, whoever sends what

Verified = Callable[[], Callable[[], object]]

_DIGEST = re.compile(r"[0-9a-f]{64}")


class Collected(NamedTuple):
    """What was removed."""

    files: int
    bytes: int


class _Arriving:
    """The part of a file that is here, and the hash of it."""

    def __init__(self, path: Path) -> None:
        self.lock = threading.Lock()
        self.path = path
        self.size = 0
        self.hash = hashlib.sha256()
        self.named = False  # it has its name as a whole file, but perhaps not for good


class Blobs:
    """For several threads. All calls may raise StoreFailed; then nothing has changed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._guard = threading.Lock()
        self._arriving: dict[str, dict[str, _Arriving]] = {}  # by sender, and digest
        self._unsynced: set[str] = set()  # whole files whose names are perhaps not durable
        self._lasting: set[Path] = set()  # folders whose names are known to be durable
        self._closing = ThreadPoolExecutor(1, "closing")

    # -- reading ---------------------------------------------------------------------------

    def has(self, digest: str) -> bool:
        """Whether all of it is here for good."""
        place = self._place(digest)
        return digest not in self._unsynced and os.path.exists(place)

    def missing(self, digests: Iterable[str]) -> list[str]:
        """Those of which not all is here. The others are as good as new: whoever asks is about
        to use them, so they are not collected soon."""
        return [digest for digest in dict.fromkeys(digests) if not self.renew(digest)]

    def state(self, digest: str) -> Stored:
        if self.has(digest):
            return Stored(size=os.path.getsize(self._place(digest)), complete=True)
        return self.partial(digest)

    def partial(self, digest: str, sender: str = "") -> Stored:
        """How much of it has arrived from this sender, whether or not the whole is here."""
        self._place(digest)
        return Stored(size=_size(self._incoming(digest, sender)), complete=False)

    def path(self, digest: str) -> Path:
        """Raises NotFound unless it is complete."""
        if not self.has(digest):
            raise NotFound(f"file {digest} is not on this server")
        return Path(self._place(digest))

    def open(self, digest: str) -> BinaryIO:
        return self.path(digest).open("rb")

    def read_file(self, digest: str) -> Iterator[bytes]:
        with self.open(digest) as file:
            while data := file.read(READ_BYTES):
                yield data

    def renew(self, digest: str) -> bool:
        """Whether all of it is here for good; then it is as good as new."""
        place = self._place(digest)
        if digest in self._unsynced:
            return False
        try:
            with self._guard:  # not while it is looked at as garbage
                os.utime(place)
        except FileNotFoundError:
            return False
        return True

    # -- writing ---------------------------------------------------------------------------

    def put_piece(
        self,
        digest: str,
        offset: int,
        size: int,
        data: bytes,
        sender: str = "",
        verified: Verified | None = None,
    ) -> Stored:
        """Some of a file of `size` bytes. What is here already is not written again, and what
        would leave a gap not at all: the answer says where to go on. Raises BadFile when the
        whole is not what its digest says; it must then be sent again from the start.

        With a `sender` only what this sender sent counts, until it has sent all of the file;
        `verified` is called when that is certain. What it returns is called, and waited for,
        before the file has its name."""
        self._place(digest)
        if offset < 0 or offset + len(data) > size:
            raise BadFile(
                f"bytes {offset} to {offset + len(data)} are outside of a file of {size} bytes"
            )
        if not sender and self.renew(digest):
            return self.state(digest)
        others = self._arriving.get(sender, {})
        if len(others) >= MOST_ARRIVING and digest not in others:
            raise StoreFailed("too many files arrive at once; try again later")
        with self._locked(digest, sender) as one, told_as_failure():
            if one.named or (not sender and os.path.exists(self._place(digest))):
                self._sync_name(digest)  # which could not be synced before, or just is elsewhere
                self._forget(digest, sender)
                return self.state(digest)
            self._recall(one)
            if one.size > size:
                _discard(one)
            if offset <= one.size:
                self._append(one, data[one.size - offset :])
            if one.size < size:
                return Stored(size=one.size, complete=False)
            self._complete(digest, sender, one, verified)
            return Stored(size=size, complete=True)

    def collect(
        self,
        keep: set[str],
        older_than_seconds: float,
        unfinished_seconds: float | None = None,
    ) -> Collected:
        """Remove files that nobody uses (with what was derived from them) and broken uploads,
        unless they are so young that their use may still be announced. `unfinished_seconds`: the
        age at which uploads that were broken off are removed, if it is another."""
        if unfinished_seconds is None:
            unfinished_seconds = older_than_seconds
        now = time.time()
        removed: list[int] = []
        for path, digest in self._whole():
            if digest not in keep:
                with self._guard, told_as_failure():
                    removed += remove_older(path, now - older_than_seconds)
        for path in _listed(self.folder / INCOMING):
            digest, sender = path.name[:64], path.name[65:]
            if _DIGEST.fullmatch(digest):
                with self._locked(digest, sender), told_as_failure():
                    removed += remove_older(path, now - unfinished_seconds)
                    if not path.exists():
                        self._forget(digest, sender)
        self._forget_unbegun()
        return Collected(len(removed), sum(removed))

    def is_empty(self) -> bool:
        """Whether no file has ever been complete here."""
        return not any(len(one.name) == 2 for one in _listed(self.folder))

    # -- inside ----------------------------------------------------------------------------

    def _place(self, digest: str) -> str:
        check_digest(digest)
        return f"{self.folder}/{digest[:2]}/{digest[2:]}"

    def _incoming(self, digest: str, sender: str) -> Path:
        return self.folder / INCOMING / (f"{digest}.{sender}" if sender else digest)

    @contextlib.contextmanager
    def _locked(self, digest: str, sender: str = "") -> Iterator[_Arriving]:
        while True:
            with self._guard:
                others = self._arriving.setdefault(sender, {})
                one = others.setdefault(digest, _Arriving(self._incoming(digest, sender)))
            with one.lock:
                if self._arriving.get(sender, {}).get(digest) is not one:
                    continue  # it was completed while we waited
                yield one
                return

    def _recall(self, one: _Arriving) -> None:
        """An earlier server may have received some of it."""
        if _size(one.path) == one.size:
            return
        one.size, one.hash = 0, hashlib.sha256()
        with contextlib.suppress(FileNotFoundError), one.path.open("rb") as file:
            while data := file.read(READ_BYTES):
                one.hash.update(data)
                one.size += len(data)

    def _append(self, one: _Arriving, data: bytes) -> None:
        self._check_space(len(data))
        one.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(one.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
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

    def _complete(
        self, digest: str, sender: str, one: _Arriving, verified: Verified | None
    ) -> None:
        if one.hash.hexdigest() != digest:
            _discard(one)
            self._forget(digest, sender)
            raise BadFile(
                f"a file arrived as {digest}, but has another digest: it was damaged, or "
                "changed while it was read. Send it again"
            )
        settled = verified() if verified is not None else None
        place = Path(self._place(digest))
        try:
            sync(one.path)
        except OSError:  # what the kernel could not write it will not try to write again
            _discard(one)
            raise
        if place.parent not in self._lasting:
            place.parent.mkdir(mode=0o700, exist_ok=True)
            sync(self.folder)
            self._lasting.add(place.parent)
        if settled is not None:
            settled()
        if not self.has(digest):
            self._unsynced.add(digest)
        one.named = True
        self._replace(one.path, place)
        self._sync_name(digest)
        self._forget(digest, sender)

    def _replace(self, path: Path, place: Path) -> None:
        """Also where an equal file is: to give back the space of that one takes a time from which
        the sender could tell that it was there. So another thread does it."""
        try:
            old = os.open(place, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            old = -1
        os.replace(path, place)
        if old >= 0:
            self._closing.submit(os.close, old)

    def _sync_name(self, digest: str) -> None:
        sync(Path(self._place(digest)).parent)
        self._unsynced.discard(digest)

    def _forget(self, digest: str, sender: str = "") -> None:
        with self._guard:
            del self._arriving[sender][digest]

    def _forget_unbegun(self) -> None:
        """Uploads of which not a byte ever came."""
        with self._guard:
            for sender, others in list(self._arriving.items()):
                for digest, one in list(others.items()):
                    if not one.size and not one.lock.locked() and not one.path.exists():
                        del others[digest]
                if not others:
                    del self._arriving[sender]

    def _whole(self) -> Iterator[tuple[Path, str]]:
        """All files here but those that arrive, and the digest of the one that each belongs to."""
        for folder in _listed(self.folder):
            for path in _listed(folder) if len(folder.name) == 2 else ():
                digest = (folder.name + path.name)[:64]
                if _DIGEST.fullmatch(digest):
                    yield path, digest


def check_digest(digest: str) -> None:
    """Raises BadFile."""
    if not _DIGEST.fullmatch(digest):
        raise BadFile(f"{digest[:80]!r} is not a SHA-256 digest in lower-case hexadecimal")


def sync(path: Path) -> None:
    """Make a file, or the names in a directory, durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def told_as_failure() -> Iterator[None]:
    """What the disk refuses, in our words."""
    try:
        yield
    except OSError as error:
        raise StoreFailed(f"files cannot be written: {error.strerror or error}") from error


def _discard(one: _Arriving) -> None:
    one.path.unlink(missing_ok=True)
    one.size, one.hash = 0, hashlib.sha256()


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


def remove_older(path: Path, before: float) -> list[int]:
    """Its size, if it was removed."""
    try:
        found = path.stat()
        if found.st_mtime > before:
            return []
        path.unlink()
    except FileNotFoundError:  # it was completed meanwhile
        return []
    return [found.st_size]
