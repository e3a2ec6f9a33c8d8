"""What each change does to the tables, inside a transaction that somebody else begins and ends.

A closed chunk is a promise that all its tasks have results: recovery will not look at them again.
So `finish` sees that the promise holds, at the end of the transaction that makes it.
"""

import sqlite3
from typing import assert_never

from covey.core.actions import (
    Change,
    CloseChunk,
    EndJob,
    LeaseChunk,
    RecordEnds,
    ReopenFailed,
    SaveBag,
    SaveBagStatus,
    SaveJob,
    SavePilot,
    SavePilotStatus,
)
from covey.core.model import BagId, BagRecord, BagStatus, JobRecord, JobStatus, PilotRecord
from covey.store import rows, snapshots
from covey.store.ends import Ends

_SAVE_PILOT = """
    INSERT INTO pilots (id, key, credential, host, slots, site, job, tags, version, enrolled,
                        status)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (id) DO UPDATE SET
        key = excluded.key, credential = excluded.credential, host = excluded.host,
        slots = excluded.slots, site = excluded.site, job = excluded.job, tags = excluded.tags,
        version = excluded.version, enrolled = excluded.enrolled, status = excluded.status"""
_SAVE_JOB = """
    INSERT INTO jobs (id, site, slots, submitted, status) VALUES (?, ?, ?, ?, ?)
    ON CONFLICT (id) DO UPDATE SET
        site = excluded.site, slots = excluded.slots, submitted = excluded.submitted,
        status = excluded.status"""
_REOPEN_CHUNKS = """
    UPDATE chunks SET closed = 0
    WHERE bag = ? AND closed = 1 AND EXISTS (
        SELECT 1 FROM ends INDEXED BY failures
        WHERE ends.bag = chunks.bag AND counted = 1 AND outcome <> 0
        AND task >= first AND task < stop)"""
_UNCOUNT_FAILURES = """
    UPDATE ends INDEXED BY failures SET counted = 0
    WHERE bag = ? AND counted = 1 AND outcome <> 0"""


class Changes:
    """Carries changes out. After an error it is thrown away with the connection."""

    def __init__(self, connection: sqlite3.Connection, epoch: int) -> None:
        self._execute = connection.execute
        self._connection = connection
        self._epoch = epoch
        self._ends = Ends(connection)
        self._closed: dict[tuple[BagId, int], None] = {}

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
            case ReopenFailed(bag, _):
                self._reopen_failed(bag)
            case SavePilot(pilot):
                self._save_pilot(pilot)
            case SavePilotStatus(pilot, status, at, reason):
                self._execute(
                    "UPDATE pilots SET status = ?, changed = ?, reason = ? WHERE id = ?",
                    (status.value, at, reason, pilot),
                )
            case SaveJob(job):
                self._save_job(job)
            case EndJob(job, at, reason):
                self._execute(
                    "UPDATE jobs SET status = ?, ended = ?, reason = ? WHERE id = ?",
                    (JobStatus.ENDED.value, at, reason, job),
                )
            case _:
                assert_never(change)

    def finish(self) -> None:
        """All changes of the transaction have been made: make the sums come right."""
        self._ends.flush()
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

    def _save_bag(self, bag: BagRecord) -> None:
        self._execute(
            "INSERT INTO bags (id, spec, key, total, status, created, first_row) "
            "VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                bag.id,
                rows.spec_text(bag.spec),
                bag.spec.key or None,
                bag.total,
                bag.status.value,
                bag.created,
                self._ends.next_row,
            ),
        )

    def _save_bag_status(self, change: SaveBagStatus) -> None:
        over = change.status is not BagStatus.RUNNING
        self._execute(
            "UPDATE bags SET status = ?, ended = ?, done = ?, failed = ?, last_row = ? "
            "WHERE id = ?",
            (
                change.status.value,
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
            self._ends.over.discard(change.bag)
            self._ends.touched.pop(change.bag, None)

    def _reopen_failed(self, bag: BagId) -> None:
        self._ends.flush()
        self._execute(_REOPEN_CHUNKS, (bag,))
        self._execute(_UNCOUNT_FAILURES, (bag,))
        self._execute(
            "UPDATE bags SET status = ?, ended = 0, tries_from = ?, last_row = NULL WHERE id = ?",
            (BagStatus.RUNNING.value, self._ends.next_row - 1, bag),
        )
        self._ends.over.discard(bag)
        self._ends.touched.pop(bag, None)

    def _save_pilot(self, pilot: PilotRecord) -> None:
        """A pilot that enrols again keeps the number of its last recorded sync."""
        self._execute(
            _SAVE_PILOT,
            (
                pilot.id,
                pilot.key,
                pilot.credential,
                pilot.host,
                pilot.slots,
                pilot.site,
                pilot.job,
                rows.tags_text(pilot.tags),
                pilot.version,
                pilot.enrolled,
                pilot.status.value,
            ),
        )
        if pilot.recorded > 0:
            self._ends.synced(pilot.id, pilot.recorded)

    def _save_job(self, job: JobRecord) -> None:
        self._execute(_SAVE_JOB, (job.id, job.site, job.slots, job.submitted, job.status.value))
