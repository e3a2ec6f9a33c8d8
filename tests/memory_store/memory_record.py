"""The record in plain dictionaries, for the simulator and for tests. In the simulator it survives
when the server crashes. The same sequence of calls always gives the same answers.

It keeps every end in the order of recording, and for each bag the end that is the result of each
task. Everything else is computed from that. The contract suite checks that it and SQLite give the
same answers.
"""

from typing import assert_never

import msgspec

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
    BagSnapshot,
    BagStatus,
    ChunkRecord,
    EndRecord,
    JobRecord,
    JobStatus,
    PilotId,
    PilotStatus,
    Reopening,
    Snapshot,
    TokenRecord,
    Verdict,
)
from covey.core.values.space import Scalar
from covey.pilot.protocol.messages import LOST, MEMORY, OK, OWN_FAILURES, TIMEOUT
from covey.store.results import columns
from covey.store.sqlite import rows, site_jobs
from covey.wire import HostView
from tests.memory_store.memory_reading import MemoryBag, MemoryReader, MemoryRow


class MemoryRecord(MemoryReader):
    """Both the Record and its Reader."""

    def __init__(self, tables: dict[str, list[list[Scalar]]] | None = None) -> None:
        super().__init__(tables)
        self._epoch = 0
        self._last_row = 0
        self._last_purged = 0
        self._sites: dict[str, str] = {}
        self._site_histories: dict[str, str] = {}
        self._tokens: dict[int, TokenRecord] = {}
        self._histories: dict[str, str] = {}  # by host; as text, because core changes its own copy

    def open(self) -> Snapshot:
        self._epoch += 1
        bags = [self._bags[id_] for id_ in sorted(self._bags)]
        pilots = [self._pilots[id_] for id_ in sorted(self._pilots)]
        return Snapshot(
            epoch=self._epoch,
            bags=tuple(_snapshot(bag) for bag in bags if not bag.over()),
            pilots=tuple(pilot for pilot in pilots if pilot.status is not PilotStatus.LEFT),
            jobs=tuple(job for job in self._jobs.values() if job.status is not JobStatus.ENDED),
            ended_jobs=self._measured(),
            sites=tuple(rows.site_from(self._sites[name]) for name in sorted(self._sites)),
            next_bag=max([self._last_purged, *self._bags]) + 1,
            next_pilot=max(self._pilots, default=0) + 1,
            keys=self._keys(),
            hosts={host.machine: host.host for host in self._hosts.values() if host.machine},
            histories={name: rows.history_from(text) for name, text in self._histories.items()},
            site_histories={
                name: rows.site_history_from(text)
                for name, text in sorted(self._site_histories.items())
            },
            tokens=tuple(self._tokens[id_] for id_ in sorted(self._tokens) if self._valid(id_)),
            next_token=max(self._tokens, default=0) + 1,
        )

    def apply(self, changes: list[Change]) -> None:
        closed = []
        for change in changes:
            self._make(change)
            if isinstance(change, CloseChunk):
                closed.append(change)
        for change in closed:
            bag = self._bags.get(change.bag)
            if bag is None:
                continue
            chunk = bag.chunks[change.first]
            left = [t for t in range(chunk.first, chunk.stop) if t not in bag.result]
            assert not (chunk.closed and left), f"{change} is closed without results for {left}"

    def tidy(self) -> float | None:
        return None

    def removing(self) -> frozenset[BagId]:
        return frozenset()

    def load(self, bag: BagId) -> BagSnapshot | None:
        return _snapshot(self._bags[bag]) if bag in self._bags else None

    def close(self) -> None:
        pass

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
                self._bags[new.id] = MemoryBag(new)
            case SaveBagStatus():
                self._save_bag_status(change)
            case AppendSegment():
                _append(self._bags[change.bag], change)
            case CloseBag(bag):
                _change(self._bags[bag], open=False)
            case SaveInputVersion(bag, version):
                versions = self._bags[bag].record.input_versions
                _change(self._bags[bag], input_versions=(*versions, version))
            case SavePolicy(bag, policy):
                _change(self._bags[bag], policy=policy)
            case SaveOutputSummary(bag, outputs):
                _change(self._bags[bag], outputs=outputs)
            case PurgeBag(bag, what):
                self._purge(bag, what)
            case ReopenFailed():
                _reopen(self._bags[change.bag], change, self._last_row)
            case SaveHost():
                self._save_host(change)
            case SaveHistory():
                self._save_history(change)
            case SaveToken(token):
                self._tokens[token.id] = token
            case SavePilot() | SavePilotStatus():
                self._save_pilot(change)
            case SaveJob(job):
                self._jobs[job.id] = job
            case SaveSite(site):
                self._sites[site.spec.name] = rows.json_text(site)
            case SaveSiteHistory(name, history):
                self._site_histories[name] = rows.json_text(history)
            case ForgetSite(name):
                self._sites.pop(name, None)
                self._site_histories.pop(name, None)
                self._forget_jobs(name, 0)
            case EndJob(id_, at, reason, outcome):
                job = self._jobs[id_]
                self._jobs[id_] = msgspec.structs.replace(
                    job, status=JobStatus.ENDED, ended=at, reason=reason, outcome=outcome
                )
                self._forget_jobs(job.site, site_jobs.MOST_ENDED)
            case _:
                assert_never(change)

    def _ended(self, site: str) -> list[JobRecord]:
        jobs = self._jobs.values()
        return [job for job in jobs if job.site == site and job.status is JobStatus.ENDED]

    def _forget_jobs(self, site: str, most: int) -> None:
        """All that ended but the latest ones."""
        ended = self._ended(site)
        for job in ended[: max(0, len(ended) - most)]:
            del self._jobs[job.id]

    def _measured(self) -> tuple[JobRecord, ...]:
        ended = (job for job in self._jobs.values() if job.status is JobStatus.ENDED)
        known = [job for job in ended if job.outcome]
        sites = dict.fromkeys(job.site for job in known)
        latest = {
            job.id
            for site in sites
            for job in [job for job in known if job.site == site][-site_jobs.MOST_MEASURED :]
        }
        return tuple(job for job in known if job.id in latest)

    def _keys(self) -> dict[str, BagId]:
        records = [self._bags[id_].record for id_ in sorted(self._bags)]
        return {record.spec.key: record.id for record in records if record.spec.key}

    def _valid(self, token: int) -> bool:
        return not self._tokens[token].revoked

    def _save_pilot(self, change: SavePilot | SavePilotStatus) -> None:
        if isinstance(change, SavePilot):
            pilot = change.pilot
            before = self._pilots.get(pilot.id, pilot)
            self._pilots[pilot.id] = pilot
            self._synced(pilot.id, before.recorded)
        else:
            record = self._pilots[change.pilot]
            self._pilots[record.id] = msgspec.structs.replace(record, status=change.status)
            self._changed[record.id] = change.at
            self._reasons[record.id] = change.reason

    def _synced(self, pilot: PilotId, number: int) -> None:
        record = self._pilots[pilot]
        recorded = max(record.recorded, number)
        self._pilots[pilot] = msgspec.structs.replace(record, recorded=recorded)

    def _save_bag_status(self, change: SaveBagStatus) -> None:
        bag = self._bags[change.bag]
        _change(bag, status=change.status, reason=change.reason)
        bag.ended = change.at if bag.over() else 0.0
        bag.done, bag.failed = change.done, change.failed

    def _purge(self, id_: BagId, what: str) -> None:
        bag = self._bags.get(id_)
        if bag is None:
            return  # the bag was purged before
        assert bag.over(), f"bag {id_} is not finished, and cannot be purged"
        assert what in ("logs", "files", "all"), what
        if what == "all":
            del self._bags[id_]
            self._last_purged = max(self._last_purged, id_)
        for row in (row for attempts in bag.rows.values() for row in attempts):
            if what == "files":
                row.end = row.end._replace(files=[])
            else:
                row.last_line = row.output()
                row.end = row.end._replace(stdout="", stderr="")

    def _save_host(self, change: SaveHost) -> None:
        host = self._host(change.host, change.at)
        host.site, host.slots, host.tags = change.site, change.slots, change.tags
        host.heard = max(host.heard, change.at)
        host.machine = change.machine or host.machine

    def _save_history(self, change: SaveHistory) -> None:
        self._host(change.host, change.history.at)
        if text := rows.history_text(change.history):
            self._histories[change.host] = text
        else:
            self._histories.pop(change.host, None)

    def _host(self, name: str, at: float) -> HostView:
        view = self._hosts.get(name)
        if view is None:
            view = self._hosts[name] = HostView(
                host=name,
                site="",
                slots=0,
                pilots=0,
                running=0,
                first=at,
                heard=at,
                done=0,
                failed=0,
                tags={},
            )
        return view

    def _record(self, record: EndRecord) -> None:
        end = record.end
        if record.only_of:
            named = self._bags.get(record.bag)
            if named is None or named.record.spec.owner != record.only_of:
                return
        self._last_row += 1
        host = self._host(record.host, record.delivered)
        host.done += end.outcome == OK
        host.failed += end.outcome in rows.HOST_FAILURES
        if end.outcome != LOST:
            host.heard = max(host.heard, record.delivered)
        bag = self._bags.get(record.bag)
        if bag is None:
            return
        row = MemoryRow(self._last_row, record, end)
        attempts = bag.rows.setdefault(end.task, [])
        inherits = _remove_lost(bag, attempts, record)
        attempts.append(row)
        if inherits or _counts(bag, record):
            bag.result[end.task] = row
            bag.stale = bag.over()
            if end.result:
                report = rows.reported(end.result) or {}
                columns.names_in(report, bag.result_names, rows.MOST_RESULT_NAMES)


def _change(bag: MemoryBag, **fields: object) -> None:
    bag.record = msgspec.structs.replace(bag.record, **fields)


def _append(bag: MemoryBag, change: AppendSegment) -> None:
    assert not change.key or change.key not in bag.keys
    bag.keys += [change.key] if change.key else []
    _change(bag, segments=(*bag.record.segments, change.segment), total=change.total)


def _remove_lost(bag: MemoryBag, attempts: list[MemoryRow], record: EndRecord) -> bool:
    """Remove the row that says that this attempt was lost: an attempt has only one row. Returns
    whether that row was the result of its task; then the real end takes its place."""
    for row in attempts:
        same = row.record.attempt == record.attempt and record.attempt.epoch > 0
        if same and row.end.outcome == LOST:
            attempts.remove(row)
            if bag.result.get(record.task) is row:
                del bag.result[record.task]
                return True
            return False
    return False


def _counts(bag: MemoryBag, record: EndRecord) -> bool:
    result = bag.result.get(record.task)
    match record.verdict:
        case Verdict.COUNTS:
            assert result is None, f"{record} counts, but so does {result}"
            return True
        case Verdict.REPLACES:
            assert result is None or result.end.outcome != OK, f"{record} replaces {result}"
            return True
        case Verdict.LATE:
            leased = any(c.first <= record.task < c.stop for c in bag.chunks.values())
            return leased and (result is None or result.end.outcome != OK)
        case Verdict.WASTE:
            return False


def _set_closed(bag: MemoryBag, first: int, closed: bool) -> None:
    bag.chunks[first] = msgspec.structs.replace(bag.chunks[first], closed=closed)


def _reopen(bag: MemoryBag, change: ReopenFailed, last_row: int) -> None:
    tasks = None if change.tasks is None else tuple(sorted(set(change.tasks)))
    bag.afresh.append(set(bag.failures() if tasks is None else tasks))
    for task in sorted(bag.result) if change.done else bag.failures():
        if tasks is not None and task not in tasks:
            continue
        for first, chunk in bag.chunks.items():
            if first <= task < chunk.stop:
                _set_closed(bag, first, False)
        del bag.result[task]
    _change(bag, status=BagStatus.RUNNING, reason="")
    bag.ended = 0.0
    bag.reopenings.append(Reopening(row=last_row, tasks=tasks, more=change.more))


def _snapshot(bag: MemoryBag) -> BagSnapshot:
    done = [task for task, row in bag.result.items() if row.end.outcome == OK]
    return BagSnapshot(
        bag=bag.record,
        chunks=tuple(bag.chunks[first] for first in sorted(bag.chunks)),
        open_done=tuple(sorted(task for task in done if _in_open_chunk(bag, task))),
        failed=tuple(bag.failures()),
        tries=_failures(bag, tuple(own for own in OWN_FAILURES if own != TIMEOUT)),
        overtimes=_failures(bag, (TIMEOUT,)),
        short=_failures(bag, (MEMORY,)),
        reopenings=tuple(bag.reopenings),
        keys=tuple(bag.keys),
    )


def _in_open_chunk(bag: MemoryBag, task: int) -> bool:
    return any(c.first <= task < c.stop for c in bag.chunks.values() if not c.closed)


def _failures(bag: MemoryBag, outcomes: tuple[str, ...]) -> dict[int, int]:
    """How often each unfinished task ended with these outcomes since it was last reopened."""
    counts = {}
    for task in sorted(bag.rows):
        if task in bag.result or not _in_open_chunk(bag, task):
            continue
        pairs = zip(bag.reopenings, bag.afresh, strict=True)
        start = max((reopening.row for reopening, afresh in pairs if task in afresh), default=0)
        ends = [row.end for row in bag.rows[task] if row.number > start]
        if count := sum(end.outcome in outcomes for end in ends):
            counts[task] = count
    return counts
