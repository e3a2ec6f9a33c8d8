"""The wasted work of a bag: attempts that are not the result of their task.

An attempt may also be stopped because its bag was cancelled. So a stopped attempt is waste only if
its task was done before. Rows are in the order in which ends were recorded.
"""

import sqlite3

from covey.pilot.protocol.messages import CANCELLED, HOST, LOST, OK
from covey.store.sqlite.rows import OUTCOME_CODES
from covey.wire import WasteView

_UNCOUNTED = """
    SELECT count(*), total({seconds}) FROM ends AS e INDEXED BY uncounted
    WHERE bag = ? AND counted = 0 AND {which}"""
_RAN = "ended - started"
_AWAY = "CASE WHEN sent > 0 THEN delivered - sent END"  # `sent` is 0 if it is unknown
_DONE_BEFORE = f"""EXISTS (
    SELECT 1 FROM ends AS r INDEXED BY counted
    WHERE r.bag = e.bag AND r.task = e.task AND r.counted = 1
    AND r.outcome = {OUTCOME_CODES[OK]} AND r.row < e.row)"""

_STOPPED = _UNCOUNTED.format(
    seconds=_RAN, which=f"outcome = {OUTCOME_CODES[CANCELLED]} AND {_DONE_BEFORE}"
)
_TOO_LATE = _UNCOUNTED.format(seconds=_RAN, which=f"outcome = {OUTCOME_CODES[OK]}")
_LOST = _UNCOUNTED.format(
    seconds=_AWAY, which=f"outcome IN ({OUTCOME_CODES[LOST]}, {OUTCOME_CODES[HOST]})"
)


def of(connection: sqlite3.Connection, bag: int) -> WasteView:
    cancelled, cancelled_seconds = connection.execute(_STOPPED, (bag,)).fetchone()
    discarded, discarded_seconds = connection.execute(_TOO_LATE, (bag,)).fetchone()
    lost, lost_seconds = connection.execute(_LOST, (bag,)).fetchone()
    return WasteView(
        cancelled=cancelled,
        cancelled_seconds=cancelled_seconds,
        discarded=discarded,
        discarded_seconds=discarded_seconds,
        lost=lost,
        lost_seconds=lost_seconds,
    )
