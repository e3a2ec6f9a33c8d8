"""What happened. Past tense; each carries its cause, if only a request's number.

Requests come from pilots and clients; the rest are the answers of ports. Every action that can
fail has an event that says so.
"""

from typing import TypeAlias

from msgspec import Struct

from covey.core.record.capacity import SiteCapacity
from covey.core.record.model import (
    BagId,
    BagSnapshot,
    BagSpec,
    InputChanges,
    JobId,
    PilotId,
    PolicySpec,
    RequestId,
    Role,
    Segment,
    SiteSpec,
    SiteStatus,
)
from covey.core.values.space import Scalar
from covey.pilot.protocol.messages import Enrol, Leave, Sync


class BagSubmitted(Struct, frozen=True):
    request: RequestId
    spec: BagSpec


class SegmentAppended(Struct, frozen=True):
    """More tasks for an open bag. Equal keys are one request, however often it is sent."""

    request: RequestId
    bag: BagId
    segment: Segment
    key: str = ""


class CloseRequested(Struct, frozen=True):
    """No more tasks will follow: the bag may finish."""

    request: RequestId
    bag: BagId


class CancelRequested(Struct, frozen=True):
    request: RequestId
    bag: BagId


class PauseRequested(Struct, frozen=True):
    request: RequestId
    bag: BagId
    reason: str = ""


class ResumeRequested(Struct, frozen=True):
    request: RequestId
    bag: BagId


class RetryRequested(Struct, frozen=True):
    """The owner wants given-up tasks (None: all of them) tried again, from now on with so many
    times the memory and the time, or with these amounts (0: none is named). With `done`, tasks
    that were done run again too. With `changes`, attempts from now on get other input files."""

    request: RequestId
    bag: BagId
    tasks: tuple[int, ...] | None = None
    memory: float = 1.0
    time: float = 1.0
    memory_mb: int = 0
    limit_seconds: float = 0.0
    done: bool = False
    changes: InputChanges | None = None  # of its input files


class PolicyRequested(Struct, frozen=True):
    """Let this decide for the bag from now on."""

    request: RequestId
    bag: BagId
    policy: PolicySpec


class PurgeRequested(Struct, frozen=True):
    """Remove what is kept of a bag that is over: `logs`, `files`, or `all` of it."""

    request: RequestId
    bag: BagId
    what: str


class TokenIssued(Struct, frozen=True):
    """`digest` is of a token that the server has drawn; only whoever asked knows the token.
    `by_admin`: an administrator asked, whom no share of an owner binds."""

    request: RequestId
    name: str
    role: Role
    owner: str
    digest: str
    expires: float
    by_admin: bool = False


class TokenRevoked(Struct, frozen=True):
    request: RequestId
    token: int


class PilotDismissed(Struct, frozen=True):
    """Somebody sends this pilot home."""

    request: RequestId
    pilot: PilotId


class FollowRequested(Struct, frozen=True):
    """Somebody watches what this task (-1: every task of the bag) prints, for a while."""

    bag: BagId
    task: int


class ProgramHeard(Struct, frozen=True):
    """Somebody waits for the values of this bag's calls."""

    bag: BagId


class PilotEnrolled(Struct, frozen=True):
    """`credential` was drawn by the server (core has no secure randomness); only its digest is
    kept. `owner`: whose tasks it may run, by what it has shown; empty: anybody's."""

    request: RequestId
    enrol: Enrol
    credential: str
    digest: str
    owner: str = ""


class SyncReceived(Struct, frozen=True):
    request: RequestId
    sync: Sync


class PilotLeft(Struct, frozen=True):
    request: RequestId
    leave: Leave


class RequestDropped(Struct, frozen=True):
    """Whoever waited for this answer has hung up."""

    request: RequestId
    pilot: PilotId


class Committed(Struct, frozen=True):
    """Every write up to this one is durable."""

    through: int


class BagLoaded(Struct, frozen=True):
    """The record's answer to `LoadBag`; nothing when it has no such bag."""

    request: RequestId
    bag: BagId
    snapshot: BagSnapshot | None


class RowsLoaded(Struct, frozen=True):
    """The answer to `LoadRows`."""

    bag: BagId
    chunk: int
    rows: list[list[Scalar]]


class RowsFailed(Struct, frozen=True):
    """The file of a segment cannot be read."""

    bag: BagId
    chunk: int
    reason: str


class JobSubmitted(Struct, frozen=True):
    """The job waits at its site, which calls it so; also news of one that was submitted by an
    earlier server, or of which we were unsure."""

    job: JobId
    handle: str = ""


class JobStarted(Struct, frozen=True):
    """The site says that it runs."""

    job: JobId
    seconds: float = 0.0  # for how long it has run, as far as the site tells


class JobSuspended(Struct, frozen=True):
    """The site has suspended a job that runs, and its pilot with it; or it lets the job go on."""

    job: JobId
    suspended: bool


class JobRequeued(Struct, frozen=True):
    """It ran, and waits again; its pilot is no more."""

    job: JobId
    reason: str


class JobRefused(Struct, frozen=True):
    """The site would not take the job: it is surely not there."""

    job: JobId
    reason: str


class JobEnded(Struct, frozen=True):
    """The site says that this job is no more; so is its pilot."""

    job: JobId
    reason: str


class JobVanished(Struct, frozen=True):
    """The site no longer lists the job, or never did; how it ended nobody knows."""

    job: JobId
    reason: str


class SiteFailed(Struct, frozen=True):
    """Nothing can be had of a site: its commands fail, or its credentials are gone. Said once for
    each time that it was tried."""

    site: str
    reason: str


class SiteAnswered(Struct, frozen=True):
    """A site that had failed has answered; also its first answer."""

    site: str


class SiteMeasured(Struct, frozen=True):
    """What a site's batch system says of itself just now."""

    site: str
    capacity: SiteCapacity


class SiteSaved(Struct, frozen=True):
    """Somebody adds a site, or changes one that was added so."""

    request: RequestId
    spec: SiteSpec


class SiteStatusRequested(Struct, frozen=True):
    """On again, paused, or to be drained."""

    request: RequestId
    site: str
    status: SiteStatus


class SiteRemoved(Struct, frozen=True):
    """What waits there is taken back and its pilots end; then it is gone."""

    request: RequestId
    site: str


class SiteTried(Struct, frozen=True):
    """`covey site test`: one pilot there, whatever the demand, for tasks of whoever asks."""

    request: RequestId
    site: str
    owner: str = ""


class TrialEnded(Struct, frozen=True):
    """Enough was seen of it: its job is taken back, or its pilot goes home."""

    request: RequestId
    job: JobId


class DrainRequested(Struct, frozen=True):
    """The server is about to end: send the pilots home."""


class DrawContinued(Struct, frozen=True):
    """There was time for more of what core could not look at in one go (`ReplicaWatch.drawing`)."""


class Ticked(Struct, frozen=True):
    """Some time has passed (about a second)."""


Event: TypeAlias = (
    BagSubmitted
    | SegmentAppended
    | CloseRequested
    | CancelRequested
    | PauseRequested
    | ResumeRequested
    | RetryRequested
    | PolicyRequested
    | PurgeRequested
    | TokenIssued
    | TokenRevoked
    | PilotDismissed
    | FollowRequested
    | ProgramHeard
    | PilotEnrolled
    | SyncReceived
    | PilotLeft
    | RequestDropped
    | Committed
    | BagLoaded
    | RowsLoaded
    | RowsFailed
    | JobSubmitted
    | JobStarted
    | JobSuspended
    | JobRequeued
    | JobRefused
    | JobEnded
    | JobVanished
    | SiteFailed
    | SiteAnswered
    | SiteMeasured
    | SiteSaved
    | SiteStatusRequested
    | SiteRemoved
    | SiteTried
    | TrialEnded
    | DrainRequested
    | DrawContinued
    | Ticked
)
