"""What the SQLite record knows of a bag, read at a cost that grows with what is open or went
wrong, not with what is done: of a closed chunk only its size is looked at.

INDEXED BY makes a query fail, rather than scan ten million rows, should its index not fit.
"""

import sqlite3

from covey.core.model import BagId, BagSnapshot, Snapshot
from covey.store import rows

_IN_OPEN_CHUNKS = """
    FROM chunks AS c CROSS JOIN ends AS e INDEXED BY {index}
    ON e.bag = c.bag AND e.task >= c.first AND e.task < c.stop
    WHERE c.bag = ? AND c.closed = 0 AND e.counted = {counted}"""
_RESULTS = _IN_OPEN_CHUNKS.format(index="counted", counted=1)
_OTHERS = _IN_OPEN_CHUNKS.format(index="uncounted", counted=0)
_FAILURES = "FROM ends INDEXED BY failures WHERE bag = ? AND counted = 1 AND outcome <> 0"
_OWN = ", ".join(str(rows.OUTCOME_CODES[outcome]) for outcome in rows.OWN_FAILURES)

_TRIES = f"""
    SELECT e.task, count(*) {_OTHERS} AND e.outcome IN ({_OWN}) AND e.row > ?
    AND NOT EXISTS (SELECT 1 FROM ends AS r INDEXED BY counted
                    WHERE r.bag = e.bag AND r.task = e.task AND r.counted = 1)
    GROUP BY e.task ORDER BY e.task"""


def whole(connection: sqlite3.Connection, epoch: int) -> Snapshot:
    execute = connection.execute
    running = execute("SELECT id FROM bags WHERE status = 'running' ORDER BY id").fetchall()
    pilots = execute(
        f"SELECT {rows.PILOT_COLUMNS} FROM pilots WHERE status <> 'left' ORDER BY id"
    ).fetchall()
    jobs = execute(
        f"SELECT {rows.JOB_COLUMNS} FROM jobs WHERE status <> 'ended' ORDER BY row"
    ).fetchall()
    keys = execute("SELECT key, id FROM bags WHERE key IS NOT NULL ORDER BY id").fetchall()
    bags = [bag(connection, BagId(id_)) for (id_,) in running]
    return Snapshot(
        epoch=epoch,
        bags=tuple(one for one in bags if one is not None),
        pilots=tuple(map(rows.pilot_from, pilots)),
        jobs=tuple(map(rows.job_from, jobs)),
        next_bag=_next(connection, "bags"),
        next_pilot=_next(connection, "pilots"),
        keys={key: BagId(id_) for key, id_ in keys},
    )


def bag(connection: sqlite3.Connection, id_: BagId) -> BagSnapshot | None:
    execute = connection.execute
    found = execute(
        f"SELECT {rows.BAG_COLUMNS}, tries_from FROM bags WHERE id = ?", (id_,)
    ).fetchone()
    if found is None:
        return None
    *record, tries_from = found
    chunks = execute(
        "SELECT first, stop, closed FROM chunks WHERE bag = ? ORDER BY first", (id_,)
    ).fetchall()
    failed = tuple(task for (task,) in execute(f"SELECT task {_FAILURES} ORDER BY task", (id_,)))
    given_up = frozenset(failed)
    results = execute(f"SELECT e.task {_RESULTS} ORDER BY e.task", (id_,))
    return BagSnapshot(
        bag=rows.bag_from(tuple(record)),
        chunks=tuple(map(rows.chunk_from, chunks)),
        open_done=tuple(task for (task,) in results if task not in given_up),
        failed=failed,
        tries=dict(execute(_TRIES, (id_, tries_from)).fetchall()),
    )


def totals(connection: sqlite3.Connection, id_: int) -> tuple[int, int]:
    """How many tasks of a bag are done, and how many were given up."""
    execute = connection.execute
    closed = "SELECT coalesce(sum(stop - first), 0) FROM chunks WHERE bag = ? AND closed = 1"
    (settled,) = execute(closed, (id_,)).fetchone()
    (results,) = execute(f"SELECT count(*) {_RESULTS}", (id_,)).fetchone()
    (failed,) = execute(f"SELECT count(*) {_FAILURES}", (id_,)).fetchone()
    return settled + results - failed, failed


def missing(connection: sqlite3.Connection, bag: int, first: int) -> int:
    """Tasks without a result in this chunk, if it is closed: there must be none."""
    found = connection.execute(
        "SELECT stop FROM chunks WHERE bag = ? AND first = ? AND closed = 1", (bag, first)
    ).fetchone()
    if found is None:
        return 0
    counted = (
        "SELECT count(*) FROM ends INDEXED BY counted "
        "WHERE bag = ? AND counted = 1 AND task >= ? AND task < ?"
    )
    (results,) = connection.execute(counted, (bag, first, found[0])).fetchone()
    left: int = found[0] - first - results
    return left


def _next(connection: sqlite3.Connection, table: str) -> int:
    highest: int = connection.execute(f"SELECT coalesce(max(id), 0) FROM {table}").fetchone()[0]
    return highest + 1
