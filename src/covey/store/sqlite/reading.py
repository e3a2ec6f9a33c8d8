"""Reading the SQLite record: in the server's process, in another process beside it, or without a
server. Every call is one short transaction and sees one state. An export is a transaction per page.
Pages are found through indexes, never by counting rows.
"""

import json
import sqlite3
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from itertools import chain
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from covey.core.errors import InvalidBag, InvalidQuery, PageTooLong, StoreError
from covey.core.record.input_files import LAST_VERSIONS, InputSummary, InputVersionView, summary
from covey.core.record.model import BagSpec, PolicySpec, Segment
from covey.core.record.task_needs import varies
from covey.core.record.task_numbers import check_segment, names_in, readings_in
from covey.core.values.causes import IGNORED_RESULT
from covey.core.values.columns import Column
from covey.core.values.space import ONE_TASK
from covey.pilot.protocol.messages import MOST_RESULT
from covey.ports import NamedFiles
from covey.store.results import export, failures, result_sql
from covey.store.results.bag_views import MOST_IGNORED, class_views, inputs_view, is_silent
from covey.store.results.columns import columns
from covey.store.results.queries import Query, understand
from covey.store.results.task_parameters import NO_PARAMETERS, Points, PointSource
from covey.store.sqlite import (
    connections,
    returned_files,
    rows,
    schema,
    site_jobs,
    snapshots,
    waste,
)
from covey.wire import (
    MOST_LISTED,
    BagView,
    ClassView,
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
    in_list,
)

_KEPT_HEADS = 10_000
_KEPT_POINTS = 64  # each may hold a long list of values
_LARGE = 1 << 18  # characters of values; of larger points, only one is kept in memory
_FETCHED = 100  # results at a time, if they are sorted

_BAGS = "SELECT id, status, reason, open, total, done, failed, created, ended, outputs FROM bags"
_EXPORTED_TEXTS = (export.NEEDED.index("result"),)
_HOST, _CAUSE = export.NEEDED.index("host"), export.NEEDED.index("cause")
_ALL_OF_TASK = """
    SELECT {columns} FROM ends INDEXED BY counted
    WHERE bag = ?1 AND task = ?2 AND counted = 1
    UNION ALL SELECT {columns} FROM ends INDEXED BY uncounted
    WHERE bag = ?1 AND task = ?2 AND counted = 0"""
_ATTEMPTS = _ALL_OF_TASK.format(columns=rows.RESULT_COLUMNS) + " ORDER BY row DESC"
_FOREMOST = (
    _ALL_OF_TASK.format(columns="row, counted, epoch, sequence, outcome")
    + " ORDER BY counted DESC, row DESC LIMIT 1"
)
_JOB_ENDS = """
    SELECT pilots.id, jobs.reason FROM pilots JOIN jobs ON jobs.id = pilots.job
    WHERE pilots.id IN (SELECT value FROM json_each(?)) AND jobs.status = 'ended'
    AND NOT EXISTS (SELECT 1 FROM pilots later WHERE later.job = jobs.id AND later.id > pilots.id)
"""

Kept = TypeVar("Kept")


class _Head(Struct):
    """What a view needs from a bag's spec. The spec never changes."""

    name: str
    owner: str
    argv: list[str]
    names: list[str]
    readings: list[str]
    retries: int
    overtimes: int
    grow_time: float
    classes: list[ClassView]
    grows: bool  # whether appended segments may add classes
    idempotent: bool
    labels: dict[str, str]
    notes: str
    outputs: list[str]
    calls: bool
    chdir: str
    inputs: InputSummary
    usable: bool  # whether the parameters can be computed


class _KeptPoints(Struct):
    """The parameters of a bag, valid as long as the bag has `total` tasks."""

    total: int
    points: Points


def is_old(path: Path) -> bool:
    """Whether the record must be converted before it is read. Other problems show when it is
    read."""
    try:
        with closing(connections.reading(path)) as connection:
            return 0 < schema.version(connection, path) < schema.newest()
    except (StoreError, sqlite3.Error, OSError):
        return False


class SqliteReader:
    """May be used by any thread, one at a time. Connects when first used. `tables` reads the rows
    of bags whose parameters come from files."""

    def __init__(self, path: Path, tables: PointSource | None = None) -> None:
        self.path = path
        self._tables = tables
        self._lock = Lock()
        self._connection: sqlite3.Connection | None = None
        self._heads: dict[int, _Head] = {}
        self._points: dict[int, _KeptPoints] = {}
        self._asked = Points([], None)  # of the bag that is read now

    def bags(self) -> list[BagView]:
        with self._reading() as connection:
            bag_rows = connection.execute(f"{_BAGS} ORDER BY id DESC").fetchall()
            return [in_list(self._view(connection, row)) for row in bag_rows]

    def bag(self, bag: int) -> BagView | None:
        with self._reading() as connection:
            row = connection.execute(f"{_BAGS} WHERE id = ?", (bag,)).fetchone()
            return None if row is None else self._view(connection, row)

    def results(self, bag: int, query: ResultQuery) -> list[ResultRow]:
        with self._reading() as connection:
            points = self._known_points(connection, bag)
            if points is None:
                return []
            asked = understand(query, self._table(connection, bag))
            columns, texts = rows.RESULT_COLUMNS, rows.RESULT_TEXTS
            if query.brief:
                columns, texts = rows.BRIEF_COLUMNS, rows.BRIEF_TEXTS
            if asked.sort is None:
                after, limit = query.after, asked.page
                result_rows = result_sql.page(connection, bag, points, asked, columns, after, limit)
            else:
                numbers = result_sql.sorted_rows(connection, bag, points, asked, asked.page)
                result_rows = chain.from_iterable(
                    result_sql.fetch(connection, bag, part, columns)
                    for part in result_sql.pages_of(numbers, _FETCHED)
                )
            page, short = result_sql.cut(result_rows, texts, points.width, query.most_bytes)
            if short and len(page) > 1:
                raise PageTooLong(query.most_bytes, len(page) - 1)
            if query.brief:
                return [*map(rows.brief_from, page)]
            firsts = _first_attempts(connection, bag)
            return [rows.result_from(row, points.values, firsts) for row in page]

    def export(self, bag: int, query: ResultQuery, form: str) -> Iterator[bytes]:
        with self._reading() as connection:
            points = self._known_points(connection, bag)
            if points is None:
                return
            table = self._table(connection, bag)
            newest = connection.execute("SELECT coalesce(max(row), 0) FROM ends").fetchone()
            asked = replace(understand(query, table), last_row=newest[0])
        sheet = export.ExportedTable(table, form, points.columns)
        if head := sheet.head():
            yield head
        hosts: dict[int | None, str] = {}
        causes: dict[int | None, str] = {None: ""}
        for page in self._pages(bag, asked):
            values: list[Sequence[Any]] = list(zip(*page, strict=True))
            values[_HOST] = self._named(hosts, "SELECT name FROM hosts", values[_HOST])
            values[_CAUSE] = self._named(causes, "SELECT text FROM causes", values[_CAUSE])
            yield sheet.page(values)

    def failures(self, bag: int, limit: int = 100) -> list[FailureGroup]:
        with self._reading() as connection:
            return failures.groups(connection, bag, limit)

    def failed_tasks(self, bag: int, causes: tuple[str, ...]) -> list[int]:
        with self._reading() as connection:
            return failures.tasks(connection, bag, causes)

    def waste(self, bag: int) -> WasteView:
        with self._reading() as connection:
            return waste.of(connection, bag)

    def policy(self, bag: int) -> PolicySpec | None:
        with self._reading() as connection:
            query = "SELECT spec, policy FROM bags WHERE id = ?"
            row = connection.execute(query, (bag,)).fetchone()
        if row is None:
            return None
        try:
            return rows.spec_from(row[0]).policy if row[1] is None else rows.policy_from(row[1])
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise InvalidQuery(f"the policy of bag {bag} cannot be read: {error}") from error

    def inputs(self, bag: int) -> InputsView | None:
        with self._reading() as connection:
            if connection.execute("SELECT 1 FROM bags WHERE id = ?", (bag,)).fetchone() is None:
                return None
            return inputs_view(_spec(connection, bag), snapshots.input_versions(connection, bag))

    def files(self, bag: int, after: int = -1, limit: int = 1000) -> list[ReturnedFile]:
        with self._reading() as connection:
            points = self._known_points(connection, bag)
            if points is None:
                return []
            return returned_files.page(connection, bag, points.values, after, limit)

    def hosts(self) -> list[HostView]:
        query = f"SELECT {rows.HOST_COLUMNS} FROM hosts ORDER BY heard DESC, name"
        with self._reading() as connection:
            return list(map(rows.host_from, connection.execute(query).fetchall()))

    def named_files(self) -> NamedFiles:
        with self._reading() as connection:
            return returned_files.named_files(connection)

    def host_owners(self) -> dict[str, set[str]]:
        owners: dict[str, set[str]] = {}
        with self._reading() as connection:
            for host, owner in connection.execute("SELECT DISTINCT host, owner FROM pilots"):
                owners.setdefault(host, set()).add(owner)
        return owners

    def unfinished(self, bag: int, after: int = -1, limit: int = 1000) -> list[int]:
        with self._reading() as connection:
            return snapshots.unfinished(connection, bag, after, limit)

    def attempts(self, bag: int, task: int) -> list[ResultRow]:
        with self._reading() as connection:
            points = self._known_points(connection, bag)
            if points is None:
                return []
            attempts = connection.execute(_ATTEMPTS, (bag, task))
            shown, _ = result_sql.cut(
                attempts, rows.RESULT_TEXTS, points.width, returned_files.PAGE_BYTES
            )
            firsts = _first_attempts(connection, bag)
            return [rows.result_from(row, points.values, firsts) for row in reversed(shown)]

    def job_ends(self, pilots: Collection[int]) -> dict[int, str]:
        with self._reading() as connection:
            return dict(connection.execute(_JOB_ENDS, (json.dumps(sorted(pilots)),)).fetchall())

    def site_jobs(self, site: str, owner: str | None = None, limit: int = 100) -> list[SiteJobView]:
        with self._reading() as connection:
            return site_jobs.views(connection, site, owner, limit)

    def output(self, bag: int, task: int) -> Output | None:
        with self._reading() as connection:
            exists = connection.execute("SELECT 1 FROM bags WHERE id = ?", (bag,)).fetchone()
            if exists is None:
                return None
            row = connection.execute(_FOREMOST, (bag, task)).fetchone()
            if row is None:
                return None
            number, _, epoch, sequence, outcome = row
            kept = connection.execute(
                "SELECT stdout, stderr FROM outputs WHERE row = ?", (number,)
            ).fetchone() or (None, None)
        return Output(
            task=task,
            attempt=f"{epoch}.{sequence}",
            outcome=rows.OUTCOMES[outcome],
            stdout=rows.unpack(kept[0]),
            stderr=rows.unpack(kept[1]),
        )

    def pilots(self, limit: int = 1000) -> list[PilotView]:
        query = f"SELECT {rows.VIEW_COLUMNS} FROM pilots ORDER BY id DESC LIMIT ?"
        with self._reading() as connection:
            return list(map(rows.pilot_view_from, connection.execute(query, (limit,)).fetchall()))

    def stop(self) -> None:
        connection = self._connection
        if connection is not None:
            with suppress(sqlite3.ProgrammingError):  # another thread has just closed it
                connection.interrupt()

    def close(self) -> None:
        """Interrupt a running query, and close."""
        self.stop()
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        """One transaction. It always ends here: an open one would keep the log from being
        emptied."""
        with self._lock, connections.failing(self.path, "read"):
            if self._connection is None:
                self._connection = _connect(self.path)
                result_sql.register(self._connection, lambda: self._asked)
            connection = self._connection
            try:
                connection.execute("BEGIN")
                yield connection
                connection.execute("COMMIT")
            except InvalidQuery:
                connection.execute("COMMIT")
                raise
            except BaseException:
                self._connection = None
                connection.close()
                raise

    def _pages(self, bag: int, query: Query) -> Iterator[list[tuple[Any, ...]]]:
        """All rows that the query asks for. Each page is read in its own transaction."""
        left = query.asked.limit if query.asked.limit > 0 else -1
        if query.sort is not None:
            with self._reading() as connection:
                points = self._known_points(connection, bag)
                if points is None:
                    return
                numbers = result_sql.sorted_rows(connection, bag, points, query, left)
            size = max(1, min(export.PAGE, export.PAGE_BYTES // (MOST_RESULT + points.width)))
            for part in result_sql.pages_of(numbers, size):
                with self._reading() as connection:
                    page = result_sql.fetch(connection, bag, part, result_sql.EXPORTED)
                if page:
                    yield page
            return
        after, by_row = query.asked.after, query.asked.by_row
        what = result_sql.EXPORTED + (", row" if by_row else "")
        while left != 0:
            size = export.PAGE if left < 0 else min(left, export.PAGE)
            with self._reading() as connection:
                points = self._known_points(connection, bag)
                if points is None:
                    return
                result_rows = result_sql.page(connection, bag, points, query, what, after, size)
                page, cut = result_sql.cut(
                    result_rows, _EXPORTED_TEXTS, points.width, export.PAGE_BYTES
                )
            if page:
                yield [row[:-1] for row in page] if by_row else page
            if len(page) < size and not cut:
                return
            after = page[-1][-1] if by_row else page[-1][0]
            left -= len(page) if left > 0 else 0

    def _named(
        self, known: dict[int | None, str], query: str, ids: Sequence[int | None]
    ) -> list[str]:
        """The texts of these ids. Those that are not in `known` are read, and added to it."""
        unknown = set(ids) - known.keys()
        if unknown:
            with self._reading() as connection:
                for id_ in unknown:
                    row = connection.execute(f"{query} WHERE id = ?", (id_,)).fetchone()
                    known[id_] = row[0] if row else ""
        return [known[id_] for id_ in ids]

    def _head(self, connection: sqlite3.Connection, bag: int) -> _Head:
        kept = self._heads.get(bag)
        if kept is not None:
            return kept
        spec, usable = _spec(connection, bag), True
        try:
            check_segment(_first(spec), may_be_empty=True)
        except InvalidBag:  # taken by an earlier version; the server has quarantined it
            spec, usable = replace(spec, space=ONE_TASK, rows=None), False
        head = _Head(
            name=spec.name,
            owner=spec.owner,
            argv=list(spec.argv),
            names=[] if spec.calls else names_in(_first(spec)),
            readings=[] if spec.calls else readings_in(_first(spec)),
            retries=spec.retries,
            overtimes=spec.overtimes,
            grow_time=spec.grow_time,
            classes=class_views(spec),
            grows=spec.open and varies(spec),
            idempotent=spec.idempotent,
            labels=spec.labels,
            notes=spec.notes,
            outputs=[*spec.outputs, *spec.optional_outputs],
            calls=spec.calls,
            chdir=spec.chdir,
            inputs=summary(spec, []),
            usable=usable,
        )
        labels = chain.from_iterable(spec.labels.items())
        size = sum(map(len, chain(spec.argv, head.names, head.outputs, labels, (head.notes,))))
        return _keep(self._heads, bag, head, _KEPT_HEADS if size < MOST_LISTED else 0)

    def _table(self, connection: sqlite3.Connection, bag: int) -> list[Column]:
        head = self._head(connection, bag)
        return columns(head.names, _result_names(connection, bag, head), head.readings)

    def _known_points(self, connection: sqlite3.Connection, bag: int) -> Points | None:
        """The bag's parameters, also for the SQL functions of the next statements. None if there is
        no such bag."""
        row = connection.execute("SELECT total FROM bags WHERE id = ?", (bag,)).fetchone()
        if row is None:
            return None
        head = self._head(connection, bag)
        if head.calls or not head.usable:
            self._asked = NO_PARAMETERS
            return NO_PARAMETERS
        kept = self._points.get(bag)
        if kept is None or kept.total != row[0]:
            appended = snapshots.segments(connection, bag)
            for segment in appended:
                check_segment(segment, may_be_empty=True)
            points = Points([_first(_spec(connection, bag)), *appended], self._tables)
            most = 1 if points.listed > _LARGE else _KEPT_POINTS
            kept = _keep(self._points, bag, _KeptPoints(row[0], points), most)
        self._asked = kept.points
        return kept.points

    def _view(self, connection: sqlite3.Connection, row: tuple[Any, ...]) -> BagView:
        id_, status, reason, open_, total, done, failed, created, ended, kept = row
        outputs = rows.outputs_from(kept)
        if status in ("running", "paused"):
            done, failed = snapshots.totals(connection, id_)
        head = self._head(connection, id_)
        classes = head.classes
        if head.grows:
            classes = class_views(_spec(connection, id_), snapshots.segments(connection, id_))
        return BagView(
            id=id_,
            name=head.name,
            owner=head.owner,
            argv=head.argv,
            names=head.names,
            readings=head.readings,
            status=status,
            reason=reason,
            open=bool(open_),
            calls=head.calls,
            total=total,
            done=done,
            failed=failed,
            created=created,
            ended=ended,
            retries=head.retries,
            overtimes=head.overtimes,
            grow_time=head.grow_time,
            classes=classes,
            idempotent=head.idempotent,
            labels=head.labels,
            notes=head.notes,
            outputs=head.outputs,
            result_names=_result_names(connection, id_, head),
            ignored_results=_ignored_results(connection, id_),
            unkept=outputs.unkept,
            silent=is_silent(head.calls, head.chdir, status, done, outputs),
            inputs=replace(head.inputs, versions=_input_versions(connection, id_)),
        )


def _keep(kept: dict[int, Kept], bag: int, new: Kept, most: int) -> Kept:
    """Keep a new item in memory. If there are more than `most`, the oldest are removed."""
    while kept and len(kept) >= most:
        del kept[next(iter(kept))]
    if most:
        kept[bag] = new
    return new


def _spec(connection: sqlite3.Connection, bag: int) -> BagSpec:
    (text,) = connection.execute("SELECT spec FROM bags WHERE id = ?", (bag,)).fetchone()
    try:
        return rows.spec_from(text)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return rows.shell_spec(text)


def _first(spec: BagSpec) -> Segment:
    return Segment(space=spec.space, rows=spec.rows)


def _result_names(connection: sqlite3.Connection, bag: int, head: _Head) -> list[str]:
    """Empty for calls: their values are pickled, and not shown in tables."""
    if head.calls:
        return []
    query = "SELECT name FROM result_names WHERE bag = ? ORDER BY place"
    return [name for (name,) in connection.execute(query, (bag,))]


def _ignored_results(connection: sqlite3.Connection, bag: int) -> list[str]:
    query = "SELECT text FROM causes WHERE bag = ? AND text >= ? AND text < ? ORDER BY text LIMIT ?"
    first, last = f"{IGNORED_RESULT}:", f"{IGNORED_RESULT};"
    causes = connection.execute(query, (bag, first, last, MOST_IGNORED))
    return [text.removeprefix(f"{IGNORED_RESULT}: ") for (text,) in causes]


def _input_versions(connection: sqlite3.Connection, bag: int) -> list[InputVersionView]:
    """The last versions of the bag's inputs."""
    query = (
        "SELECT number, at, files, names FROM input_versions WHERE bag = ? "
        "ORDER BY number DESC LIMIT ?"
    )
    versions = connection.execute(query, (bag, LAST_VERSIONS)).fetchall()
    return [rows.input_version_view_from(row) for row in reversed(versions)]


def _first_attempts(connection: sqlite3.Connection, bag: int) -> list[tuple[int, int]]:
    """The first attempt with each version of the bag's inputs, from the second version on."""
    query = "SELECT epoch, sequence FROM input_versions WHERE bag = ? ORDER BY number"
    return connection.execute(query, (bag,)).fetchall()


def _connect(path: Path) -> sqlite3.Connection:
    connection = connections.reading(path)
    try:
        found = schema.version(connection, path)
        if found == 0:
            raise StoreError(f"there is no record at {path}")
        if found < schema.newest():
            raise StoreError(f"{path} was written by an older covey: start a server to convert it")
    except BaseException:
        connection.close()
        raise
    return connection
