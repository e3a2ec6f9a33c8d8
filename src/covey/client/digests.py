"""The SHA-256 of files, remembered from one command to the next.

If a file's path, size, modification time and inode are the same as before, its digest is the same.
The digest of a file that was changed a moment ago is not remembered, because it might change again
without a new modification time. If the remembered digests are lost, they are computed again.
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
WORTH_BYTES = 1 << 20  # digests of smaller files are not remembered: hashing them is fast
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
    """The state of the file; links are followed. Raises BadFile if it is not a plain file."""
    try:
        state = path.stat()
    except (OSError, ValueError) as error:
        raise BadFile(f"{path}: {getattr(error, 'strerror', '') or error}") from error
    if stat.S_ISDIR(state.st_mode):
        raise BadFile(f"{path} is a directory; name the files in it")
    if not stat.S_ISREG(state.st_mode):
        raise BadFile(f"{path} is not a file but a device, a pipe or a socket")
    return state


class Digests:
    """Computes and remembers digests. `save` keeps them for the next command."""

    def __init__(self, place: Path | None = None) -> None:
        self._place = place or default_place()
        self._entries: dict[str, Digested] | None = None  # by path; None: not read yet
        self._changed = False

    def of(self, path: Path, state: os.stat_result) -> str:
        """The digest of a file, whose state the caller has just read with `look`. Raises BadFile if
        it cannot be read, or changes meanwhile."""
        key = os.path.abspath(path)
        entry = self._remembered().get(key) if state.st_size >= WORTH_BYTES else None
        if entry is not None and entry == _entry(state, entry.digest):
            return entry.digest
        digest = hash_file(path)
        if _entry(look(path), digest) != _entry(state, digest):
            raise BadFile(
                f"{path} is being changed while it is read; try again when nothing writes to it"
            )
        settled = time.time() - state.st_mtime > SETTLED_SECONDS
        if settled and state.st_size >= WORTH_BYTES:
            self._remembered()[key] = _entry(state, digest)
            self._changed = True
        return digest

    def save(self) -> None:
        """Write the digests to disk. Errors, such as a full disk, are ignored."""
        if not self._changed:
            return
        newest = dict(list(self._remembered().items())[-MOST_REMEMBERED:])
        with contextlib.suppress(OSError):
            self._place.parent.mkdir(parents=True, exist_ok=True)
            replace(self._place, msgspec.msgpack.encode(newest), durable=False)
        self._changed = False

    def _remembered(self) -> dict[str, Digested]:
        if self._entries is None:
            try:
                content = self._place.read_bytes()
                self._entries = msgspec.msgpack.decode(content, type=dict[str, Digested])
            except (OSError, msgspec.DecodeError):
                self._entries = {}
        return self._entries


def hash_file(path: Path) -> str:
    digest = hashlib.sha256()
    try:
        with path.open("rb", buffering=0) as file:
            while data := file.read(READ_BYTES):
                digest.update(data)
    except OSError as error:
        raise BadFile(f"{path}: {error.strerror or error}") from error
    return digest.hexdigest()


def _entry(state: os.stat_result, digest: str) -> Digested:
    return Digested(state.st_size, state.st_mtime_ns, state.st_ino, digest)
