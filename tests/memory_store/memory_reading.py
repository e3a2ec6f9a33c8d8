"""Reading the record in plain dictionaries. Every answer is computed in the most direct way.
Results are filtered and sorted as `ResultRow`s.
"""

from collections.abc import Collection, Iterator
from itertools import groupby, islice

import msgspec
from msgspec import Struct, field

from covey.core.record import call_files
from covey.core.record.input_files import digests_in, summary, version_of, views_of
from covey.core.record.model import (
    BagId,
    BagRecord,
    BagStatus,
    ChunkRecord,
    EndRecord,
    JobId,
    JobRecord,
    JobStatus,
    PilotId,
    PilotRecord,
    PolicySpec,
    Reopening,
    Rows,
    Segment,
)
from covey.core.record.task_numbers import names_in, readings_in
from covey.core.values.causes import IGNORED_RESULT
from covey.core.values.columns import Column
from covey.core.values.comparisons import Comparison, holds
from covey.core.values.space import Point, Scalar
from covey.pilot.protocol.messages import CANCELLED, HOST, LOST, OK, End
from covey.ports import NamedFiles
from covey.store.results import columns, export, failures, queries
from covey.store.results.bag_views import MOST_IGNORED, class_views, inputs_view, is_silent
from covey.store.results.task_parameters import NO_PARAMETERS, Points
from covey.store.sqlite import rows
from covey.store.sqlite.site_jobs import job_view
from covey.wire import (
    BagView,
    BriefRow,
    FailureGroup,
    HostView,
    InputsView,
    Output,
    PilotView,
    ResultQuery,
    ResultRow,
    ReturnedFile,
    SiteJobView,
    WasteView,
)


class MemoryRow(Struct, eq=False):
    number: int
    record: EndRecord
    end: End  # the record's, without what was purged
    last_line: str | None = None  # of the output, if the output was purged

    def output(self) -> str:
        return rows.last_line(self.end.stdout) if self.last_line is None else self.last_line


class MemoryBag(Struct, eq=False):
    record: BagRecord
    ended: float = 0.0
    done: int = 0
    failed: int = 0
    stale: bool = False  # the bag is over, but got results since then
    keys: list[str] = field(default_factory=list)  # of appended segments
    reopenings: list[Reopening] = field(default_factory=list)
    afresh: list[set[int]] = field(default_factory=list)  # by reopening: tasks that started afresh
    result_names: dict[str, None] = field(default_factory=dict)
    chunks: dict[int, ChunkRecord] = field(default_factory=dict)
    rows: dict[int, list[MemoryRow]] = field(default_factory=dict)  # by task, oldest first
    result: dict[int, MemoryRow] = field(default_factory=dict)  # by task

    @property
    def calls(self) -> bool:
        """Whether the tasks are calls. Their arguments and values are pickled: they are not shown
        in tables."""
        return self.record.spec.calls

    def over(self) -> bool:
        return self.record.status not in (BagStatus.RUNNING, BagStatus.PAUSED)

    def failures(self) -> list[int]:
        return sorted(task for task, row in self.result.items() if row.end.outcome != OK)

    def recount(self) -> None:
        self.failed = len(self.failures())
        self.done = len(self.result) - self.failed

    def segments(self) -> list[Segment]:
        spec = self.record.spec
        return [Segment(space=spec.space, rows=spec.rows), *self.record.segments]


class _Tables:
    """The rows of files, from dictionaries."""

    def __init__(self, rows: dict[str, list[list[Scalar]]]) -> None:
        self._rows = rows

    def point(self, rows: Rows) -> Point:
        return self._rows[rows.digest].__getitem__


class MemoryReader:
    """`tables` are the rows of files, by digest."""

    def __init__(self, tables: dict[str, list[list[Scalar]]] | None = None) -> None:
        self._tables = _Tables({} if tables is None else tables)
        self._bags: dict[BagId, MemoryBag] = {}
        self._pilots: dict[PilotId, PilotRecord] = {}
        self._changed: dict[PilotId, float] = {}
        self._reasons: dict[PilotId, str] = {}
        self._jobs: dict[JobId, JobRecord] = {}
        self._hosts: dict[str, HostView] = {}

    def bags(self) -> list[BagView]:
        return [_view(self._bags[id_]) for id_ in sorted(self._bags, reverse=True)]

    def bag(self, bag: int) -> BagView | None:
        memory_bag = self._bags.get(BagId(bag))
        return None if memory_bag is None else _view(memory_bag)

    def results(self, bag: int, query: ResultQuery) -> list[ResultRow]:
        memory_bag = self._bags.get(BagId(bag))
        if memory_bag is None:
            return []
        asked = queries.understand(query, _table(memory_bag))
        page = self._all(memory_bag, asked)[: asked.page]
        return [*map(_brief, page)] if query.brief else page

    def export(self, bag: int, query: ResultQuery, form: str) -> Iterator[bytes]:
        memory_bag = self._bags.get(BagId(bag))
        if memory_bag is None:
            return
        table = _table(memory_bag)
        asked = queries.understand(query, table)
        sheet = export.ExportedTable(table, form, self._points(memory_bag).columns)
        if head := sheet.head():
            yield head
        wanted = self._all(memory_bag, asked)
        wanted = wanted[: query.limit] if query.limit > 0 else wanted
        reports = {row.number: row.end.result for row in memory_bag.result.values()}
        for start in range(0, len(wanted), export.PAGE):
            part = wanted[start : start + export.PAGE]
            exported = [_exported(row, reports[row.row]) for row in part]
            yield sheet.page(list(zip(*exported, strict=True)))

    def failures(self, bag: int, limit: int = 100) -> list[FailureGroup]:
        memory_bag = self._bags.get(BagId(bag))
        if memory_bag is None:
            return []

        def kind(record: EndRecord) -> tuple[str, str]:
            return record.cause, record.end.outcome

        ends = [memory_bag.result[task].record for task in memory_bag.failures()]
        groups = [_group(list(members)) for _, members in groupby(sorted(ends, key=kind), key=kind)]
        return sorted(groups, key=lambda group: (-group.count, group.example))[:limit]

    def failed_tasks(self, bag: int, causes: tuple[str, ...]) -> list[int]:
        memory_bag = self._bags.get(BagId(bag))
        tasks = [] if memory_bag is None else memory_bag.failures()
        results = memory_bag.result if memory_bag else {}
        by_task = {task: results[task].record.cause for task in tasks}
        every_cause = list(dict.fromkeys(by_task.values()))
        wanted = [failures.meant(cause, every_cause, bag) for cause in causes]
        return [task for task in tasks if by_task[task] in wanted]

    def waste(self, bag: int) -> WasteView:
        memory_bag = self._bags.get(BagId(bag))
        return WasteView() if memory_bag is None else _waste(memory_bag)

    def policy(self, bag: int) -> PolicySpec | None:
        memory_bag = self._bags.get(BagId(bag))
        if memory_bag is None:
            return None
        changed = memory_bag.record.policy
        return memory_bag.record.spec.policy if changed is None else changed

    def inputs(self, bag: int) -> InputsView | None:
        memory_bag = self._bags.get(BagId(bag))
        if memory_bag is None:
            return None
        return inputs_view(memory_bag.record.spec, memory_bag.record.input_versions)

    def files(self, bag: int, after: int = -1, limit: int = 1000) -> list[ReturnedFile]:
        memory_bag = self._bags.get(BagId(bag))
        if memory_bag is None:
            return []
        points = self._points(memory_bag)
        page: list[ReturnedFile] = []
        for row in sorted(memory_bag.result.values(), key=lambda row: row.number):
            if row.number <= after or not row.end.files:
                continue
            if page and len(page) + len(row.end.files) > limit:
                break
            page += _files(row, points)
        return page

    def hosts(self) -> list[HostView]:
        return sorted(
            map(msgspec.structs.replace, self._hosts.values()),
            key=lambda host: (-host.heard, host.host),
        )

    def named_files(self) -> NamedFiles:
        named = NamedFiles({}, {})
        for bag in self._bags.values():
            owner = bag.record.spec.owner
            if needed := {*_digests(bag), *_calls_to_make(bag)}:
                named.bags.setdefault(owner, set()).update(needed)
            if returned := set(_returned(bag)):
                named.returned.setdefault(owner, set()).update(returned)
        return named

    def host_owners(self) -> dict[str, set[str]]:
        owners: dict[str, set[str]] = {}
        for pilot in self._pilots.values():
            owners.setdefault(pilot.host, set()).add(pilot.owner)
        return owners

    def unfinished(self, bag: int, after: int = -1, limit: int = 1000) -> list[int]:
        memory_bag = self._bags.get(BagId(bag))
        if memory_bag is None:
            return []
        left = (
            task
            for task in range(max(0, after + 1), memory_bag.record.total)
            if task not in memory_bag.result
        )
        return list(islice(left, limit))

    def attempts(self, bag: int, task: int) -> list[ResultRow]:
        memory_bag = self._bags.get(BagId(bag))
        if memory_bag is None:
            return []
        points = self._points(memory_bag)
        return [_result(memory_bag, row, points) for row in memory_bag.rows.get(task, ())]

    def job_ends(self, pilots: Collection[int]) -> dict[int, str]:
        last = {pilot.job: id_ for id_, pilot in sorted(self._pilots.items())}
        jobs = ((id_, self._jobs.get(job)) for job, id_ in last.items() if id_ in pilots)
        return {
            id_: job.reason
            for id_, job in jobs
            if job is not None and job.status is JobStatus.ENDED
        }

    def site_jobs(self, site: str, owner: str | None = None, limit: int = 100) -> list[SiteJobView]:
        jobs = [job for job in self._jobs.values() if job.site == site]
        mine = [job for job in reversed(jobs) if owner is None or job.wanted_by == owner]
        hosts = {id_: pilot.host for id_, pilot in self._pilots.items()}
        return [job_view(job, hosts.get(PilotId(job.pilot), "")) for job in mine[:limit]]

    def output(self, bag: int, task: int) -> Output | None:
        memory_bag = self._bags.get(BagId(bag))
        if memory_bag is None or not memory_bag.rows.get(task):
            return None
        row = memory_bag.result.get(task) or memory_bag.rows[task][-1]
        end = row.end
        return Output(
            task=task,
            attempt=str(row.record.attempt),
            outcome=end.outcome,
            stdout=end.stdout,
            stderr=end.stderr,
        )

    def pilots(self, limit: int = 1000) -> list[PilotView]:
        newest = sorted(self._pilots, reverse=True)[:limit]
        return [self._pilot_view(self._pilots[id_]) for id_ in newest]

    def stop(self) -> None:
        """Nothing to interrupt: reading memory takes no time."""

    def close(self) -> None:
        """Nothing to close."""

    def _pilot_view(self, pilot: PilotRecord) -> PilotView:
        return PilotView(
            id=pilot.id,
            host=pilot.host,
            site=pilot.site,
            job=pilot.job,
            slots=pilot.slots,
            status=pilot.status,
            running=0,
            enrolled=pilot.enrolled,
            heard=max(pilot.enrolled, self._changed.get(pilot.id, 0.0)),
            tags=pilot.tags,
            version=pilot.version,
            memory_mb=pilot.memory_mb,
            gpus=pilot.gpus,
            owner=pilot.owner,
            reason="" if pilot.status == "active" else self._reasons.get(pilot.id, ""),
        )

    def _points(self, bag: MemoryBag) -> Points:
        return NO_PARAMETERS if bag.calls else Points(bag.segments(), self._tables)

    def _all(self, bag: MemoryBag, query: queries.Query) -> list[ResultRow]:
        """All results that the query asks for, from its place on, in order."""
        asked, points = query.asked, self._points(bag)
        results = [_result(bag, row, points) for row in bag.result.values()]
        chosen = [
            row
            for row in results
            if not (query.failed_only and row.outcome == OK)
            and all(_holds(comparison, row) for comparison in query.where)
        ]
        chosen.sort(key=lambda row: row.row if asked.by_row else row.task)
        if query.sort is not None:
            chosen = _sorted(chosen, query.sort, query.descending)
        else:
            chosen = [r for r in chosen if (r.row if asked.by_row else r.task) > asked.after]
        return chosen[asked.offset :]


def _sorted(results: list[ResultRow], column: Column, descending: bool) -> list[ResultRow]:
    """Rows without a value come last. Equal values are in the order of tasks."""
    results = sorted(results, key=lambda row: row.task)
    keys = {row.row: columns.sort_value(column, row) for row in results}
    some = [row for row in results if keys[row.row] is not None]
    none = [row for row in results if keys[row.row] is None]
    some.sort(key=lambda row: queries.sort_key(keys[row.row]), reverse=descending)
    return some + none


def _holds(comparison: Comparison, row: ResultRow) -> bool:
    column = comparison.column
    value, spelling = columns.value(column, row), columns.spelling(column, row)
    return holds(comparison, value, spelling)


def _table(bag: MemoryBag) -> list[Column]:
    return columns.columns(_names(bag), _result_names(bag), _readings(bag))


def _readings(bag: MemoryBag) -> list[str]:
    return [] if bag.calls else readings_in(bag.segments()[0])


def _names(bag: MemoryBag) -> list[str]:
    return [] if bag.calls else names_in(bag.segments()[0])


def _result_names(bag: MemoryBag) -> list[str]:
    return [] if bag.calls else list(bag.result_names)


def _exported(row: ResultRow, report: str) -> tuple[object, ...]:
    """What `export.NEEDED` names."""
    return *(own.value(row) for own in columns.OWN.values()), report if row.result else None


def _group(ends: list[EndRecord]) -> FailureGroup:
    """The group of these failed ends, which are in the order of tasks."""
    hosts = list(dict.fromkeys(record.host for record in ends))
    first = ends[0]
    return FailureGroup(
        cause=first.cause,
        outcome=first.end.outcome,
        count=len(ends),
        hosts=hosts[: failures.FIRST_HOSTS],
        host_count=len(hosts),
        tasks=[record.task for record in ends[: failures.FIRST_TASKS]],
        example=first.task,
        log=rows.last_lines(first.end.stderr, first.end.stdout),
    )


def _waste(bag: MemoryBag) -> WasteView:
    waste = WasteView()
    for row in (row for task in sorted(bag.rows) for row in bag.rows[task]):
        record, outcome, result = row.record, row.end.outcome, bag.result.get(row.record.task)
        if result is row:
            continue
        if outcome == CANCELLED:
            if result is not None and result.end.outcome == OK and result.number < row.number:
                waste.cancelled += 1
                waste.cancelled_seconds += record.ended - record.started
        elif outcome == OK:
            waste.discarded += 1
            waste.discarded_seconds += record.ended - record.started
        elif outcome in (LOST, HOST):
            waste.lost += 1
            waste.lost_seconds += record.delivered - record.sent if record.sent > 0 else 0.0
    return waste


def _files(row: MemoryRow, points: Points) -> list[ReturnedFile]:
    values = points.values(row.end.task)
    return [
        ReturnedFile(
            row=row.number,
            task=row.end.task,
            values=values,
            path=file.path,
            size=file.size,
            digest=file.digest,
            data=rows.file_content(file),
            executable=file.executable,
        )
        for file in row.end.files
    ]


def _view(bag: MemoryBag) -> BagView:
    if bag.stale or not bag.over():
        bag.recount()
    record, spec = bag.record, bag.record.spec
    return BagView(
        id=record.id,
        name=spec.name,
        owner=spec.owner,
        argv=list(spec.argv),
        names=_names(bag),
        readings=_readings(bag),
        status=record.status,
        reason=record.reason,
        open=record.open,
        calls=bag.calls,
        total=record.total,
        done=bag.done,
        failed=bag.failed,
        created=record.created,
        ended=bag.ended,
        retries=spec.retries,
        overtimes=spec.overtimes,
        grow_time=spec.grow_time,
        classes=class_views(spec, record.segments),
        idempotent=spec.idempotent,
        labels=spec.labels,
        notes=spec.notes,
        outputs=[*spec.outputs, *spec.optional_outputs],
        result_names=_result_names(bag),
        ignored_results=_ignored_results(bag),
        unkept=record.outputs.unkept,
        silent=is_silent(spec.calls, spec.chdir, record.status, bag.done, record.outputs),
        inputs=summary(spec, views_of(record.input_versions)),
    )


def _ignored_results(bag: MemoryBag) -> list[str]:
    first = f"{IGNORED_RESULT}: "
    ends = (row.record for rows_of_task in bag.rows.values() for row in rows_of_task)
    causes = sorted({record.cause for record in ends if record.cause.startswith(first)})
    return [cause.removeprefix(first) for cause in causes[:MOST_IGNORED]]


def _result(bag: MemoryBag, row: MemoryRow, points: Points) -> ResultRow:
    record, end = row.record, row.end
    return ResultRow(
        row=row.number,
        task=end.task,
        values=points.values(end.task),
        outcome=end.outcome,
        counted=bag.result.get(end.task) is row,
        exit_code=end.exit_code,
        signal=end.signal,
        attempt=str(record.attempt),
        pilot=record.pilot,
        host=record.host,
        sent=record.sent,
        fetched=record.fetched,
        started=record.started,
        ended=record.ended,
        delivered=record.delivered,
        wall_seconds=record.ended - record.started,
        cpu_seconds=end.cpu_seconds,
        memory_kb=end.memory_kb,
        stdout_bytes=end.stdout_bytes,
        stderr_bytes=end.stderr_bytes,
        message=end.message,
        output=row.output(),
        cause=record.cause,
        result=rows.reported(end.result) or {} if end.result else {},
        files=len(end.files),
        inputs_version=version_of(
            [version.first for version in bag.record.input_versions], record.attempt
        ),
    )


def _brief(row: ResultRow) -> BriefRow:
    return BriefRow(
        row=row.row,
        task=row.task,
        outcome=row.outcome,
        exit_code=row.exit_code,
        signal=row.signal,
        host=row.host,
        wall_seconds=row.wall_seconds,
        message=row.message,
        result=row.result,
        files=row.files,
    )


def _digests(bag: MemoryBag) -> Iterator[str]:
    """The digests of files that a bag names, except files of large calls."""
    spec = bag.record.spec
    yield from digests_in(spec)
    for version in bag.record.input_versions:
        yield from digests_in(version.changes)
    yield from (segment.rows.digest for segment in bag.segments() if segment.rows is not None)


def _returned(bag: MemoryBag) -> Iterator[str]:
    ends = [row.end for attempts in bag.rows.values() for row in attempts]
    yield from (file.digest for end in ends for file in end.files if file.digest)


def _call_files(bag: MemoryBag) -> dict[int, str]:
    """The digests of files of large calls, by task."""
    if not bag.calls:
        return {}
    blobs = (blob for segment in bag.segments() for blob in call_files.file_of_each(segment))
    return {task: blob.digest for task, blob in enumerate(blobs) if blob is not None}


def _calls_to_make(bag: MemoryBag) -> Iterator[str]:
    if bag.record.status is BagStatus.CANCELLED:
        return
    for task, digest in _call_files(bag).items():
        result = bag.result.get(task)
        if result is None or result.end.outcome != OK:
            yield digest
