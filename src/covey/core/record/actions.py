"""Actions: what core wants done. Named in the imperative; the engine carries them out through
ports.

Durable changes travel as `Write`, numbered in order; the store makes them durable in that order
and answers `Committed(through)`. Whatever must wait until a write is durable waits inside core.
"""

from enum import StrEnum
from typing import TypeAlias

from msgspec import Struct

from covey.core.record.histories import History, SiteHistory
from covey.core.record.model import (
    AS_BEFORE,
    BagId,
    BagRecord,
    BagStatus,
    EndRecord,
    InputVersion,
    JobId,
    JobOutcome,
    JobRecord,
    More,
    OutputSummary,
    PilotId,
    PilotRecord,
    PilotStatus,
    PolicySpec,
    RequestId,
    Rows,
    Segment,
    SiteRecord,
    SiteSpec,
    TokenRecord,
)
from covey.pilot.protocol.messages import Answer, Enrolled, Left


class SaveBag(Struct, frozen=True):
    bag: BagRecord


class SaveBagStatus(Struct, frozen=True):
    bag: BagId
    status: BagStatus
    at: float
    done: int
    failed: int
    reason: str = ""  # of a pause


class SaveOutputSummary(Struct, frozen=True):
    """The outputs of a bag's tasks so far."""

    bag: BagId
    outputs: OutputSummary


class AppendSegment(Struct, frozen=True):
    """The bag has `total` tasks now. `key`: of the request, if it had one."""

    bag: BagId
    segment: Segment
    total: int
    key: str = ""


class CloseBag(Struct, frozen=True):
    bag: BagId


class SaveInputVersion(Struct, frozen=True):
    """Attempts from now on get other input files."""

    bag: BagId
    version: InputVersion


class PurgeBag(Struct, frozen=True):
    """Remove a part of a bag that is over: `logs` (output of its tasks), `files` (that they
    returned), or `all`: then the bag does not exist any more."""

    bag: BagId
    what: str


class LeaseChunk(Struct, frozen=True):
    """Reserve task numbers first … stop-1: only then may they be dispatched."""

    bag: BagId
    first: int
    stop: int


class CloseChunk(Struct, frozen=True):
    """Every task of the chunk that starts at `first` has its result."""

    bag: BagId
    first: int


class RecordEnds(Struct, frozen=True):
    """Ends that came with sync `number` of a pilot (0: not from a sync)."""

    pilot: PilotId
    number: int
    ends: tuple[EndRecord, ...]


class ReopenFailed(Struct, frozen=True):
    """The failures of these tasks of a bag (None: of all) do not count any more, and the bag runs.
    The tasks start afresh, with `more`. With `done`, their successes do not count any more either;
    then `tasks` is not None."""

    bag: BagId
    at: float
    tasks: tuple[int, ...] | None = None
    more: More = AS_BEFORE
    done: bool = False


class SaveHost(Struct, frozen=True):
    """A pilot on this host was heard; `tags` are all tags that it publishes now."""

    host: str
    site: str
    slots: int
    at: float
    tags: dict[str, str]
    machine: str = ""


class SavePolicy(Struct, frozen=True):
    """The bag has this policy from now on."""

    bag: BagId
    policy: PolicySpec


class SaveHistory(Struct, frozen=True):
    """The history of a host that was saved before."""

    host: str
    history: History


class SaveToken(Struct, frozen=True):
    """A new token, or one that is revoked."""

    token: TokenRecord


class SavePilot(Struct, frozen=True):
    pilot: PilotRecord


class SavePilotStatus(Struct, frozen=True):
    pilot: PilotId
    status: PilotStatus
    at: float
    reason: str


class SaveJob(Struct, frozen=True):
    job: JobRecord


class SaveSite(Struct, frozen=True):
    site: SiteRecord


class SaveSiteHistory(Struct, frozen=True):
    site: str
    history: SiteHistory


class ForgetSite(Struct, frozen=True):
    """Also its jobs that ended, and what is remembered of it."""

    name: str


class EndJob(Struct, frozen=True):
    job: JobId
    at: float
    reason: str
    outcome: JobOutcome


Change: TypeAlias = (
    SaveBag
    | SaveBagStatus
    | SaveOutputSummary
    | AppendSegment
    | CloseBag
    | SaveInputVersion
    | PurgeBag
    | LeaseChunk
    | CloseChunk
    | RecordEnds
    | ReopenFailed
    | SaveHost
    | SavePolicy
    | SaveHistory
    | SaveToken
    | SavePilot
    | SavePilotStatus
    | SaveJob
    | SaveSite
    | SaveSiteHistory
    | ForgetSite
    | EndJob
)


class Write(Struct, frozen=True):
    number: int
    change: Change


class Submitted(Struct, frozen=True):
    """The answer to a submission."""

    bag: BagId
    total: int
    known: bool  # its key was submitted before


class Done(Struct, frozen=True):
    """The request is durable; it has changed `count` tasks."""

    count: int


class Tried(Struct, frozen=True):
    """The job that was submitted to try out a site."""

    job: JobId


class Issued(Struct, frozen=True):
    """A token is valid, durably."""

    id: int


ReplyMessage: TypeAlias = Answer | Enrolled | Left | Submitted | Done | Tried | Issued


class Reply(Struct, frozen=True):
    request: RequestId
    message: ReplyMessage


class Problem(StrEnum):
    """Why a request changed nothing."""

    INVALID = "invalid"
    NOT_FOUND = "not-found"
    STALE = "stale"
    OUT_OF_ORDER = "out-of-order"
    SUPERSEDED = "superseded"
    UNKNOWN_PILOT = "unknown-pilot"
    TOO_MANY = "too-many"
    INTERNAL = "internal"  # a bug of ours; the log has the traceback


class Refuse(Struct, frozen=True):
    request: RequestId
    problem: Problem
    detail: str


class LoadBag(Struct, frozen=True):
    """Read a bag that is not in memory; `BagLoaded` answers, after all earlier writes."""

    request: RequestId
    bag: BagId


class LoadRows(Struct, frozen=True):
    """Read rows first … stop-1 of a segment's file for a chunk; `RowsLoaded` or `RowsFailed`
    answers."""

    bag: BagId
    chunk: int
    rows: Rows
    first: int
    stop: int


class SubmitPilots(Struct, frozen=True):
    """Start site jobs that will enrol as pilots: all of one site, and equal but for their ids."""

    jobs: tuple[JobRecord, ...]


class CancelJobs(Struct, frozen=True):
    """Cancel site jobs, all of one site."""

    jobs: tuple[JobRecord, ...]


class DefineSites(Struct, frozen=True):
    """These are the sites, from now on."""

    sites: tuple[SiteSpec, ...]


class Note(Struct, frozen=True):
    """A line for the structured log: a decision of core, with ids."""

    what: str
    bag: int = 0
    task: int = -1
    attempt: str = ""
    pilot: int = 0
    job: str = ""
    detail: str = ""


Action: TypeAlias = (
    Write | Reply | Refuse | LoadBag | LoadRows | SubmitPilots | CancelJobs | DefineSites | Note
)
