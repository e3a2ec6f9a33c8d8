"""Uploads files to a server: each file once, and only if the server does not have it.

Several threads send, each over its own connection. A lost piece is sent again, and the server says
where to go on. So nothing is sent twice after a broken connection, a restart of the server, or a
second `covey submit`.
"""

import hashlib
import os
import queue
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from covey.client.client import Client
from covey.client.digests import Digests, hash_file, look
from covey.core.errors import BadFile, Refused, ServerAway
from covey.core.record.model import Blob
from covey.wire import Stored

PIECE_BYTES = 4 << 20
THREADS = 4
ASKED_AT_ONCE = 10_000
MOST_STANDSTILLS = 10  # answers in a row without progress
MOST_DAMAGED = 2
UNPROCESSABLE = 422  # HTTP status: the whole file arrived, with another digest


class Readable(Protocol):
    """Something that several threads can read like a file."""

    def read(self, start: int, count: int) -> bytes: ...


Source = Path | bytes | Readable
Progress = Callable[[int, int], None]  # bytes sent, bytes in all


def _ignore(done: int, total: int) -> None:
    """Show nothing."""


class Upload:
    """Name the files with `add`, then `send` them. Must not be used by several threads."""

    def __init__(
        self, client: Client, progress: Progress = _ignore, digests: Digests | None = None
    ) -> None:
        self._client = client
        self._progress = progress
        self._digests = digests or Digests()
        self._sources: dict[str, Source] = {}
        self._sizes: dict[str, int] = {}

    def add(self, source: Path | bytes) -> Blob:
        """The digest and size of the file, by which the server knows it. Raises BadFile if it
        cannot be read."""
        blob = describe(source, self._digests)
        self.add_known(blob, source)
        return blob

    def add_known(self, blob: Blob, source: Source) -> None:
        """Add a file whose blob is known already."""
        self._sources.setdefault(blob.digest, source)
        self._sizes[blob.digest] = blob.size

    def missing(self) -> list[Blob]:
        """The files that the server does not have."""
        digests = list(self._sources)
        missing: list[str] = []
        for start in range(0, len(digests), ASKED_AT_ONCE):
            missing += self._client.missing(digests[start : start + ASKED_AT_ONCE])
        return [Blob(digest, self._sizes[digest]) for digest in missing]

    def send(self) -> int:
        """Send the missing files, and return their bytes. All files are durable at the server when
        this returns. Raises BadFile for a file that changed, and the errors of the client."""
        self._digests.save()
        missing = self.missing()
        _Sending(self._client, missing, self._sources, self._progress).run()
        return sum(blob.size for blob in missing)


def describe(source: Path | bytes, digests: Digests) -> Blob:
    if isinstance(source, bytes):
        return Blob(hashlib.sha256(source).hexdigest(), len(source))
    state = look(source)
    return Blob(digests.of(source, state), state.st_size, bool(state.st_mode & 0o111))


class _Sending:
    """One run of the sending threads."""

    def __init__(
        self, client: Client, blobs: list[Blob], sources: dict[str, Source], progress: Progress
    ) -> None:
        self._client = client
        self._sources = sources
        self._progress = progress
        self._total = sum(blob.size for blob in blobs)
        self._there = dict.fromkeys((blob.digest for blob in blobs), 0)
        self._done = 0
        self._waiting: queue.SimpleQueue[Blob] = queue.SimpleQueue()
        for blob in sorted(blobs, key=lambda blob: -blob.size):  # the longest first
            self._waiting.put(blob)
        self._guard = threading.Lock()
        self._told: set[str] = set()
        self._failed: list[Exception] = []

    def run(self) -> None:
        count = min(THREADS, self._waiting.qsize())
        threads = [threading.Thread(target=self._work, daemon=True) for _ in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self._failed:
            raise self._failed[0]

    def _work(self) -> None:
        client = self._another_client()
        try:
            while not self._failed:
                self._send(client, self._waiting.get_nowait())
        except queue.Empty:
            pass
        except Exception as error:
            self._failed.append(error)
        finally:
            client.close()

    def _another_client(self) -> Client:
        own = self._client.connection
        return Client(
            *own.endpoint,
            patience_seconds=own.patience_seconds,
            timeout_seconds=own.timeout_seconds,
            find=own.find,
            tell=self._tell_once,
        )

    def _tell_once(self, text: str) -> None:
        with self._guard:
            news = text not in self._told
            self._told.add(text)
        if news:
            self._client.connection.tell(text)

    def _send(self, client: Client, blob: Blob) -> None:
        source = self._sources[blob.digest]
        for _ in range(MOST_DAMAGED + 1):
            try:
                with _Opened(source) as opened:
                    return self._send_pieces(client, blob, opened)
            except Refused as error:
                if error.status != UNPROCESSABLE:
                    raise
                refusal = error
            self._note(blob, 0)
            if isinstance(source, Path) and hash_file(source) != blob.digest:
                raise _changed(source)
        raise refusal

    def _send_pieces(self, client: Client, blob: Blob, opened: "_Opened") -> None:
        stored = Stored(size=0, complete=False)
        if blob.size > PIECE_BYTES:
            stored = client.file_state(blob.digest)
        standstills = 0
        while not stored.complete and not self._failed:
            start = stored.size
            data = opened.read(start, min(PIECE_BYTES, blob.size - start))
            stored = client.put_piece(blob.digest, start, blob.size, data)
            self._note(blob, stored.size)
            standstills = standstills + 1 if stored.size <= start else 0
            if standstills > MOST_STANDSTILLS:
                raise ServerAway(f"the server accepts no more of a file after {start:,} bytes")

    def _note(self, blob: Blob, there: int) -> None:
        with self._guard:
            self._done += there - self._there[blob.digest]
            self._there[blob.digest] = there
            self._progress(self._done, self._total)


class _Opened:
    """An open source. Raises BadFile if a file cannot be read, or has become shorter."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._descriptor = -1

    def __enter__(self) -> "_Opened":
        if isinstance(self._source, Path):
            try:
                self._descriptor = os.open(self._source, os.O_RDONLY | os.O_CLOEXEC)
            except OSError as error:
                raise BadFile(f"{self._source}: {error.strerror}") from error
        return self

    def __exit__(self, *_: object) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)

    def read(self, start: int, count: int) -> bytes:
        if isinstance(self._source, bytes):
            return self._source[start : start + count]
        if not isinstance(self._source, Path):
            return self._source.read(start, count)
        try:
            data = os.pread(self._descriptor, count, start)
        except OSError as error:
            raise BadFile(f"{self._source}: {error.strerror}") from error
        if len(data) < count:
            raise _changed(self._source)
        return data


def _changed(source: Path) -> BadFile:
    return BadFile(
        f"{source} changed while it was uploaded; submit again when nothing writes to it"
    )
