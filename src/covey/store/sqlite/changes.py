"""What each change does to the tables. The caller begins and ends the transaction.

A closed chunk promises that all its tasks have results: recovery does not look at them again. So
`finish` checks this promise at the end of the transaction that closes the chunk.
"""

import sqlite3
from typing import assert_never

from msgspec import to_builtins
from msgspec.structs import astuple
from pyroaring import BitMap

from covey.core.record.actions import (
    AppendSegment,
    Change,
    CloseBag,
    CloseChunk,
    EndJob,
    ForgetSite,
    LeaseChunk,
    PurgeBag,
    RecordEnds,
    ReopenFailed,
    SaveBag,
    SaveBagStatus,
    SaveHistory,
    SaveHost,
    SaveInputVersion,
    SaveJob,
    SaveOutputSummary,
    SavePilot,
    SavePilotStatus,
    SavePolicy,
    SaveSite,
    SaveSiteHistory,
    SaveToken,
)
from covey.core.record.model import (
    BagId,
    BagRecord,
    BagStatus,
    PilotRecord,
    Segment,
    TokenRecord,
)
from covey.store.sqlite import purge, rows, site_jobs, snapshots
from covey.store.sqlite.end_rows import Ends

_PILOT_FIELDS = tuple(name for name in PilotRecord.__struct_fields__ if name != "recorded")
_SAVE_PILOT = rows.saving("pilots", _PILOT_FIELDS, _PILOT_FIELDS[1:])
_SAVE_TOKEN = rows.saving("tokens", TokenRecord.__struct_fields__, ("revoked",))
_SAVE_HOST = """
    INSERT INTO hosts (id, name, first, heard, site, slots, tags, machine)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (id) DO UPDATE SET
        heard = max(heard, excluded.heard), site = excluded.site, slots = excluded.slots,
        tags = excluded.tags,
        machine = CASE excluded.machine WHEN '' THEN machine ELSE excluded.machine END"""
_SAVE_HISTORY = """
    INSERT INTO hosts (id, name, first, heard, history) VALUES (?1, ?2, ?3, ?3, ?4)
    ON CONFLICT (id) DO UPDATE SET history = excluded.history"""
_SAVE_INPUT_VERSION = """
    INSERT INTO input_versions SELECT ?1, coalesce(max(number), 1) + 1, ?2, ?3, ?4, ?5, ?6, ?7
    FROM input_versions WHERE bag = ?1"""
_OF_THESE = "(?2 IS NULL OR task IN (SELECT value FROM json_each(?2)))"
_REOPEN_CHUNKS = f"""
    UPDATE chunks SET closed = 0
    WHERE bag = ?1 AND closed = 1 AND EXISTS (
        SELECT 1 FROM ends INDEXED BY failures
        WHERE ends.bag = chunks.bag AND counted = 1 AND outcome <> 0
        AND task >= first AND task < stop AND {_OF_THESE})"""
_UNCOUNT_FAILURES = f"""
    UPDATE ends INDEXED BY failures SET counted = 0
    WHERE bag = ?1 AND counted = 1 AND outcome <> 0 AND {_OF_THESE}"""
FIRST_ROWS = 500  # of a purged bag: removed in the transaction of the purge
_REOPEN_CHUNKS_WITH = """
    UPDATE chunks SET closed = 0
    WHERE bag = ?1 AND closed = 1 AND EXISTS (
        SELECT 1 FROM json_each(?2) WHERE value >= first AND value < stop)"""
_UNCOUNT_RESULTS = """
    UPDATE ends INDEXED BY counted SET counted = 0
    WHERE bag = ?1 AND counted = 1 AND task IN (SELECT value FROM json_each(?2))"""
_OVER = (BagStatus.FINISHED, BagStatus.CANCELLED)


class Changes:
    """Carries out changes. After an error, throw it away together with the connection."""

    def __init__(self, connection: sqlite3.Connection, epoch: int) -> None:
        self._execute = connection.execute
        self._connection = connection
        self._epoch = epoch
        self._ends = Ends(connection)
        self._closed: dict[tuple[BagId, int], None] = {}
        self._jobs_ended: dict[str, None] = {}  # sites
        self.removals: list[purge.Removal] = []  # their first steps were made in this transaction

    def orphans(self) -> list[purge.Removal]:
        return purge.orphans(self._connection, self._ends.next_row - 1)

    def make(self, change: Change) -> None:
        match change:
            case RecordEnds():
                self._ends.record(change)
            case LeaseChunk(bag, first, stop):
                values = (bag, first, stop, self._epoch)
                self._execute(
                    "INSERT INTO chunks (bag, first, stop, epoch) VALUES (?, ?, ?, ?)", values
                )
            case CloseChunk(bag, first):
                self._execute(
                    "UPDATE chunks SET closed = 1 WHERE bag = ? AND first = ?", (bag, first)
                )
                self._closed[bag, first] = None
            case SaveBag(bag):
                self._save_bag(bag)
            case SaveBagStatus():
                self._save_bag_status(change)
            case SaveOutputSummary(bag, outputs):
                self._execute(
                    "UPDATE bags SET outputs = ? WHERE id = ?", (rows.json_text(outputs), bag)
                )
            case AppendSegment(bag, segment, total, key):
                self._append_segment(bag, segment, key)
                self._execute("UPDATE bags SET total = ? WHERE id = ?", (total, bag))
            case CloseBag(bag):
                self._execute("UPDATE bags SET open = 0 WHERE id = ?", (bag,))
            case SaveInputVersion(bag, version):
                self._execute(_SAVE_INPUT_VERSION, rows.input_version_row(bag, version))
            case SavePolicy(bag, policy):
                self._execute(
                    "UPDATE bags SET policy = ? WHERE id = ?", (rows.policy_text(policy), bag)
                )
            case PurgeBag(bag, what):
                self._purge(bag, what)
            case ReopenFailed():
                self._reopen_failed(change)
            case SaveHost():
                self._save_host(change)
            case SaveHistory():
                self._save_history(change)
            case SaveToken(token):
                self._save_token(token)
            case SavePilot(pilot):
                self._save_pilot(pilot)
            case SavePilotStatus(pilot, status, at, reason):
                self._execute(
                    "UPDATE pilots SET status = ?, changed = ?, reason = ? WHERE id = ?",
                    (status.value, at, reason, pilot),
                )
            case SaveJob(job):
                site_jobs.save(self._connection, job)
            case SaveSite(site):
                self._execute(
                    "INSERT OR REPLACE INTO sites (name, record) VALUES (?, ?)",
                    (site.spec.name, rows.json_text(site)),
                )
            case ForgetSite(name):
                self._execute("DELETE FROM sites WHERE name = ?", (name,))
                site_jobs.forget_all(self._connection, name)
            case SaveSiteHistory(name, history):
                self._execute(
                    "INSERT OR REPLACE INTO site_histories (name, history) VALUES (?, ?)",
                    (name, rows.json_text(history)),
                )
            case EndJob():
                self._jobs_ended[site_jobs.end(self._connection, change)] = None
            case _:
                assert_never(change)

    def finish(self) -> None:
        """Called after all changes of the transaction: updates totals, and checks closed chunks."""
        self._ends.finish()
        for bag in self._ends.touched:
            done, failed = snapshots.totals(self._connection, bag)
            self._execute(
                "UPDATE bags SET done = ?, failed = ?, last_row = ? WHERE id = ?",
                (done, failed, self._ends.next_row - 1, bag),
            )
        self._ends.touched = {}
        for bag, first in self._closed:
            left = snapshots.missing(self._connection, bag, first)
            if left:
                raise AssertionError(
                    f"chunk {first} of bag {bag} is closed, but {left} results are missing"
                )
        self._closed = {}
        site_jobs.forget_old(self._connection, self._jobs_ended)
        self._jobs_ended = {}

    def _save_bag(self, bag: BagRecord) -> None:
        self._execute(
            "INSERT INTO bags "
            "(id, spec, key, total, open, status, reason, created, first_row, policy, outputs) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                bag.id,
                rows.json_text(bag.spec),
                bag.spec.key or None,
                bag.total,
                int(bag.open),
                bag.status.value,
                bag.reason,
                bag.created,
                self._ends.next_row,
                rows.policy_text(bag.policy),
                rows.json_text(bag.outputs),
            ),
        )
        for segment in bag.segments:
            self._append_segment(bag.id, segment, "")
        for version in bag.input_versions:
            self._execute(_SAVE_INPUT_VERSION, rows.input_version_row(bag.id, version))

    def _append_segment(self, bag: BagId, segment: Segment, key: str) -> None:
        self._execute(
            "INSERT INTO segments SELECT ?1, coalesce(max(number), 0) + 1, ?2, ?3 "
            "FROM segments WHERE bag = ?1",
            (bag, rows.json_text(segment), key or None),
        )

    def _save_bag_status(self, change: SaveBagStatus) -> None:
        over = change.status in _OVER
        self._execute(
            "UPDATE bags SET status = ?, reason = ?, ended = ?, done = ?, failed = ?, "
            "last_row = ? WHERE id = ?",
            (
                change.status.value,
                change.reason,
                change.at if over else 0.0,
                change.done,
                change.failed,
                self._ends.next_row - 1 if over else None,
                change.bag,
            ),
        )
        if over:
            self._ends.over.add(change.bag)
        else:
            self._ends.reopened(change.bag)

    def _reopen_failed(self, change: ReopenFailed) -> None:
        bag, tasks = change.bag, change.tasks
        self._ends.flush()
        listed = None if tasks is None else rows.json_text(tasks)
        fresh = snapshots.failed(self._connection, bag) if tasks is None else tasks
        self._execute(_REOPEN_CHUNKS_WITH if change.done else _REOPEN_CHUNKS, (bag, listed))
        self._execute(_UNCOUNT_RESULTS if change.done else _UNCOUNT_FAILURES, (bag, listed))
        self._execute(
            "INSERT INTO reopenings SELECT ?1, count(*) + 1, ?2, ?3, ?4, ?5, ?6, ?7, ?8 "
            "FROM reopenings WHERE bag = ?1",
            (
                bag,
                self._ends.next_row - 1,
                int(tasks is not None),
                BitMap(fresh).serialize(),
                *astuple(change.more),
            ),
        )
        self._execute(
            "UPDATE bags SET status = ?, reason = '', ended = 0, last_row = NULL WHERE id = ?",
            (BagStatus.RUNNING.value, bag),
        )
        self._ends.reopened(bag)

    def _purge(self, bag: BagId, what: str) -> None:
        if bag not in self._ends.over:
            row = self._execute("SELECT 1 FROM bags WHERE id = ?", (bag,)).fetchone()
            assert not row, f"bag {bag} is not finished, and cannot be purged"
            return  # the bag was purged before
        self._ends.flush()
        removal = purge.begin(self._connection, bag, what, self._ends.next_row - 1)
        removal.step(self._connection, FIRST_ROWS)
        self.removals.append(removal)
        if what == "all":
            self._ends.forget(bag)

    def _save_host(self, change: SaveHost) -> None:
        self._ends.finish()
        self._execute(
            _SAVE_HOST,
            (
                self._ends.host(change.host),
                change.host,
                change.at,
                change.at,
                change.site,
                change.slots,
                rows.json_text(change.tags),
                change.machine,
            ),
        )

    def _save_history(self, change: SaveHistory) -> None:
        """This happens often. If the host has a row, the gathered ends need not be written now."""
        host, history = self._ends.host(change.host), rows.history_text(change.history)
        updated = self._execute("UPDATE hosts SET history = ? WHERE id = ?", (history, host))
        if updated.rowcount == 0:
            self._ends.finish()  # the first end of this host may be among the gathered ones
            self._execute(_SAVE_HISTORY, (host, change.host, change.history.at, history))

    def _save_token(self, token: TokenRecord) -> None:
        self._execute(_SAVE_TOKEN, to_builtins(token))

    def _save_pilot(self, pilot: PilotRecord) -> None:
        """A pilot that enrols again keeps the number of its last recorded sync."""
        self._execute(_SAVE_PILOT, {**to_builtins(pilot), "tags": rows.json_text(pilot.tags)})
        if pilot.recorded > 0:
            self._ends.synced(pilot.id, pilot.recorded)
