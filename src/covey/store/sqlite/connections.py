"""Connections to the SQLite file, and what their errors mean.

One connection writes. It commits with `synchronous=FULL`: when a commit has returned, it survives a
loss of power. Any number of connections read. They never write a page, and never keep a transaction
open between calls, so that the write-ahead log can always be emptied.
"""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from covey.core.errors import StoreError, StoreFailed, TookTooLong

BUSY_SECONDS = 10.0
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
CACHE_KB = 16_000
WAL_PAGES = 1000  # the log is written back to the file each time it has grown by this many pages
WAL_KEPT_BYTES = 16 * 2**20


@contextmanager
def failing(path: Path, what: str) -> Iterator[None]:
    """Turn errors of SQLite and of the system into StoreFailed, which may be temporary, or into
    StoreError, which is not. An interrupted query raises TookTooLong. A violated constraint is our
    bug, and raises AssertionError."""
    try:
        yield
    except sqlite3.IntegrityError as error:
        raise AssertionError(f"{path}: the record would contradict itself: {error}") from error
    except (sqlite3.Error, OSError) as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code == sqlite3.SQLITE_INTERRUPT:
            raise TookTooLong("this took too long, and was stopped") from error
        if code in _DAMAGED:
            raise StoreError(
                f"{path} is damaged: {error}. Move it away to start with an empty record, "
                "or restore a copy of the whole directory."
            ) from error
        raise StoreFailed(f"{path} cannot be {what}: {error}") from error


def writing(path: Path) -> sqlite3.Connection:
    """The one connection that writes. Makes the file if it is missing. Check that the file is a
    record of covey (`schema.version`) before `tune`."""
    _make(path)
    return _connect(path, "rw")


def tune(connection: sqlite3.Connection, path: Path, *, wal: bool) -> None:
    """Choose the journal, and make every commit durable."""
    wanted = "wal" if wal else "delete"
    mode = connection.execute(f"PRAGMA journal_mode = {wanted}").fetchone()[0]
    if mode != wanted:
        raise StoreFailed(f"{path} cannot be opened: it stays in journal mode {mode}")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(f"PRAGMA wal_autocheckpoint = {WAL_PAGES}")
    connection.execute(f"PRAGMA journal_size_limit = {WAL_KEPT_BYTES}")
    connection.execute(f"PRAGMA cache_size = {-CACHE_KB}")
    connection.execute("PRAGMA secure_delete = OFF")


def reading(path: Path) -> sqlite3.Connection:
    """A connection for reading. If it has the right to write, SQLite may write the log's index, or
    roll back the transaction of a killed writer."""
    if not path.exists():
        raise StoreError(f"there is no record at {path}")
    connection = _connect(path, "rw" if os.access(path, os.W_OK) else "ro")
    connection.execute("PRAGMA query_only = ON")
    return connection


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    return sqlite3.connect(
        f"file:{quote(str(path.absolute()))}?mode={mode}",
        uri=True,
        timeout=BUSY_SECONDS,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=256,
    )


def _make(path: Path) -> None:
    """Make an empty file that only its owner may read, and sync its directory."""
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        return
    directory = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
