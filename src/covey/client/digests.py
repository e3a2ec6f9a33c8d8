"""The SHA-256 of files, remembered from one command to the next.

A file whose place, size, time and inode are the same is taken to be the same file. One that was
changed just before it was read is not remembered: it might change again within the same tick of
the clock. Losing what is remembered costs time only.
"""

import contextlib
import hashlib
import os
import stat
import time
from pathlib import Path

import msgspec
from msgspec import Struct

from covey.core.errors import BadFile
from covey.replacing import replace

READ_BYTES = 1 << 20
WORTH_BYTES = 1 << 20  # smaller ones are hashed faster than looked up
SETTLED_SECONDS = 2.0
MOST_REMEMBERED = 20_000


class Digested(Struct, frozen=True, array_like=True):
    size: int
    changed: int  # in nanoseconds
    inode: int
    digest: str


def default_place() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base) / "covey" / "digests"


def look(path: Path) -> os.stat_result:
    """At the file itself, if it is a link. Raises BadFile unless there is one to read."""
    try:
        found = path.stat()
    except (OSError, ValueError) as error:
        raise BadFile(f"{path}: {getattr(error, 'strerror', '') or error}") from error
    if stat.S_ISDIR(found.st_mode):
        raise BadFile(f"{path} is a directory; name the files in it")
    if not stat.S_ISREG(found.st_mode):
        raise BadFile(f"{path} is not a file but a device, a pipe or a socket")
    return found


class Digests:
    """`save` keeps what was learnt for the next command."""

    def __init__(self, place: Path | None = None) -> None:
        self._place = place or default_place()
        self._known: dict[str, Digested] | None = None
        self._learnt = False

    def of(self, path: Path, found: os.stat_result) -> str:
        """Of this file, which has just been looked at. Raises BadFile if it cannot be read, or
        changes meanwhile."""
        key = os.path.abspath(path)
        known = self._remembered().get(key) if found.st_size >= WORTH_BYTES else None
        if known is not None and known == _entry(found, known.digest):
            return known.digest
        digest = hash_file(path)
        if _entry(look(path), digest) != _entry(found, digest):
            raise BadFile(
                f"{path} is being changed while it is read; try again when nothing writes to it"
            )
        settled = time.time() - found.st_mtime > SETTLED_SECONDS
        if settled and found.st_size >= WORTH_BYTES:
            self._remembered()[key] = _entry(found, digest)
            self._learnt = True
        return digest

    def save(self) -> None:
        """As well as it goes: a full disk, say, does not matter."""
        if not self._learnt:
            return
        newest = dict(list(self._remembered().items())[-MOST_REMEMBERED:])
        with contextlib.suppress(OSError):
            self._place.parent.mkdir(parents=True, exist_ok=True)
            replace(self._place, msgspec.msgpack.encode(newest), durable=False)
        self._learnt = False

    def _remembered(self) -> dict[str, Digested]:
        if self._known is None:
            try:
                content = self._place.read_bytes()
                self._known = msgspec.msgpack.decode(content, type=dict[str, Digested])
            except (OSError, msgspec.DecodeError):
                self._known = {}
        return self._known


def hash_file(path: Path) -> str:
    found = hashlib.sha256()
    try:
        with path.open("rb", buffering=0) as file:
            while data := file.read(READ_BYTES):
                found.update(data)
    except OSError as error:
        raise BadFile(f"{path}: {error.strerror or error}") from error
    return found.hexdigest()


def _entry(found: os.stat_result, digest: str) -> Digested:
    return Digested(found.st_size, found.st_mtime_ns, found.st_ino, digest)
