"""Snapshots of bags from the SQLite record. The cost grows with the tasks that are open or failed,
not with those that are done: of a closed chunk only the size is read.

With INDEXED BY, a query that cannot use its index fails, instead of scanning ten million rows.
"""

import sqlite3
from itertools import islice
from typing import Any

import msgspec
from msgspec import Struct, field
from pyroaring import BitMap

from covey.core.record.model import (
    BagId,
    BagRecord,
    BagSnapshot,
    InputVersion,
    More,
    Reopening,
    Segment,
    Snapshot,
)
from covey.core.record.suspects import brief
from covey.pilot.protocol.messages import MEMORY, OWN_FAILURES, TIMEOUT
from covey.store.sqlite import rows, site_jobs

_IN_OPEN_CHUNKS = """
    FROM chunks AS c CROSS JOIN ends AS e INDEXED BY {index}
    ON e.bag = c.bag AND e.task >= c.first AND e.task < c.stop
    WHERE c.bag = ? AND c.closed = 0 AND e.counted = {counted}"""
_RESULTS = _IN_OPEN_CHUNKS.format(index="counted", counted=1)
_OTHERS = _IN_OPEN_CHUNKS.format(index="uncounted", counted=0)
_FAILURES = "FROM ends INDEXED BY failures WHERE bag = ? AND counted = 1 AND outcome <> 0"
_OWN = ", ".join(str(rows.OUTCOME_CODES[outcome]) for outcome in OWN_FAILURES)

_FAILURES_OF_UNFINISHED = f"""
    SELECT e.task, e.outcome, e.row {_OTHERS} AND e.outcome IN ({_OWN})
    AND NOT EXISTS (SELECT 1 FROM ends AS r INDEXED BY counted
                    WHERE r.bag = e.bag AND r.task = e.task AND r.counted = 1)
    ORDER BY e.task"""


def whole(connection: sqlite3.Connection, epoch: int) -> Snapshot:
    execute = connection.execute
    unfinished = execute(
        "SELECT id FROM bags INDEXED BY bags_unfinished "
        "WHERE status IN ('running', 'paused') ORDER BY id"
    ).fetchall()
    pilots = execute(
        f"SELECT {rows.PILOT_COLUMNS} FROM pilots WHERE status <> 'left' ORDER BY id"
    ).fetchall()
    sites = execute("SELECT record FROM sites ORDER BY name")
    of_sites = execute("SELECT name, history FROM site_histories ORDER BY name")
    tokens = execute(
        f"SELECT {rows.TOKEN_COLUMNS} FROM tokens INDEXED BY tokens_not_revoked "
        "WHERE revoked = 0 ORDER BY id"
    ).fetchall()
    machines = "SELECT machine, name FROM hosts WHERE machine <> '' ORDER BY id"
    histories = "SELECT name, history FROM hosts WHERE history <> '' ORDER BY id"
    keys = execute("SELECT key, id FROM bags WHERE key IS NOT NULL ORDER BY id").fetchall()
    bags = [bag(connection, BagId(id_)) for (id_,) in unfinished]
    return Snapshot(
        epoch=epoch,
        bags=tuple(snapshot for snapshot in bags if snapshot is not None),
        pilots=tuple(map(rows.pilot_from, pilots)),
        jobs=site_jobs.alive(connection),
        ended_jobs=site_jobs.ended(connection),
        sites=tuple(rows.site_from(text) for (text,) in sites),
        next_bag=max(_highest(connection, "bags"), _last_purged(connection)) + 1,
        next_pilot=_highest(connection, "pilots") + 1,
        keys={key: BagId(id_) for key, id_ in keys},
        hosts=dict(execute(machines).fetchall()),
        histories={name: rows.history_from(text) for name, text in execute(histories)},
        site_histories={name: rows.site_history_from(text) for name, text in of_sites},
        tokens=tuple(map(rows.token_from, tokens)),
        next_token=_highest(connection, "tokens") + 1,
    )


def bag(connection: sqlite3.Connection, id_: BagId) -> BagSnapshot | None:
    execute = connection.execute
    row = execute(f"SELECT {rows.BAG_COLUMNS} FROM bags WHERE id = ?", (id_,)).fetchone()
    if row is None:
        return None
    chunks = execute(
        "SELECT first, stop, closed FROM chunks WHERE bag = ? ORDER BY first", (id_,)
    ).fetchall()
    given_up = failed(connection, id_)
    not_done = frozenset(given_up)
    results = execute(f"SELECT e.task {_RESULTS} ORDER BY e.task", (id_,))
    starts = _fresh_starts(connection, id_)
    tried = _tried(connection, id_, starts)
    keys = "SELECT key FROM segments WHERE bag = ? AND key IS NOT NULL ORDER BY number"
    record, broken = _read(connection, row)
    return BagSnapshot(
        bag=record,
        broken=broken,
        chunks=tuple(map(rows.chunk_from, chunks)),
        open_done=tuple(task for (task,) in results if task not in not_done),
        failed=given_up,
        tries=tried.tries,
        overtimes=tried.overtimes,
        short=tried.short,
        reopenings=tuple(start.reopening for start in starts),
        keys=tuple(key for (key,) in execute(keys, (id_,))),
    )


def _read(connection: sqlite3.Connection, row: tuple[Any, ...]) -> tuple[BagRecord, str]:
    """The bag, and why a part of it could not be read; empty if all could. A broken bag must not
    keep the server from reading the others."""
    try:
        appended, versions = segments(connection, row[0]), input_versions(connection, row[0])
        return rows.bag_from(row, appended, versions), ""
    except (msgspec.MsgspecError, ValueError, TypeError, ArithmeticError, RecursionError) as error:
        return rows.shell_from(row), brief(error)


def segments(connection: sqlite3.Connection, id_: int) -> tuple[Segment, ...]:
    """The segments that were appended to a bag."""
    query = "SELECT segment FROM segments WHERE bag = ? ORDER BY number"
    return tuple(rows.segment_from(text) for (text,) in connection.execute(query, (id_,)))


def input_versions(connection: sqlite3.Connection, id_: int) -> tuple[InputVersion, ...]:
    """The versions of a bag's input files, from the second on."""
    query = f"SELECT {rows.INPUT_VERSION_COLUMNS} FROM input_versions WHERE bag = ? ORDER BY number"
    return tuple(map(rows.input_version_from, connection.execute(query, (id_,))))


def failed(connection: sqlite3.Connection, id_: int) -> tuple[int, ...]:
    """The tasks of a bag that were given up."""
    return tuple(
        task for (task,) in connection.execute(f"SELECT task {_FAILURES} ORDER BY task", (id_,))
    )


class _FreshStart(Struct):
    reopening: Reopening
    tasks: BitMap  # tasks that started afresh


class _Tried(Struct):
    """How often unfinished tasks have failed since their last fresh start, by task."""

    tries: dict[int, int] = field(default_factory=dict)
    overtimes: dict[int, int] = field(default_factory=dict)
    short: dict[int, int] = field(default_factory=dict)

    def add(self, task: int, outcome: str) -> None:
        if outcome == TIMEOUT:
            self.overtimes[task] = self.overtimes.get(task, 0) + 1
            return
        self.tries[task] = self.tries.get(task, 0) + 1
        if outcome == MEMORY:
            self.short[task] = self.short.get(task, 0) + 1


def _fresh_starts(connection: sqlite3.Connection, id_: int) -> list[_FreshStart]:
    """The fresh starts of a bag's tasks, oldest first."""
    query = (
        f"SELECT row, named, tasks, {', '.join(More.__struct_fields__)} "
        "FROM reopenings WHERE bag = ? ORDER BY number"
    )
    starts = []
    for row, named, packed, *more in connection.execute(query, (id_,)):
        tasks = BitMap.deserialize(packed)
        reopening = Reopening(row=row, tasks=tuple(tasks) if named else None, more=More(*more))
        starts.append(_FreshStart(reopening, tasks))
    return starts


def _tried(connection: sqlite3.Connection, id_: int, starts: list[_FreshStart]) -> _Tried:
    """Counts of failures. A failure before the last fresh start of its task does not count."""
    counts = _Tried()
    for task, code, row in connection.execute(_FAILURES_OF_UNFINISHED, (id_,)):
        later = (start for start in starts if start.reopening.row >= row)
        if not any(task in start.tasks for start in later):
            counts.add(task, rows.OUTCOMES[code])
    return counts


def totals(connection: sqlite3.Connection, id_: int) -> tuple[int, int]:
    """How many tasks of a bag are done, and how many were given up."""
    execute = connection.execute
    closed = "SELECT coalesce(sum(stop - first), 0) FROM chunks WHERE bag = ? AND closed = 1"
    (settled,) = execute(closed, (id_,)).fetchone()
    (results,) = execute(f"SELECT count(*) {_RESULTS}", (id_,)).fetchone()
    (failed,) = execute(f"SELECT count(*) {_FAILURES}", (id_,)).fetchone()
    return settled + results - failed, failed


def unfinished(connection: sqlite3.Connection, bag: int, after: int, limit: int) -> list[int]:
    """The next tasks without a result. Closed chunks have none, and are not read."""
    execute = connection.execute
    row = execute("SELECT total FROM bags WHERE id = ?", (bag,)).fetchone()
    if row is None:
        return []
    open_chunks = execute(
        "SELECT first, stop FROM chunks WHERE bag = ? AND closed = 0 AND stop > ? ORDER BY first",
        (bag, after + 1),
    ).fetchall()
    (mark,) = execute("SELECT coalesce(max(stop), 0) FROM chunks WHERE bag = ?", (bag,)).fetchone()
    tasks: list[int] = []
    for first, stop in [*open_chunks, (mark, row[0])]:
        if len(tasks) >= limit:
            break
        first = max(first, after + 1)
        ended = execute(
            "SELECT task FROM ends INDEXED BY counted "
            "WHERE bag = ? AND counted = 1 AND task >= ? AND task < ?",
            (bag, first, stop),
        )
        with_result = {task for (task,) in ended}
        left = (task for task in range(first, stop) if task not in with_result)
        tasks += islice(left, limit - len(tasks))
    return tasks


def missing(connection: sqlite3.Connection, bag: int, first: int) -> int:
    """The number of tasks without a result in this chunk, if it is closed: it must be 0."""
    row = connection.execute(
        "SELECT stop FROM chunks WHERE bag = ? AND first = ? AND closed = 1", (bag, first)
    ).fetchone()
    if row is None:
        return 0
    counted = (
        "SELECT count(*) FROM ends INDEXED BY counted "
        "WHERE bag = ? AND counted = 1 AND task >= ? AND task < ?"
    )
    (results,) = connection.execute(counted, (bag, first, row[0])).fetchone()
    left: int = row[0] - first - results
    return left


def _highest(connection: sqlite3.Connection, table: str) -> int:
    highest: int = connection.execute(f"SELECT coalesce(max(id), 0) FROM {table}").fetchone()[0]
    return highest


def _last_purged(connection: sqlite3.Connection) -> int:
    last: int = connection.execute("SELECT last_bag FROM server").fetchone()[0]
    return last
