"""Rows for ended attempts: the hot path of the record.

Most ends count or are waste, and their rows are only gathered until something must see them
(`flush`). An end is looked at twice when its verdict depends on what is recorded, and when its
attempt was given up before: then its row takes the place of the one that says `lost`, so that
every ended attempt has one row. Row numbers are given out here and only grow.
"""

import sqlite3
from typing import Any

from pyroaring import BitMap64

from covey.core.actions import RecordEnds
from covey.core.model import EndRecord, PilotId, Verdict
from covey.store.inserting import Inserter
from covey.store.rows import OUTCOME_CODES, last_line, pack

_OK = OUTCOME_CODES["ok"]
_LOST = OUTCOME_CODES["lost"]
_COLUMNS = 22
_ENOUGH = 2048 * _COLUMNS  # gathered values, before they are written in any case


class Ends:
    """The ends of one connection. After an error it is thrown away with the connection."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        execute = connection.execute
        self.next_row: int = execute("SELECT coalesce(max(row), 0) + 1 FROM ends").fetchone()[0]
        self.over = {id_ for (id_,) in execute("SELECT id FROM bags WHERE status <> 'running'")}
        self.touched: dict[int, None] = {}  # bags that are over, and have new results
        self._hosts: dict[str, int] = dict(execute("SELECT name, id FROM hosts").fetchall())
        self._lost: dict[int, BitMap64] = {}  # by epoch: maybe recorded as lost
        query = "SELECT epoch, sequence FROM ends INDEXED BY lost WHERE outcome = 6 AND epoch > 0"
        for epoch, sequence in execute(query):
            self._remember_lost(epoch, sequence)
        self._values: list[Any] = []
        self._texts: list[Any] = []
        self._synced: dict[PilotId, int] = {}
        self._into_ends = Inserter(connection, "INSERT INTO ends", _COLUMNS)
        self._into_outputs = Inserter(connection, "INSERT INTO outputs", 3)
        latest = "ON CONFLICT (pilot) DO UPDATE SET number = max(number, excluded.number)"
        self._into_synced = Inserter(connection, "INSERT INTO synced", 2, latest)

    def record(self, change: RecordEnds) -> None:
        lost = self._lost
        for end in change.ends:
            verdict = end.verdict
            if verdict is Verdict.COUNTS and end.attempt.epoch not in lost:
                self._add(end, 1)
            elif verdict is Verdict.WASTE and end.attempt.epoch not in lost:
                self._add(end, 0)
            else:
                self._add_carefully(end)
        if change.number > 0:
            self.synced(change.pilot, change.number)
        if len(self._values) >= _ENOUGH:
            self.flush()

    def synced(self, pilot: PilotId, number: int) -> None:
        """All ends up to this sync of the pilot are recorded."""
        self._synced[pilot] = max(self._synced.get(pilot, 0), number)

    def flush(self) -> None:
        """Write what was gathered; from here on queries see it."""
        if self._values:
            self._into_ends.insert(self._values)
            self._values = []
        if self._texts:
            self._into_outputs.insert(self._texts)
            self._texts = []
        if self._synced:
            self._into_synced.insert([x for pair in self._synced.items() for x in pair])
            self._synced = {}

    def _add(self, end: EndRecord, counted: int) -> None:
        row = self.next_row
        self.next_row = row + 1
        attempt = end.attempt
        host = self._hosts.get(end.host)
        if host is None:
            host = self._new_host(end.host)
        outcome = OUTCOME_CODES[end.outcome]
        stdout = end.stdout
        if stdout or end.stderr:
            self._texts += (row, pack(stdout), pack(end.stderr))
        if counted and end.bag in self.over:
            self.touched[end.bag] = None
        if outcome == _LOST and attempt.epoch > 0:
            self._remember_lost(attempt.epoch, attempt.sequence)
        self._values += (
            row,
            end.bag,
            end.task,
            attempt.epoch,
            attempt.sequence,
            end.pilot,
            host,
            outcome,
            counted,
            end.exit_code,
            end.signal,
            end.sent,
            end.fetched,
            end.started,
            end.ended,
            end.delivered,
            end.cpu_seconds,
            end.memory_kb,
            end.stdout_bytes,
            end.stderr_bytes,
            end.message or None,
            last_line(stdout) if stdout else None,
        )

    def _add_carefully(self, end: EndRecord) -> None:
        epoch, sequence = end.attempt
        maybe_lost = epoch in self._lost and sequence > 0 and sequence in self._lost[epoch]
        if maybe_lost or end.verdict not in (Verdict.COUNTS, Verdict.WASTE):
            self.flush()
        inherits = maybe_lost and self._remove_lost(end)
        match end.verdict:
            case Verdict.COUNTS:
                counted = True
            case Verdict.WASTE:
                counted = inherits
            case Verdict.REPLACES:
                self._uncount_failure(end)
                counted = True
            case Verdict.LATE:
                counted = inherits or self._late_counts(end)
        self._add(end, int(counted))

    def _remove_lost(self, end: EndRecord) -> bool:
        """Make room for the real end of an attempt. Whether the row it replaces counted."""
        found = self._connection.execute(
            "SELECT row, counted FROM ends INDEXED BY lost "
            "WHERE outcome = 6 AND epoch = ? AND sequence = ? AND bag = ? AND task = ?",
            (*end.attempt, end.bag, end.task),
        ).fetchone()
        if found is None:
            return False
        self._connection.execute("DELETE FROM ends WHERE row = ?", found[:1])
        self._connection.execute("DELETE FROM outputs WHERE row = ?", found[:1])
        return bool(found[1])

    def _late_counts(self, end: EndRecord) -> bool:
        """Whether a late success is its task's result: it is if there was none, or a failure."""
        where = (end.bag, end.task)
        leased = self._connection.execute(
            "SELECT stop FROM chunks WHERE bag = ? AND first <= ? ORDER BY first DESC LIMIT 1",
            where,
        ).fetchone()
        if leased is None or end.task >= leased[0]:
            return False  # no such task was ever sent out
        found = self._connection.execute(
            "SELECT outcome FROM ends INDEXED BY counted "
            "WHERE bag = ? AND task = ? AND counted = 1",
            where,
        ).fetchone()
        if found is not None and found[0] == _OK:
            return False
        self._uncount_failure(end)
        return True

    def _uncount_failure(self, end: EndRecord) -> None:
        self._connection.execute(
            "UPDATE ends INDEXED BY failures SET counted = 0 "
            "WHERE bag = ? AND task = ? AND counted = 1 AND outcome <> 0",
            (end.bag, end.task),
        )

    def _new_host(self, name: str) -> int:
        id_ = self._hosts[name] = len(self._hosts) + 1
        self._connection.execute("INSERT INTO hosts VALUES (?, ?)", (id_, name))
        return id_

    def _remember_lost(self, epoch: int, sequence: int) -> None:
        if sequence > 0:
            self._lost.setdefault(epoch, BitMap64()).add(sequence)
