"""Files by the SHA-256 of their content.

`<folder>/ab/cdef…` is a complete file: verified, durable, never changed. A file that arrives in
pieces is `<folder>/incoming/<digest>`, or `<folder>/incoming/<digest>.<sender>` if senders must not
learn from each other. The rule: a file is called complete only when its content and its name are
synced, and its digest is right. So an upload may break off, be repeated, or come over several
connections at once.

This module does not know who owns a file: see `holdings`.
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
SYNC_BYTES = 64 << 20  # sync each time this many bytes have come, so that the last sync is short
MOST_ARRIVING = 10_000  # files of one sender
RESERVE_BYTES = 64 << 20  # free disk space that is kept for the record

Verified = Callable[[], Callable[[], object]]

_DIGEST = re.compile(r"[0-9a-f]{64}")


class Collected(NamedTuple):
    """Counts of what was removed."""

    files: int
    bytes: int


class _Arriving:
    """A file that is arriving: its bytes so far, and their hash."""

    def __init__(self, path: Path) -> None:
        self.lock = threading.Lock()
        self.path = path
        self.size = 0
        self.hash = hashlib.sha256()
        self.named = False  # the file has its final name, but the name may not be durable


class Blobs:
    """May be used by several threads. All methods may raise StoreFailed; then nothing has
    changed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._guard = threading.Lock()
        self._arriving: dict[str, dict[str, _Arriving]] = {}  # by sender, and digest
        self._unsynced: set[str] = set()  # complete files whose names may not be durable
        self._lasting: set[Path] = set()  # folders whose names are durable
        self._closing = ThreadPoolExecutor(1, "closing")

    # -- reading ---------------------------------------------------------------------------

    def has(self, digest: str) -> bool:
        """Whether the complete file is here, durably."""
        place = self._place(digest)
        return digest not in self._unsynced and os.path.exists(place)

    def missing(self, digests: Iterable[str]) -> list[str]:
        """The digests whose files are not complete here. The other files are renewed: the caller is
        about to use them, so `collect` must not remove them soon."""
        return [digest for digest in dict.fromkeys(digests) if not self.renew(digest)]

    def state(self, digest: str) -> Stored:
        if self.has(digest):
            return Stored(size=os.path.getsize(self._place(digest)), complete=True)
        return self.partial(digest)

    def partial(self, digest: str, sender: str = "") -> Stored:
        """How much has arrived from this sender, whether or not the complete file is here."""
        self._place(digest)
        return Stored(size=_size(self._incoming(digest, sender)), complete=False)

    def path(self, digest: str) -> Path:
        """Raises NotFound if the file is not complete."""
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
        """Whether the complete file is here. Its age starts again at 0 then."""
        place = self._place(digest)
        if digest in self._unsynced:
            return False
        try:
            with self._guard:  # not while `collect` looks at it
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
        """Take a piece of a file of `size` bytes. Bytes that are here already are not written
        again; a piece that would leave a gap is not written. The answer says where to go on. Raises
        BadFile if the complete file does not have this digest; send it again from the start then.

        With a `sender`, only the bytes of this sender count, until it has sent the complete file.
        `verified` is called when the digest is right. It returns a function that is called before
        the file gets its name."""
        self._place(digest)
        if offset < 0 or offset + len(data) > size:
            raise BadFile(
                f"bytes {offset} to {offset + len(data)} are outside of a file of {size} bytes"
            )
        if not sender and self.renew(digest):
            return self.state(digest)
        others = self._arriving.get(sender, {})
        if len(others) >= MOST_ARRIVING and digest not in others:
            raise StoreFailed("too many files are being uploaded at once; try again later")
        with self._locked(digest, sender) as arriving, disk_errors_as_failure():
            if arriving.named or (not sender and os.path.exists(self._place(digest))):
                self._sync_name(digest)  # an earlier sync failed, or another thread is about to
                self._forget(digest, sender)
                return self.state(digest)
            self._recall(arriving)
            if arriving.size > size:
                _discard(arriving)
            if offset <= arriving.size:
                self._append(arriving, data[arriving.size - offset :])
            if arriving.size < size:
                return Stored(size=arriving.size, complete=False)
            self._complete(digest, sender, arriving, verified)
            return Stored(size=size, complete=True)

    def collect(
        self,
        keep: set[str],
        older_than_seconds: float,
        unfinished_seconds: float | None = None,
    ) -> Collected:
        """Remove files that are not in `keep` (with what was derived from them), and broken
        uploads. Files younger than `older_than_seconds` stay: a bag may be about to name them.
        `unfinished_seconds` is the age for broken uploads, if it is another."""
        if unfinished_seconds is None:
            unfinished_seconds = older_than_seconds
        now = time.time()
        removed: list[int] = []
        for path, digest in self._whole():
            if digest not in keep:
                with self._guard, disk_errors_as_failure():
                    removed += remove_older(path, now - older_than_seconds)
        for path in _listed(self.folder / INCOMING):
            digest, sender = path.name[:64], path.name[65:]
            if _DIGEST.fullmatch(digest):
                with self._locked(digest, sender), disk_errors_as_failure():
                    removed += remove_older(path, now - unfinished_seconds)
                    if not path.exists():
                        self._forget(digest, sender)
        self._forget_unbegun()
        return Collected(len(removed), sum(removed))

    def is_empty(self) -> bool:
        """Whether no file has ever been complete here."""
        return not any(len(path.name) == 2 for path in _listed(self.folder))

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
                arriving = others.setdefault(digest, _Arriving(self._incoming(digest, sender)))
            with arriving.lock:
                if self._arriving.get(sender, {}).get(digest) is not arriving:
                    continue  # the file was completed while we waited
                yield arriving
                return

    def _recall(self, arriving: _Arriving) -> None:
        """Read the bytes that an earlier server may have received."""
        if _size(arriving.path) == arriving.size:
            return
        arriving.size, arriving.hash = 0, hashlib.sha256()
        with contextlib.suppress(FileNotFoundError), arriving.path.open("rb") as file:
            while data := file.read(READ_BYTES):
                arriving.hash.update(data)
                arriving.size += len(data)

    def _append(self, arriving: _Arriving, data: bytes) -> None:
        self._check_space(len(data))
        arriving.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(arriving.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            rest = memoryview(data)
            while rest:
                written = os.pwrite(descriptor, rest, arriving.size + len(data) - len(rest))
                rest = rest[written:]
            if (arriving.size + len(data)) // SYNC_BYTES > arriving.size // SYNC_BYTES:
                os.fdatasync(descriptor)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(descriptor, arriving.size)
            raise
        finally:
            os.close(descriptor)
        arriving.hash.update(data)
        arriving.size += len(data)

    def _check_space(self, count: int) -> None:
        disk = os.statvfs(_existing(self.folder))
        reserve = min(RESERVE_BYTES, disk.f_blocks * disk.f_frsize // 20)
        if count and disk.f_bavail * disk.f_frsize - count < reserve:
            raise StoreFailed("the server's disk is full: no more files until there is space")

    def _complete(
        self, digest: str, sender: str, arriving: _Arriving, verified: Verified | None
    ) -> None:
        if arriving.hash.hexdigest() != digest:
            _discard(arriving)
            self._forget(digest, sender)
            raise BadFile(
                f"a file arrived as {digest}, but has another digest: it was damaged, or "
                "changed while it was read. Send it again"
            )
        settled = verified() if verified is not None else None
        place = Path(self._place(digest))
        try:
            sync(arriving.path)
        except OSError:  # the kernel does not try again to write these pages
            _discard(arriving)
            raise
        if place.parent not in self._lasting:
            place.parent.mkdir(mode=0o700, exist_ok=True)
            sync(self.folder)
            self._lasting.add(place.parent)
        if settled is not None:
            settled()
        if not self.has(digest):
            self._unsynced.add(digest)
        arriving.named = True
        self._replace(arriving.path, place)
        self._sync_name(digest)
        self._forget(digest, sender)

    def _replace(self, path: Path, place: Path) -> None:
        """Give the file its name, even if an equal file has it already. Freeing the space of the
        old file takes time, from which the sender could learn that it was there. So another thread
        does that."""
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
        """Forget uploads that have sent nothing yet."""
        with self._guard:
            for sender, others in list(self._arriving.items()):
                for digest, arriving in list(others.items()):
                    if (
                        not arriving.size
                        and not arriving.lock.locked()
                        and not arriving.path.exists()
                    ):
                        del others[digest]
                if not others:
                    del self._arriving[sender]

    def _whole(self) -> Iterator[tuple[Path, str]]:
        """All files except those that are arriving, each with its digest. A derived file has the
        digest of its origin."""
        for folder in _listed(self.folder):
            for path in _listed(folder) if len(folder.name) == 2 else ():
                digest = (folder.name + path.name)[:64]
                if _DIGEST.fullmatch(digest):
                    yield path, digest


def check_digest(digest: str) -> None:
    """Raises BadFile if this is not a digest."""
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
def disk_errors_as_failure() -> Iterator[None]:
    """Turn errors of the disk into StoreFailed."""
    try:
        yield
    except OSError as error:
        raise StoreFailed(f"files cannot be written: {error.strerror or error}") from error


def _discard(arriving: _Arriving) -> None:
    arriving.path.unlink(missing_ok=True)
    arriving.size, arriving.hash = 0, hashlib.sha256()


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _existing(path: Path) -> Path:
    """The directory, or its nearest parent that exists."""
    return next(folder for folder in (path, *path.parents) if folder.exists())


def _listed(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def remove_older(path: Path, before: float) -> list[int]:
    """Remove the file if it is older. Returns a list with its size, or an empty list."""
    try:
        state = path.stat()
        if state.st_mtime > before:
            return []
        path.unlink()
    except FileNotFoundError:  # the file was completed meanwhile
        return []
    return [state.st_size]
