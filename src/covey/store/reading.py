"""Reading the SQLite record while a server writes it, from its process or from another, or with
no server at all. Every call is one short transaction and sees one state; pages are found through
indexes, never counted off.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

from msgspec import Struct

from covey.core.errors import StoreError
from covey.core.model import BagSpec
from covey.core.space import Point, indexer, names
from covey.store import connecting, rows, schema, snapshots
from covey.wire import BagView, Output, PilotView, ResultRow

_KEPT_HEADS = 10_000
_KEPT_POINTS = 64  # each may hold a long list of values

_BAGS = "SELECT id, status, total, done, failed, created, ended FROM bags"
_ALL_OF_TASK = """
    SELECT {columns} FROM ends INDEXED BY counted
    WHERE bag = ?1 AND task = ?2 AND counted = 1
    UNION ALL SELECT {columns} FROM ends INDEXED BY uncounted
    WHERE bag = ?1 AND task = ?2 AND counted = 0"""
_ATTEMPTS = _ALL_OF_TASK.format(columns=rows.RESULT_COLUMNS) + " ORDER BY row"
_FOREMOST = (
    _ALL_OF_TASK.format(columns="row, counted, epoch, sequence, outcome")
    + " ORDER BY counted DESC, row DESC LIMIT 1"
)


Kept = TypeVar("Kept")


class _Head(Struct):
    """What a view needs of a bag's spec, which never changes."""

    name: str
    owner: str
    argv: list[str]
    names: list[str]
    retries: int
    limit_seconds: float
    idempotent: bool


class SqliteReader:
    """For any thread, one at a time. Connects when first used."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = Lock()
        self._connection: sqlite3.Connection | None = None
        self._heads: dict[int, _Head] = {}
        self._points: dict[int, Point] = {}

    def bags(self) -> list[BagView]:
        with self._reading() as connection:
            found = connection.execute(f"{_BAGS} ORDER BY id DESC").fetchall()
            return [self._view(connection, row) for row in found]

    def bag(self, bag: int) -> BagView | None:
        with self._reading() as connection:
            row = connection.execute(f"{_BAGS} WHERE id = ?", (bag,)).fetchone()
            return None if row is None else self._view(connection, row)

    def results(
        self,
        bag: int,
        after: int = -1,
        limit: int = 1000,
        *,
        by_row: bool = False,
        failed_only: bool = False,
    ) -> list[ResultRow]:
        with self._reading() as connection:
            total = _total(connection, bag)
            if total is None:
                return []
            found = _page(connection, bag, after, limit, by_row, failed_only)
            point = self._point(connection, bag)
            return [rows.result_from(row, point, total) for row in found]

    def attempts(self, bag: int, task: int) -> list[ResultRow]:
        with self._reading() as connection:
            total = _total(connection, bag)
            if total is None:
                return []
            found = connection.execute(_ATTEMPTS, (bag, task)).fetchall()
            point = self._point(connection, bag)
            return [rows.result_from(row, point, total) for row in found]

    def output(self, bag: int, task: int) -> Output | None:
        with self._reading() as connection:
            if _total(connection, bag) is None:
                return None
            found = connection.execute(_FOREMOST, (bag, task)).fetchone()
            if found is None:
                return None
            row, _, epoch, sequence, outcome = found
            kept = connection.execute(
                "SELECT stdout, stderr FROM outputs WHERE row = ?", (row,)
            ).fetchone() or (None, None)
        return Output(
            task=task,
            attempt=f"{epoch}.{sequence}",
            outcome=rows.OUTCOMES[outcome],
            stdout=rows.unpack(kept[0]),
            stderr=rows.unpack(kept[1]),
        )

    def pilots(self, limit: int = 1000) -> list[PilotView]:
        query = f"SELECT {rows.VIEW_COLUMNS} FROM pilots ORDER BY id DESC LIMIT ?"
        with self._reading() as connection:
            return list(map(rows.pilot_view_from, connection.execute(query, (limit,)).fetchall()))

    def close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        """One transaction, which ends here come what may: an open one would keep the log from
        being emptied."""
        with self._lock, connecting.failing(self.path, "read"):
            if self._connection is None:
                self._connection = _connect(self.path)
            connection = self._connection
            try:
                connection.execute("BEGIN")
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                self._connection = None
                connection.close()
                raise

    def _head(self, connection: sqlite3.Connection, bag: int) -> _Head:
        known = self._heads.get(bag)
        if known is not None:
            return known
        spec = _spec(connection, bag)
        head = _Head(
            name=spec.name,
            owner=spec.owner,
            argv=list(spec.argv),
            names=names(spec.space),
            retries=spec.retries,
            limit_seconds=spec.limit_seconds,
            idempotent=spec.idempotent,
        )
        return _keep(self._heads, bag, head, _KEPT_HEADS)

    def _point(self, connection: sqlite3.Connection, bag: int) -> Point:
        known = self._points.get(bag)
        if known is not None:
            return known
        return _keep(self._points, bag, indexer(_spec(connection, bag).space), _KEPT_POINTS)

    def _view(self, connection: sqlite3.Connection, row: tuple[Any, ...]) -> BagView:
        id_, status, total, done, failed, created, ended = row
        if status == "running":
            done, failed = snapshots.totals(connection, id_)
        head = self._head(connection, id_)
        return BagView(
            id=id_,
            name=head.name,
            owner=head.owner,
            argv=head.argv,
            names=head.names,
            status=status,
            total=total,
            done=done,
            failed=failed,
            created=created,
            ended=ended,
            retries=head.retries,
            limit_seconds=head.limit_seconds,
            idempotent=head.idempotent,
        )


def _keep(kept: dict[int, Kept], bag: int, one: Kept, most: int) -> Kept:
    """Remember one more; forget the one that was remembered first if they are too many."""
    if len(kept) >= most:
        del kept[next(iter(kept))]
    kept[bag] = one
    return one


def _total(connection: sqlite3.Connection, bag: int) -> int | None:
    row = connection.execute("SELECT total FROM bags WHERE id = ?", (bag,)).fetchone()
    return None if row is None else row[0]


def _spec(connection: sqlite3.Connection, bag: int) -> BagSpec:
    (text,) = connection.execute("SELECT spec FROM bags WHERE id = ?", (bag,)).fetchone()
    return rows.spec_from(text)


def _page(
    connection: sqlite3.Connection, bag: int, after: int, limit: int, by_row: bool, failed: bool
) -> list[tuple[Any, ...]]:
    """Counted results after `after`. In the order of rows only those of the bag's lifetime are
    looked at; the few failures are sorted."""
    select = f"SELECT {rows.RESULT_COLUMNS} FROM ends"
    if failed:
        order = "row" if by_row else "task"
        where = (
            f"INDEXED BY failures WHERE bag = ? AND counted = 1 AND outcome <> 0 AND {order} > ?"
        )
        return connection.execute(
            f"{select} {where} ORDER BY {order} LIMIT ?", (bag, after, limit)
        ).fetchall()
    if not by_row:
        where = "INDEXED BY counted WHERE bag = ? AND counted = 1 AND task > ?"
        return connection.execute(
            f"{select} {where} ORDER BY task LIMIT ?", (bag, after, limit)
        ).fetchall()
    query = "SELECT first_row, last_row FROM bags WHERE id = ?"
    first, last = connection.execute(query, (bag,)).fetchone()
    if last is None:
        (last,) = connection.execute("SELECT coalesce(max(row), 0) FROM ends").fetchone()
    where = "NOT INDEXED WHERE row > ? AND row <= ? AND bag = ? AND counted = 1"
    return connection.execute(
        f"{select} {where} ORDER BY row LIMIT ?", (max(after, first - 1), last, bag, limit)
    ).fetchall()


def _connect(path: Path) -> sqlite3.Connection:
    connection = connecting.reading(path)
    try:
        found = schema.version(connection, path)
        if found == 0:
            raise StoreError(f"there is no record at {path}")
        if found < len(schema.MIGRATIONS):
            raise StoreError(f"{path} was written by an older covey: start a server to convert it")
    except BaseException:
        connection.close()
        raise
    return connection
