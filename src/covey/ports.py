"""Ports: what the engine needs from the world. A call returns nothing; its answer comes as an
event, posted to the engine. The server fills these ports with threads, sockets and processes, the
simulator with virtual ones."""

from collections.abc import Callable, Collection, Iterator
from typing import Protocol, TypeAlias

from msgspec import Struct

from covey.core.record.actions import Change, LoadRows, Note, Refuse, Reply, Write
from covey.core.record.events import Event
from covey.core.record.model import (
    BagId,
    BagSnapshot,
    JobRecord,
    PolicySpec,
    RequestId,
    SiteSpec,
    Snapshot,
)
from covey.wire import (
    BagView,
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


class NamedFiles(Struct, frozen=True):
    """The digests of all files in the record, by the owner of the bag: files that bags need, and
    files that their tasks returned."""

    bags: dict[str, set[str]] = {}
    returned: dict[str, set[str]] = {}

    def of(self, owner: str) -> set[str]:
        return self.bags.get(owner, set()) | self.returned.get(owner, set())


class StoreOpened(Struct, frozen=True):
    """The record is open, under a new durable epoch."""

    snapshot: Snapshot


class OpenFailed(Struct, frozen=True):
    reason: str


class CommitFailed(Struct, frozen=True):
    """Nothing after the last `Committed` is durable, or will be, until the store is opened
    again; the store has forgotten it."""

    reason: str


EngineEvent: TypeAlias = Event | StoreOpened | OpenFailed | CommitFailed


# How a port answers: hands an event to the engine, from whatever thread.
Post: TypeAlias = Callable[[EngineEvent], None]


class Clock(Protocol):
    def now(self) -> float:
        """Seconds since 1970, as they were at the start of the process plus what has passed
        since: a jump of the machine's clock does not move it."""
        ...


class Store(Protocol):
    def open(self) -> None:
        """Answers StoreOpened or OpenFailed. Also the way back after CommitFailed."""
        ...

    def write(self, write: Write) -> None:
        """Answers Committed, for this and all before it, or CommitFailed."""
        ...

    def load(self, request: RequestId, bag: BagId) -> None:
        """Answers BagLoaded, as of all earlier writes."""
        ...


class Tables(Protocol):
    """The files whose rows are parameters."""

    def load(self, load: LoadRows) -> None:
        """Answers RowsLoaded or RowsFailed."""
        ...


class Replies(Protocol):
    """Answers to requests."""

    def reply(self, reply: Reply) -> None: ...

    def refuse(self, refuse: Refuse) -> None: ...

    def unavailable(self, request: RequestId | None, reason: str) -> None:
        """The server cannot serve this request now (None: all open requests)."""
        ...


class Sites(Protocol):
    """docs/decisions/0014-pilots-by-demand.md has the rules."""

    def define(self, sites: tuple[SiteSpec, ...]) -> None:
        """These are the sites from now on: called first, and whenever they change. Answers
        SiteFailed or SiteAnswered when the state of a site changes."""
        ...

    def submit(self, jobs: tuple[JobRecord, ...]) -> None:
        """Jobs of one site, equal but for their ids. Answers JobSubmitted or JobRefused for each,
        or nothing while the outcome is unknown; later JobStarted or JobRequeued, and at the end
        JobEnded or JobVanished."""
        ...

    def watch(self, jobs: tuple[JobRecord, ...]) -> None:
        """Jobs that an earlier server submitted, or may have submitted: answers the same as for
        `submit`. All other jobs of this server at the sites are cancelled."""
        ...

    def cancel(self, jobs: tuple[JobRecord, ...]) -> None:
        """Jobs of one site, together. Their ends are reported as usual."""
        ...


class Log(Protocol):
    def note(self, note: Note) -> None: ...


class Record(Protocol):
    """The durable record behind a Store, one thread at a time; all calls may raise StoreFailed.

    tests/contract/test_record.py is its specification."""

    def open(self) -> Snapshot:
        """Take the next epoch, durably, and read what a server starts from."""
        ...

    def apply(self, changes: list[Change]) -> None:
        """All of these changes, durably, or none."""
        ...

    def tidy(self) -> float | None:
        """Do one short part of the work that purges have left, durably: remove rows, or give space
        back to the disk. Returns in how many seconds to call again; None: nothing is left."""
        ...

    def removing(self) -> frozenset[BagId]:
        """Purged bags whose rows are not all removed yet."""
        ...

    def load(self, bag: BagId) -> BagSnapshot | None: ...

    def close(self) -> None: ...


class Reader(Protocol):
    """Reading the record while another thread, or process, writes it."""

    def bags(self) -> list[BagView]:
        """Newest first."""
        ...

    def bag(self, bag: int) -> BagView | None: ...

    def results(self, bag: int, query: ResultQuery) -> list[ResultRow]:
        """Counted results. Raises InvalidQuery for an unknown column or a comparison with a
        mistake, and PageTooLong."""
        ...

    def export(self, bag: int, query: ResultQuery, form: str) -> Iterator[bytes]:
        """The same as a file, `csv` (with a header) or `jsonl`, in parts of some 100 kB: all
        results, unless the query has a limit."""
        ...

    def failures(self, bag: int, limit: int = 100) -> list[FailureGroup]: ...

    def failed_tasks(self, bag: int, causes: tuple[str, ...]) -> list[int]:
        """Given-up tasks of these causes. A cause may be shortened if it stays unique."""
        ...

    def waste(self, bag: int) -> WasteView:
        """At a cost that grows with what went wrong, not with the bag."""
        ...

    def policy(self, bag: int) -> PolicySpec | None:
        """The bag's policy; its last one if the bag is over."""
        ...

    def inputs(self, bag: int) -> InputsView | None:
        """The bag's input files, in the version that attempts get now."""
        ...

    def files(self, bag: int, after: int = -1, limit: int = 1000) -> list[ReturnedFile]:
        """Of counted results, in the order of rows, with the small files in them. No task's files
        are divided between two pages."""
        ...

    def hosts(self) -> list[HostView]:
        """The hosts that were heard last come first."""
        ...

    def named_files(self) -> NamedFiles: ...

    def host_owners(self) -> dict[str, set[str]]:
        """Whose pilots have been on each host; an owner of "" stands for everybody."""
        ...

    def unfinished(self, bag: int, after: int = -1, limit: int = 1000) -> list[int]:
        """The next tasks without a result, in order. The time does not grow with the number of
        tasks that have one."""
        ...

    def attempts(self, bag: int, task: int) -> list[ResultRow]:
        """Ended attempts of a task, oldest first: all, or the latest ones if they are very long."""
        ...

    def job_ends(self, pilots: Collection[int]) -> dict[int, str]:
        """How the site jobs of these pilots ended, by the last pilot of each job that has ended."""
        ...

    def site_jobs(self, site: str, owner: str | None = None, limit: int = 100) -> list[SiteJobView]:
        """The jobs of a site, newest first; `owner`: only those for that owner's tasks."""
        ...

    def output(self, bag: int, task: int) -> Output | None:
        """The output of the task's counted attempt, else of its latest."""
        ...

    def pilots(self, limit: int = 1000) -> list[PilotView]:
        """Newest first."""
        ...

    def stop(self) -> None:
        """Stop the call that another thread makes here: it raises TookTooLong. Without such a call
        nothing happens."""
        ...

    def close(self) -> None:
        """Close what is open. The reader may be used again."""
        ...
