"""The bytes of large calls that wait to be sent.

The rule: memory stays bounded, however many calls wait. Each content is kept once. What is too much
for memory is in temporary files without a name, which disappear with this process. When the server
has a call, or the call is not needed any more, its bytes are dropped.
"""

import os
import tempfile
import threading
from typing import BinaryIO

from covey.client.client import Client
from covey.client.upload import Upload
from covey.core.record.model import Blob
from covey.executor.packing import Large

MOST_MEMORY = 128 << 20  # bytes, except for a single call
REEL_BYTES = 1 << 30


class Dropped(Exception):
    """Nobody needs this call any more."""


class _Reel:
    """A temporary file that is written once, and removed when nothing in it is needed."""

    def __init__(self) -> None:
        self.file: BinaryIO = tempfile.TemporaryFile(prefix="covey-", buffering=0)  # noqa: SIM115
        self.size = 0
        self.users = 0

    def append(self, data: bytes) -> int:
        """Returns where the data begins. Raises OSError; then nothing has changed."""
        start, rest = self.size, memoryview(data)
        while rest:
            rest = rest[os.pwrite(self.file.fileno(), rest, start + len(data) - len(rest)) :]
        self.size += len(data)
        self.users += 1
        return start


class _StockedCall:
    """The bytes of one call, as `Upload` reads them."""

    def __init__(self, data: bytes, reel: _Reel | None, place: int) -> None:
        self.users = 1
        self.dropped = False
        self.data = data
        self.reel = reel
        self.place = place

    def read(self, start: int, count: int) -> bytes:
        """Raises Dropped."""
        if self.dropped:
            raise Dropped
        if self.reel is None:
            return self.data[start : start + count]
        return os.pread(self.reel.file.fileno(), count, self.place + start)


class Stock:
    """Thread-safe."""

    def __init__(self, most_memory: int = MOST_MEMORY, reel_bytes: int = REEL_BYTES) -> None:
        self._most_memory = most_memory
        self._reel_bytes = reel_bytes
        self._guard = threading.Lock()
        self._kept: dict[str, _StockedCall] = {}
        self._reel: _Reel | None = None  # the one that is being written
        self.memory = 0  # bytes

    def put(self, large: Large) -> Blob:
        """Keep a call until `send` or `drop`. Raises OSError if there is no space for temporary
        files."""
        blob = large.blob
        with self._guard:
            kept = self._kept.get(blob.digest)
            if kept is not None:
                kept.users += 1
            elif not self.memory or self.memory + blob.size <= self._most_memory:
                self.memory += blob.size
                self._kept[blob.digest] = _StockedCall(large.data, None, 0)
            else:
                reel = self._reel
                if reel is None or reel.size >= self._reel_bytes:
                    reel = self._reel = _Reel()
                self._kept[blob.digest] = _StockedCall(b"", reel, reel.append(large.data))
        return blob

    def send(self, client: Client, blobs: list[Blob]) -> None:
        """Upload the calls and drop them. When this returns, they are durable at the server.
        Raises Dropped, and whatever the client raises."""
        upload = Upload(client)
        for blob in blobs:
            kept = self._kept.get(blob.digest)
            if kept is None:
                raise Dropped
            upload.add_known(blob, kept)
        upload.send()
        for blob in blobs:
            self.drop(blob)

    def drop(self, blob: Blob) -> None:
        with self._guard:
            kept = self._kept.get(blob.digest)
            if kept is None:  # everything was dropped
                return
            kept.users -= 1
            if kept.users:
                return
            del self._kept[blob.digest]
            reel = kept.reel
            if reel is None:
                self.memory -= blob.size
                return
            reel.users -= 1
            if not reel.users:
                reel.file.close()
                self._reel = None if self._reel is reel else self._reel

    def clear(self) -> None:
        """Drop everything: nothing more will be sent, not even the rest of a running upload."""
        with self._guard:
            for kept in self._kept.values():
                kept.dropped = True
            self._kept.clear()
            self._reel = None
            self.memory = 0

    def __len__(self) -> int:
        return len(self._kept)
