"""The table of owners and the files that they hold, in an SQLite file of its own beside the files.

It is not part of the record: several threads add a row for every file that arrives, and only the
sender of the file waits for that. A separate thread makes added rows durable; it commits all
waiting rows at once. Rows that are only noted are not durable, and cost very little.
"""

import hashlib
import json
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import lru_cache, partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from covey.store import filesystem
from covey.store.sqlite import connections

RENEW_SECONDS = 600.0  # a use is written only if the last one was longer ago
AT_ONCE = 10_000  # digests per query; between queries other threads have their turn

_TABLE = """
    CREATE TABLE IF NOT EXISTS holders (
        owner TEXT NOT NULL,
        digest TEXT NOT NULL,
        used REAL NOT NULL,
        PRIMARY KEY (owner, digest)) WITHOUT ROWID"""
_ADD = """
    INSERT INTO holders VALUES (?, ?, ?)
    ON CONFLICT DO UPDATE SET used = excluded.used"""
_FOUND = """
    SELECT digest, used FROM holders
    WHERE owner = ? AND digest IN (SELECT value FROM json_each(?))"""

Row = tuple[str, str, float]


class Holders:
    """May be used by several threads. All methods may raise StoreFailed, or StoreError if the file
    is damaged."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._using = threading.Lock()
        self._quick: sqlite3.Connection | None = None  # its commits are not synced
        self._durable: sqlite3.Connection | None = None
        self._queue: SimpleQueue[tuple[Row, Future[None]]] = SimpleQueue()
        self._committing = ThreadPoolExecutor(1, "holders")

    def add(self, owner: str, digest: str) -> "Future[None]":
        """Add a file to the owner's. The row is durable when the future is done."""
        future: Future[None] = Future()
        self._queue.put(((key_of(owner), digest, time.time()), future))
        self._committing.submit(self._commit)
        return future

    def note(self, owner: str, digests: Iterable[str]) -> None:
        """Add many files to the owner's. The rows are not durable."""
        key, now = key_of(owner), time.time()
        rows = ((key, digest, now) for digest in digests)
        self._use(lambda connection: connection.executemany(_ADD, rows), writes=True)

    def found(self, owner: str, digests: list[str], *, renew: bool) -> set[str]:
        """The digests that the owner holds. With `renew`, their time of use becomes now."""
        held: set[str] = set()
        for start in range(0, len(digests), AT_ONCE):
            parameters = key_of(owner), json.dumps(digests[start : start + AT_ONCE])
            rows = self._use(partial(_find, parameters))
            old = time.time() - RENEW_SECONDS
            if renew and (stale := [digest for digest, used in rows if used < old]):
                self.note(owner, stale)
            held.update(digest for digest, _ in rows)
        return held

    def remove_unused(self, before: float, kept: dict[str, set[str]]) -> set[str]:
        """Remove what owners have not used since `before`, except what is `kept`, by owner. Returns
        the digests that somebody still holds."""
        keys = {key_of(owner): digests for owner, digests in kept.items()}
        held: set[str] = set()
        gone: list[tuple[str, str, float]] = []
        for owner, digest, used in self._use(
            lambda connection: connection.execute("SELECT owner, digest, used FROM holders")
        ):
            if used > before or digest in keys.get(owner, ()):
                held.add(digest)
            else:
                gone.append((owner, digest, used))
        # A row that was used meanwhile stays.
        query = "DELETE FROM holders WHERE owner = ? AND digest = ? AND used = ?"
        self._use(lambda connection: connection.executemany(query, gone), writes=True)
        return held

    def complete(self) -> bool:
        """Whether the table has all holders. A new table does not."""
        [(version,)] = self._use(lambda connection: connection.execute("PRAGMA user_version"))
        return bool(version)

    def set_complete(self) -> None:
        self._use(lambda connection: connection.execute("PRAGMA user_version = 1"))

    def close(self) -> None:
        """Commit what was added, and close. The table may be used again afterwards."""
        self._committing.submit(self._close_durable).result()
        with self._using:
            if self._quick is not None:
                self._quick.close()
                self._quick = None

    # -- inside ----------------------------------------------------------------------------

    def _commit(self) -> None:
        batch: list[tuple[Row, Future[None]]] = []
        with suppress(Empty):
            while True:
                batch.append(self._queue.get_nowait())
        if not batch:
            return
        try:
            with connections.failing(self.path, "written"):
                if self._durable is None:
                    self._durable = self._connected("FULL")
                with _transaction(self._durable) as connection:
                    connection.executemany(_ADD, [row for row, _ in batch])
        except Exception as error:  # every waiting thread must get the error
            for _, future in batch:
                future.set_exception(error)
        else:
            for _, future in batch:
                future.set_result(None)

    def _close_durable(self) -> None:
        if self._durable is not None:
            self._durable.close()
            self._durable = None

    def _use(
        self, use: Callable[[sqlite3.Connection], sqlite3.Cursor], *, writes: bool = False
    ) -> list[tuple[Any, ...]]:
        with self._using, connections.failing(self.path, "used"):
            if self._quick is None:
                self._quick = self._connected("NORMAL")
            if not writes:
                return use(self._quick).fetchall()
            with _transaction(self._quick) as connection:
                use(connection)
            return []

    def _connected(self, synchronous: str) -> sqlite3.Connection:
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        connection = connections.writing(self.path)
        wal = not filesystem.is_network(filesystem.kind(self.path))
        connections.tune(connection, self.path, wal=wal)
        connection.execute(f"PRAGMA synchronous = {synchronous}")
        connection.execute(_TABLE)
        return connection


def _find(parameters: tuple[str, str], connection: sqlite3.Connection) -> sqlite3.Cursor:
    return connection.execute(_FOUND, parameters)


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield connection
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


@lru_cache(maxsize=10_000)
def key_of(owner: str) -> str:
    """The key of an owner in the table. The name itself may have any characters."""
    return hashlib.sha256(owner.encode("utf-8", "surrogatepass")).hexdigest()[:32]
