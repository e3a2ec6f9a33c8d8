"""The record in one SQLite file.

- `apply` is one transaction. It is synced to disk when `apply` returns.
- Each `open` first takes the next epoch, durably, so no epoch is used twice. A transaction begins
  with a check that the epoch has not changed. If a second server has opened the file in spite of
  the lock, the first one stops, instead of mixing its writes with the other's.
- After a commit, it checks that the file and its log are still the files at the record's path. A
  commit to a file that was removed or replaced is not acknowledged (`own_files`).
- After a failure, the connection and everything in memory are thrown away, because only the file's
  content is certain. Then `open` starts afresh.
"""

import os
import sqlite3
from pathlib import Path

from covey.core.errors import StoreFailed, StoreHeld
from covey.core.record.actions import Change
from covey.core.record.model import BagId, BagSnapshot, Snapshot
from covey.store import filesystem
from covey.store.own_files import OwnFiles
from covey.store.sqlite import connections, schema, snapshots, upkeep
from covey.store.sqlite.changes import Changes
from covey.store.sqlite.upkeep import Upkeep

_LOOK_EVERY = 64  # commits between two checks of the write-ahead log's size
_LOG_LIMIT_BYTES = 64 * 2**20
_RESTART_MS = 250
_NO_SPACE_SECONDS = 10.0  # until the next try to tidy up, if the disk is full


class SqliteRecord:
    """`warning` is what a person should know about the file system, if anything."""

    def __init__(
        self,
        path: Path,
        *,
        mounts: str | None = None,
        migrations: tuple[schema.Migration, ...] = schema.MIGRATIONS,
    ) -> None:
        kind = filesystem.kind(path, mounts)
        self.path = path
        self.warning = filesystem.warning(path, kind)
        self._wal = not filesystem.is_network(kind)
        self._migrations = migrations
        self._connection: sqlite3.Connection | None = None
        self._changes: Changes | None = None
        self._upkeep: Upkeep | None = None
        self._files = OwnFiles(())
        self._epoch = 0
        self._commits = 0

    def open(self) -> Snapshot:
        self.close()
        try:
            with connections.failing(self.path, "opened"):
                return self._open()
        except BaseException:
            self._abandon()
            raise

    def apply(self, changes: list[Change]) -> None:
        try:
            with connections.failing(self.path, "written"):
                self._apply(changes)
        except BaseException:
            self._abandon()
            raise

    def tidy(self) -> float | None:
        try:
            with connections.failing(self.path, "written"):
                return self._tidy()
        except BaseException:
            self._abandon()
            raise

    def check_files(self) -> None:
        """May be called by any thread. Raises StoreGone if the open files are no longer those at
        the record's path."""
        try:
            self._files.check()
        except OSError:
            pass  # the file system does not answer; the next commit will show what is wrong

    def removing(self) -> frozenset[BagId]:
        return self._upkeep.removing if self._upkeep is not None else frozenset()

    def load(self, bag: BagId) -> BagSnapshot | None:
        with connections.failing(self.path, "read"):
            connection = self._opened()[0]
            connection.execute("BEGIN")
            try:
                return snapshots.bag(connection, bag)
            finally:
                connection.execute("COMMIT")

    def close(self) -> None:
        self._files = OwnFiles(())
        connection, self._connection = self._connection, None
        self._changes = self._upkeep = None
        if connection is not None:
            with connections.failing(self.path, "closed"):
                connection.close()

    def _open(self) -> Snapshot:
        connection = self._connection = connections.writing(self.path)
        if not schema.version(connection, self.path, self._migrations):
            upkeep.choose_incremental(connection)
        connections.tune(connection, self.path, wal=self._wal)
        schema.migrate(connection, self.path, self._migrations)
        if self._wal:  # else pages whose sync failed earlier might never reach the disk
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("UPDATE server SET epoch = epoch + 1")
        self._epoch = self._recorded_epoch(connection)
        connection.execute("COMMIT")
        self._files = OwnFiles([self.path, *([Path(f"{self.path}-wal")] if self._wal else [])])
        self._changes = changes = Changes(connection, self._epoch)
        self._upkeep = Upkeep(connection, changes.orphans(), self._empty_log)
        connection.execute("BEGIN")
        snapshot = snapshots.whole(connection, self._epoch)
        connection.execute("COMMIT")
        return snapshot

    def _apply(self, changes: list[Change]) -> None:
        connection, tables = self._opened()
        self._begin(connection)
        for change in changes:
            tables.make(change)
        tables.finish()
        connection.execute("COMMIT")
        self._files.check()
        if self._upkeep is not None and tables.removals:
            for removal in tables.removals:
                self._upkeep.add(removal)
            tables.removals = []
        self._commits += 1
        if self._wal and self._commits % _LOOK_EVERY == 0:
            self._bound_log(connection)

    def _begin(self, connection: sqlite3.Connection) -> None:
        connection.execute("BEGIN IMMEDIATE")
        if self._recorded_epoch(connection) != self._epoch:
            raise StoreHeld(str(self.path), "a server that was started later")

    def _tidy(self) -> float | None:
        connection, upkeep_ = self._opened()[0], self._upkeep
        assert upkeep_ is not None
        self._begin(connection)
        before = list(upkeep_.removals)
        try:
            more = upkeep_.piece()
            connection.execute("COMMIT")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_FULL:
                raise
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            upkeep_.rolled_back(before)
            return _NO_SPACE_SECONDS
        if not more:
            upkeep_.finish()
        return 0.0 if more else None

    def _bound_log(self, connection: sqlite3.Connection) -> None:
        """SQLite can restart its log only at a moment without readers. If the log has become large,
        wait a little for such a moment. Commits are durable in any case."""
        try:
            if os.stat(f"{self.path}-wal").st_size < _LOG_LIMIT_BYTES:
                return
        except OSError:
            return
        self._checkpoint(connection, "RESTART")

    def _empty_log(self) -> None:
        if self._wal and self._connection is not None:
            self._checkpoint(self._connection, "TRUNCATE")

    def _checkpoint(self, connection: sqlite3.Connection, how: str) -> None:
        try:
            connection.execute(f"PRAGMA busy_timeout = {_RESTART_MS}")
            connection.execute(f"PRAGMA wal_checkpoint({how})").fetchall()
            connection.execute(f"PRAGMA busy_timeout = {int(connections.BUSY_SECONDS * 1000)}")
        except sqlite3.Error:
            pass  # if the disk is full, the next commit will report it

    def _recorded_epoch(self, connection: sqlite3.Connection) -> int:
        epoch: int = connection.execute("SELECT epoch FROM server").fetchone()[0]
        return epoch

    def _opened(self) -> tuple[sqlite3.Connection, Changes]:
        if self._connection is None or self._changes is None:
            raise StoreFailed(f"{self.path} is not open: it was closed, or a write has failed")
        return self._connection, self._changes

    def _abandon(self) -> None:
        """Close the connection. That rolls back an open transaction."""
        connection, self._connection = self._connection, None
        self._changes = self._upkeep = None
        if connection is not None:
            try:
                connection.close()
            except sqlite3.Error:
                pass
