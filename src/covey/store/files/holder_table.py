"""The table of who holds which file, in an SQLite file of its own beside the files.

It is not part of the record: a row is made for every file that arrives, by several threads, and
nothing waits for these but the sender of the file. What is added is made durable by a thread of its
own, which commits all that waits at once; what is noted is not, and costs hardly anything.
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

RENEW_SECONDS = 600.0  # a use is written down if the last one was longer ago
AT_ONCE = 10_000  # looked up before others have their turn

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
    """For several threads. All calls may raise StoreFailed, or StoreError for a damaged file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._using = threading.Lock()
        self._quick: sqlite3.Connection | None = None  # its commits are not synced
        self._durable: sqlite3.Connection | None = None
        self._queue: SimpleQueue[tuple[Row, Future[None]]] = SimpleQueue()
        self._committing = ThreadPoolExecutor(1, "holders")

    def add(self, owner: str, digest: str) -> "Future[None]":
        """The owner holds the file, durably when the future is done."""
        future: Future[None] = Future()
        self._queue.put(((key_of(owner), digest, time.time()), future))
        self._committing.submit(self._commit)
        return future

    def note(self, owner: str, digests: Iterable[str]) -> None:
        """The same, of many, and not durably."""
        key, now = key_of(owner), time.time()
        rows = ((key, digest, now) for digest in digests)
        self._use(lambda connection: connection.executemany(_ADD, rows), writes=True)

    def found(self, owner: str, digests: list[str], *, renew: bool) -> set[str]:
        """Which of these the owner holds. With `renew` they are as if added just now."""
        held: set[str] = set()
        for start in range(0, len(digests), AT_ONCE):
            given = key_of(owner), json.dumps(digests[start : start + AT_ONCE])
            rows = self._use(partial(_find, given))
            old = time.time() - RENEW_SECONDS
            if renew and (stale := [digest for digest, used in rows if used < old]):
                self.note(owner, stale)
            held.update(digest for digest, _ in rows)
        return held

    def remove_unused(self, before: float, kept: dict[str, set[str]]) -> set[str]:
        """Owners lose what they have not used since then, but for what is `kept`, by owner.
        Returns all that somebody still holds."""
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
        # One that was used meanwhile stays.
        query = "DELETE FROM holders WHERE owner = ? AND digest = ? AND used = ?"
        self._use(lambda connection: connection.executemany(query, gone), writes=True)
        return held

    def complete(self) -> bool:
        """Whether it says everything; a new one does not."""
        [(version,)] = self._use(lambda connection: connection.execute("PRAGMA user_version"))
        return bool(version)

    def set_complete(self) -> None:
        self._use(lambda connection: connection.execute("PRAGMA user_version = 1"))

    def close(self) -> None:
        """What was added is committed first. It may be used again afterwards."""
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
        except Exception as error:  # whoever waits must hear of it, whatever it was
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


def _find(given: tuple[str, str], connection: sqlite3.Connection) -> sqlite3.Cursor:
    return connection.execute(_FOUND, given)


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
    """What stands for an owner, whose name may be anything."""
    return hashlib.sha256(owner.encode("utf-8", "surrogatepass")).hexdigest()[:32]
