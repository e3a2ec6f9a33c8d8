"""The lock that lets one server at a time use a record: an exclusive `flock` on the file `lock`
beside the record. The kernel releases it when its holder dies. The file describes the holder for
people and clients; the description is valid only while the lock is held.
"""

import errno
import fcntl
import os
import socket
import time
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec
from msgspec import Struct

from covey.core.errors import StoreFailed, StoreGone, StoreHeld

NAME = "lock"
_TRIES = 10  # a client that looks at the lock holds it for an instant
_PAUSE_SECONDS = 0.02


class Holder(Struct, frozen=True, kw_only=True):
    pid: int
    host: str
    since: float
    command: str = ""
    address: str = ""  # empty until it listens

    def __str__(self) -> str:
        if not self.pid:
            return "another process"
        since = datetime.fromtimestamp(self.since).strftime("%Y-%m-%d %H:%M:%S")
        where = f", at {self.address}" if self.address else ""
        what = f" ({self.command})" if self.command else ""
        return f"process {self.pid} on {self.host}{what} since {since}{where}"


class Lock:
    """Held from its creation to `release`, or to the end of the process. Raises StoreHeld."""

    def __init__(self, directory: Path, command: str = "") -> None:
        self.path = directory / NAME
        try:
            self._file = _take(self.path)
        except OSError as error:
            raise StoreFailed(f"{self.path} cannot be locked: {error}") from error
        self.holder = Holder(
            pid=os.getpid(), host=socket.gethostname(), since=time.time(), command=command
        )
        self._write()

    def announce(self, address: str) -> None:
        """Let clients know where the holder listens."""
        self.holder = msgspec.structs.replace(self.holder, address=address)
        self._write()

    def check(self) -> None:
        """Raises StoreGone if the locked file is no longer the one at its path."""
        if self._file >= 0 and not _is_at(self._file, self.path):
            raise StoreGone(str(self.path), "removed or replaced")

    def release(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _write(self) -> None:
        text = msgspec.json.encode(self.holder) + b"\n"
        try:
            os.pwrite(self._file, text, 0)
            os.ftruncate(self._file, len(text))
        except OSError as error:  # with a full disk, a server must still be able to read
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise StoreFailed(f"{self.path} cannot be written: {error}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()


def holder(directory: Path) -> Holder | None:
    """The process that holds the record in `directory`, or None. A holder that has not described
    itself yet is process 0."""
    path = directory / NAME
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreFailed(f"{path} cannot be read: {error}") from error
    try:
        for _ in range(_TRIES):
            if _try(file, fcntl.LOCK_SH):
                return None
            described = _read(file)
            if described is not None:
                return described
            time.sleep(_PAUSE_SECONDS)
    finally:
        os.close(file)
    return Holder(pid=0, host="", since=0.0)


def _take(path: Path) -> int:
    described: Holder | None = None
    for _ in range(_TRIES):
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        locked = False
        try:
            locked = _try(file, fcntl.LOCK_EX) and _is_at(file, path)
            described = _read(file)
        finally:
            if not locked:
                os.close(file)
        if locked:
            return file
        time.sleep(_PAUSE_SECONDS)
    raise StoreHeld(str(path.parent), str(described or "another process"))


def _try(file: int, how: int) -> bool:
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_at(file: int, path: Path) -> bool:
    """Whether the open file is the one at the path. It may have been removed before it was
    locked."""
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except (FileNotFoundError, NotADirectoryError):
        return False


def _read(file: int) -> Holder | None:
    try:
        return msgspec.json.decode(os.pread(file, 65536, 0), type=Holder)
    except msgspec.DecodeError:
        return None
