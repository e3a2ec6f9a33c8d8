"""Rows for ended attempts: the hot path of the record.

Most ends count or are waste. Their rows are only gathered, until a query must see them (`flush`).
Two kinds of ends need a second look: those whose verdict depends on earlier rows, and those whose
attempt was given up before. The latter replace the row that says `lost`, so that every ended
attempt has one row. Row numbers are given out here and only grow. `extras` keeps what only few ends
have. Counts of hosts are gathered, and written once per transaction (`finish`).
"""

import sqlite3
from operator import attrgetter, itemgetter
from typing import Any

from pyroaring import BitMap64

from covey.core.record.actions import RecordEnds
from covey.core.record.model import EndRecord, PilotId, Verdict
from covey.pilot.protocol.messages import End
from covey.store.sqlite.bulk_insert import Inserter
from covey.store.sqlite.end_extras import RICH, Extras
from covey.store.sqlite.rows import HOST_FAILURES, OUTCOME_CODES, last_line, pack

_OK = OUTCOME_CODES["ok"]
_LOST = OUTCOME_CODES["lost"]
_COUNTS, _WASTE = Verdict.COUNTS, Verdict.WASTE
# The columns of a row, in this order: those computed here, then the fields of the end and of its
# record that are columns of the same name.
_COMPUTED = ("row", "host", "outcome", "counted", "last_line")
_OF_END = (
    "epoch", "sequence", "bag", "task", "exit_code", "signal", "cpu_seconds", "memory_kb",
    "stdout_bytes", "stderr_bytes", "message",
)  # fmt: skip
_OF_RECORD = ("pilot", "sent", "fetched", "started", "ended", "delivered")
_end_values = itemgetter(*map(End._fields.index, _OF_END))
_record_values = attrgetter(*_OF_RECORD)
_PLAIN_COLUMNS = (*_COMPUTED, *_OF_END, *_OF_RECORD)
_RICH_COLUMNS = (*_PLAIN_COLUMNS, *RICH)
_ENOUGH = 2048 * len(_PLAIN_COLUMNS)  # gathered values are written when they are this many

# The counts of a host are gathered in a list, in the order of these columns.
_HOST_COLUMNS = "id, name, first, heard, done, failed"
_ID, _NAME, _FIRST, _HEARD, _DONE, _FAILED = range(6)
_AGAINST_HOST = frozenset(OUTCOME_CODES[outcome] for outcome in HOST_FAILURES)
_OWNER = "SELECT coalesce(json_extract(spec, '$.owner'), '') FROM bags WHERE id = ?"
_ADD_UP = """ON CONFLICT (id) DO UPDATE SET heard = max(heard, excluded.heard),
    done = done + excluded.done, failed = failed + excluded.failed"""


class Ends:
    """The ends of one connection. After an error, throw it away together with the connection."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        execute = connection.execute
        self.next_row: int = execute("SELECT coalesce(max(row), 0) + 1 FROM ends").fetchone()[0]
        over = "SELECT id FROM bags WHERE status NOT IN ('running', 'paused')"
        self.over = {id_ for (id_,) in execute(over)}
        self.touched: dict[int, None] = {}  # bags that are over, and have new results
        self._hosts: dict[str, int] = dict(execute("SELECT name, id FROM hosts").fetchall())
        self._tallies: dict[str, list[Any]] = {}  # of hosts, since the last `finish`
        self._extras = Extras(connection)
        self._lost: dict[int, BitMap64] = {}  # by epoch: attempts that may be recorded as lost
        query = "SELECT epoch, sequence FROM ends INDEXED BY lost WHERE outcome = 6 AND epoch > 0"
        for epoch, sequence in execute(query):
            self._remember_lost(epoch, sequence)
        self._values: list[Any] = []
        self._rich: list[Any] = []
        self._texts: list[Any] = []
        self._synced: dict[PilotId, int] = {}
        self._into_ends = _inserter(connection, _PLAIN_COLUMNS)
        self._into_rich = _inserter(connection, _RICH_COLUMNS)
        self._into_outputs = Inserter(connection, "INSERT INTO outputs", 3)
        latest = "ON CONFLICT (pilot) DO UPDATE SET number = max(number, excluded.number)"
        self._into_synced = Inserter(connection, "INSERT INTO synced", 2, latest)
        into_hosts = f"INSERT INTO hosts ({_HOST_COLUMNS})"
        self._into_hosts = Inserter(connection, into_hosts, 6, _ADD_UP)

    def record(self, change: RecordEnds) -> None:
        lost = self._lost
        for record in change.ends:
            verdict = record.verdict
            certain = not lost or record.end.epoch not in lost
            if verdict is _COUNTS and certain:
                self._add(record, 1)
            elif record.only_of and not self._is_of(record.end.bag, record.only_of):
                continue
            elif verdict is _WASTE and certain:
                self._add(record, 0)
            else:
                self._add_carefully(record)
        if change.number > 0:
            self.synced(change.pilot, change.number)
        if len(self._values) + len(self._rich) >= _ENOUGH:
            self.flush()

    def synced(self, pilot: PilotId, number: int) -> None:
        """All ends up to this sync of the pilot are recorded."""
        self._synced[pilot] = max(self._synced.get(pilot, 0), number)

    def flush(self) -> None:
        """Write what was gathered. Queries see it from here on."""
        if self._values:
            self._into_ends.insert(self._values)
            self._values = []
        if self._rich:
            self._into_rich.insert(self._rich)
            self._rich = []
        if self._texts:
            self._into_outputs.insert(self._texts)
            self._texts = []
        if self._synced:
            self._into_synced.insert([x for pair in self._synced.items() for x in pair])
            self._synced = {}
        self._extras.flush()

    def finish(self) -> None:
        """Called after all ends of the transaction: writes the counts of hosts, too."""
        self.flush()
        if self._tallies:
            tallies = self._tallies.values()
            self._into_hosts.insert([x for tally in tallies for x in tally])
            self._tallies = {}

    def host(self, name: str) -> int:
        """The number of a host, which may not have a row yet."""
        return self._hosts.setdefault(name, len(self._hosts) + 1)

    def reopened(self, bag: int) -> None:
        """The bag is not over any more. Its results are counted when they are asked for."""
        self.over.discard(bag)
        self.touched.pop(bag, None)

    def forget(self, bag: int) -> None:
        """The bag was purged."""
        self.reopened(bag)
        self._extras.forget(bag)

    def _add(self, record: EndRecord, counted: int) -> None:
        row = self.next_row
        self.next_row = row + 1
        end = record.end
        tally = self._tallies.get(record.host) or self._new_tally(record)
        outcome = OUTCOME_CODES[end.outcome]
        stdout = end.stdout
        if stdout or end.stderr:
            self._texts += (row, pack(stdout), pack(end.stderr))
        if counted and end.bag in self.over:
            self.touched[end.bag] = None
        if outcome == _OK:
            tally[_DONE] += 1
            tally[_HEARD] = record.delivered
        elif outcome == _LOST:
            self._remember_lost(end.epoch, end.sequence)
        else:
            tally[_FAILED] += outcome in _AGAINST_HOST
            tally[_HEARD] = record.delivered
        last = last_line(stdout) if stdout else ""
        rich = end.result or end.files or record.cause
        values = self._rich if rich else self._values
        values += (row, tally[_ID], outcome, counted, last)
        values += _end_values(end)
        values += _record_values(record)
        if rich:
            values += self._extras.keep(row, record, counted)

    def _add_carefully(self, record: EndRecord) -> None:
        epoch, sequence = record.attempt
        maybe_lost = epoch in self._lost and sequence > 0 and sequence in self._lost[epoch]
        if maybe_lost or record.verdict not in (Verdict.COUNTS, Verdict.WASTE):
            self.flush()
        inherits = maybe_lost and self._remove_lost(record.end)
        match record.verdict:
            case Verdict.COUNTS:
                counted = True
            case Verdict.WASTE:
                counted = inherits
            case Verdict.REPLACES:
                self._uncount_failure(record.end)
                counted = True
            case Verdict.LATE:
                counted = inherits or self._late_counts(record.end)
        self._add(record, int(counted))

    def _is_of(self, bag: int, owner: str) -> bool:
        row = self._connection.execute(_OWNER, (bag,)).fetchone()
        return row is not None and row[0] == owner

    def _remove_lost(self, end: End) -> bool:
        """Remove the row that says that the attempt was lost. Returns whether that row counted."""
        row = self._connection.execute(
            "SELECT row, counted FROM ends INDEXED BY lost "
            "WHERE outcome = 6 AND epoch = ? AND sequence = ? AND bag = ? AND task = ?",
            (end.epoch, end.sequence, end.bag, end.task),
        ).fetchone()
        if row is None:
            return False
        self._connection.execute("DELETE FROM ends WHERE row = ?", row[:1])
        self._connection.execute("DELETE FROM outputs WHERE row = ?", row[:1])
        return bool(row[1])

    def _late_counts(self, end: End) -> bool:
        """Whether a late success becomes its task's result: only if it has none, or failed."""
        where = (end.bag, end.task)
        leased = self._connection.execute(
            "SELECT stop FROM chunks WHERE bag = ? AND first <= ? ORDER BY first DESC LIMIT 1",
            where,
        ).fetchone()
        if leased is None or end.task >= leased[0]:
            return False  # no such task was ever sent
        result = self._connection.execute(
            "SELECT outcome FROM ends INDEXED BY counted "
            "WHERE bag = ? AND task = ? AND counted = 1",
            where,
        ).fetchone()
        if result is not None and result[0] == _OK:
            return False
        self._uncount_failure(end)
        return True

    def _uncount_failure(self, end: End) -> None:
        self._connection.execute(
            "UPDATE ends INDEXED BY failures SET counted = 0 "
            "WHERE bag = ? AND task = ? AND counted = 1 AND outcome <> 0",
            (end.bag, end.task),
        )

    def _new_tally(self, record: EndRecord) -> list[Any]:
        name = record.host
        first = 0.0 if name in self._hosts else record.delivered
        tally = [self.host(name), name, first, first, 0, 0]
        self._tallies[name] = tally
        return tally

    def _remember_lost(self, epoch: int, sequence: int) -> None:
        if epoch > 0 and sequence > 0:
            self._lost.setdefault(epoch, BitMap64()).add(sequence)


def _inserter(connection: sqlite3.Connection, columns: tuple[str, ...]) -> Inserter:
    return Inserter(connection, f"INSERT INTO ends ({', '.join(columns)})", len(columns))
