"""The record in plain dictionaries: for the simulator, where a server crashes and this stays, and
for tests. The same sequence of calls always gives the same answers.

It keeps every end in the order of recording, and per bag which end is each task's result. All
else is computed from that when asked, in the most direct way; the contract suite holds it and
SQLite to the same answers.
"""

from typing import assert_never

import msgspec
from msgspec import Struct, field

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
from covey.core.model import (
    BagId,
    BagRecord,
    BagSnapshot,
    BagStatus,
    ChunkRecord,
    EndRecord,
    JobId,
    JobRecord,
    JobStatus,
    PilotId,
    PilotRecord,
    PilotStatus,
    Snapshot,
    Verdict,
)
from covey.core.space import indexer, names
from covey.pilot.messages import LOST, OK
from covey.store.rows import OWN_FAILURES, last_line
from covey.wire import BagView, Output, PilotView, ResultRow


class _Row(Struct, eq=False):
    number: int
    end: EndRecord


class _Bag(Struct, eq=False):
    record: BagRecord
    ended: float = 0.0
    done: int = 0
    failed: int = 0
    stale: bool = False  # it is over, but got results since
    tries_from: int = 0
    chunks: dict[int, ChunkRecord] = field(default_factory=dict)
    rows: dict[int, list[_Row]] = field(default_factory=dict)  # by task, oldest first
    result: dict[int, _Row] = field(default_factory=dict)  # by task

    def over(self) -> bool:
        return self.record.status is not BagStatus.RUNNING

    def failures(self) -> list[int]:
        return sorted(task for task, row in self.result.items() if row.end.outcome != OK)

    def in_open_chunk(self, task: int) -> bool:
        return any(c.first <= task < c.stop for c in self.chunks.values() if not c.closed)

    def leased(self, task: int) -> bool:
        return any(c.first <= task < c.stop for c in self.chunks.values())

    def recount(self) -> None:
        self.failed = len(self.failures())
        self.done = len(self.result) - self.failed


class MemoryRecord:
    """Both the Record and its Reader."""

    def __init__(self) -> None:
        self._epoch = 0
        self._last_row = 0
        self._bags: dict[BagId, _Bag] = {}
        self._pilots: dict[PilotId, PilotRecord] = {}
        self._changed: dict[PilotId, float] = {}
        self._jobs: dict[JobId, JobRecord] = {}

    def open(self) -> Snapshot:
        self._epoch += 1
        bags = [self._bags[id_] for id_ in sorted(self._bags)]
        pilots = [self._pilots[id_] for id_ in sorted(self._pilots)]
        return Snapshot(
            epoch=self._epoch,
            bags=tuple(_snapshot(bag) for bag in bags if not bag.over()),
            pilots=tuple(pilot for pilot in pilots if pilot.status is not PilotStatus.LEFT),
            jobs=tuple(job for job in self._jobs.values() if job.status is not JobStatus.ENDED),
            next_bag=max(self._bags, default=0) + 1,
            next_pilot=max(self._pilots, default=0) + 1,
            keys=self._keys(),
        )

    def apply(self, changes: list[Change]) -> None:
        closed = []
        for change in changes:
            self._make(change)
            if isinstance(change, CloseChunk):
                closed.append(change)
        for change in closed:
            bag = self._bags[change.bag]
            chunk = bag.chunks[change.first]
            left = [t for t in range(chunk.first, chunk.stop) if t not in bag.result]
            assert not (chunk.closed and left), f"{change} is closed without results for {left}"

    def load(self, bag: BagId) -> BagSnapshot | None:
        return _snapshot(self._bags[bag]) if bag in self._bags else None

    def close(self) -> None:
        pass

    def bags(self) -> list[BagView]:
        return [_view(self._bags[id_]) for id_ in sorted(self._bags, reverse=True)]

    def bag(self, bag: int) -> BagView | None:
        found = self._bags.get(BagId(bag))
        return None if found is None else _view(found)

    def results(
        self,
        bag: int,
        after: int = -1,
        limit: int = 1000,
        *,
        by_row: bool = False,
        failed_only: bool = False,
    ) -> list[ResultRow]:
        found = self._bags.get(BagId(bag))
        if found is None:
            return []
        ordered = sorted(
            (row.number if by_row else task, row.number, row) for task, row in found.result.items()
        )
        wanted = [
            row
            for place, _, row in ordered
            if place > after and not (failed_only and row.end.outcome == OK)
        ]
        return [_result(found, row) for row in wanted[:limit]]

    def attempts(self, bag: int, task: int) -> list[ResultRow]:
        found = self._bags.get(BagId(bag))
        return [_result(found, row) for row in found.rows.get(task, ())] if found else []

    def output(self, bag: int, task: int) -> Output | None:
        found = self._bags.get(BagId(bag))
        if found is None or not found.rows.get(task):
            return None
        row = found.result.get(task) or found.rows[task][-1]
        end = row.end
        return Output(
            task=task,
            attempt=str(end.attempt),
            outcome=end.outcome,
            stdout=end.stdout,
            stderr=end.stderr,
        )

    def pilots(self, limit: int = 1000) -> list[PilotView]:
        newest = sorted(self._pilots, reverse=True)[:limit]
        return [_pilot_view(self._pilots[id_], self._changed.get(id_, 0.0)) for id_ in newest]

    def _make(self, change: Change) -> None:
        match change:
            case RecordEnds(pilot, number, ends):
                for end in ends:
                    self._record(end)
                if pilot in self._pilots:
                    self._synced(pilot, number)
            case LeaseChunk(bag, first, stop):
                assert first not in self._bags[bag].chunks
                self._bags[bag].chunks[first] = ChunkRecord(first=first, stop=stop, closed=False)
            case CloseChunk(bag, first):
                _set_closed(self._bags[bag], first, True)
            case SaveBag(new):
                assert new.id not in self._bags
                assert not new.spec.key or new.spec.key not in self._keys()
                self._bags[new.id] = _Bag(new)
            case SaveBagStatus():
                self._save_bag_status(change)
            case ReopenFailed(bag, _):
                _reopen(self._bags[bag], self._last_row)
            case SavePilot(pilot):
                known = self._pilots.get(pilot.id, pilot)
                self._pilots[pilot.id] = pilot
                self._synced(pilot.id, known.recorded)
            case SavePilotStatus(id_, status, at, _):
                record = self._pilots[id_]
                self._pilots[id_] = msgspec.structs.replace(record, status=status)
                self._changed[id_] = at
            case SaveJob(job):
                self._jobs[job.id] = job
            case EndJob(id_, _, _):
                job = self._jobs[id_]
                self._jobs[id_] = msgspec.structs.replace(job, status=JobStatus.ENDED)
            case _:
                assert_never(change)

    def _keys(self) -> dict[str, BagId]:
        records = [self._bags[id_].record for id_ in sorted(self._bags)]
        return {record.spec.key: record.id for record in records if record.spec.key}

    def _synced(self, pilot: PilotId, number: int) -> None:
        record = self._pilots[pilot]
        recorded = max(record.recorded, number)
        self._pilots[pilot] = msgspec.structs.replace(record, recorded=recorded)

    def _save_bag_status(self, change: SaveBagStatus) -> None:
        bag = self._bags[change.bag]
        bag.record = msgspec.structs.replace(bag.record, status=change.status)
        bag.ended = change.at if bag.over() else 0.0
        bag.done, bag.failed = change.done, change.failed

    def _record(self, end: EndRecord) -> None:
        self._last_row += 1
        bag = self._bags.get(end.bag)
        if bag is None:
            return
        row = _Row(self._last_row, end)
        rows = bag.rows.setdefault(end.task, [])
        inherits = _remove_lost(bag, rows, end)
        rows.append(row)
        if inherits or _counts(bag, end):
            bag.result[end.task] = row
            bag.stale = bag.over()


def _remove_lost(bag: _Bag, rows: list[_Row], end: EndRecord) -> bool:
    """An attempt has one row: its real end replaces its loss, and its place if it counted."""
    for row in rows:
        if row.end.attempt == end.attempt and row.end.outcome == LOST and end.attempt.epoch > 0:
            rows.remove(row)
            if bag.result.get(end.task) is row:
                del bag.result[end.task]
                return True
            return False
    return False


def _counts(bag: _Bag, end: EndRecord) -> bool:
    known = bag.result.get(end.task)
    match end.verdict:
        case Verdict.COUNTS:
            assert known is None, f"{end} counts, but so does {known}"
            return True
        case Verdict.REPLACES:
            assert known is None or known.end.outcome != OK, f"{end} replaces {known}"
            return True
        case Verdict.LATE:
            return bag.leased(end.task) and (known is None or known.end.outcome != OK)
        case Verdict.WASTE:
            return False


def _set_closed(bag: _Bag, first: int, closed: bool) -> None:
    bag.chunks[first] = msgspec.structs.replace(bag.chunks[first], closed=closed)


def _reopen(bag: _Bag, last_row: int) -> None:
    for task in bag.failures():
        for first, chunk in bag.chunks.items():
            if first <= task < chunk.stop:
                _set_closed(bag, first, False)
        del bag.result[task]
    bag.record = msgspec.structs.replace(bag.record, status=BagStatus.RUNNING)
    bag.ended = 0.0
    bag.tries_from = last_row


def _snapshot(bag: _Bag) -> BagSnapshot:
    done = [task for task, row in bag.result.items() if row.end.outcome == OK]
    return BagSnapshot(
        bag=bag.record,
        chunks=tuple(bag.chunks[first] for first in sorted(bag.chunks)),
        open_done=tuple(sorted(task for task in done if bag.in_open_chunk(task))),
        failed=tuple(bag.failures()),
        tries=_tries(bag),
    )


def _tries(bag: _Bag) -> dict[int, int]:
    tries = {}
    for task in sorted(bag.rows):
        if task in bag.result or not bag.in_open_chunk(task):
            continue
        count = sum(
            1
            for row in bag.rows[task]
            if row.end.outcome in OWN_FAILURES and row.number > bag.tries_from
        )
        if count:
            tries[task] = count
    return tries


def _view(bag: _Bag) -> BagView:
    if bag.stale or not bag.over():
        bag.recount()
    spec = bag.record.spec
    return BagView(
        id=bag.record.id,
        name=spec.name,
        owner=spec.owner,
        argv=list(spec.argv),
        names=names(spec.space),
        status=bag.record.status,
        total=bag.record.total,
        done=bag.done,
        failed=bag.failed,
        created=bag.record.created,
        ended=bag.ended,
        retries=spec.retries,
        limit_seconds=spec.limit_seconds,
        idempotent=spec.idempotent,
    )


def _result(bag: _Bag, row: _Row) -> ResultRow:
    end = row.end
    inside = 0 <= end.task < bag.record.total
    return ResultRow(
        row=row.number,
        task=end.task,
        values=indexer(bag.record.spec.space)(end.task) if inside else [],
        outcome=end.outcome,
        counted=bag.result.get(end.task) is row,
        exit_code=end.exit_code,
        signal=end.signal,
        attempt=str(end.attempt),
        pilot=end.pilot,
        host=end.host,
        sent=end.sent,
        fetched=end.fetched,
        started=end.started,
        ended=end.ended,
        delivered=end.delivered,
        wall_seconds=end.ended - end.started,
        cpu_seconds=end.cpu_seconds,
        memory_kb=end.memory_kb,
        stdout_bytes=end.stdout_bytes,
        stderr_bytes=end.stderr_bytes,
        message=end.message,
        output=last_line(end.stdout),
    )


def _pilot_view(pilot: PilotRecord, changed: float) -> PilotView:
    return PilotView(
        id=pilot.id,
        host=pilot.host,
        site=pilot.site,
        job=pilot.job,
        slots=pilot.slots,
        status=pilot.status,
        running=0,
        enrolled=pilot.enrolled,
        heard=max(pilot.enrolled, changed),
        tags=pilot.tags,
        version=pilot.version,
    )
