"""Events: what happened, in past tense. Each carries its cause, at least a request's number.

Requests come from pilots and clients; the other events are answers of ports. Every action that can
fail has an event for the failure.
"""

from typing import TypeAlias

from msgspec import Struct

from covey.core.record.capacity import SiteCapacity
from covey.core.record.model import (
    AS_BEFORE,
    BagId,
    BagSnapshot,
    BagSpec,
    InputChanges,
    JobId,
    More,
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
    """The owner wants given-up tasks (None: all of them) tried again, with `more` from now on. With
    `done`, tasks that were done run again, too. With `changes`, later attempts get other input
    files."""

    request: RequestId
    bag: BagId
    tasks: tuple[int, ...] | None = None
    more: More = AS_BEFORE
    done: bool = False
    changes: InputChanges | None = None  # of its input files


class PolicyRequested(Struct, frozen=True):
    """The bag gets this policy from now on."""

    request: RequestId
    bag: BagId
    policy: PolicySpec


class PurgeRequested(Struct, frozen=True):
    """Remove a part of a bag that is over: its `logs`, its `files`, or `all`."""

    request: RequestId
    bag: BagId
    what: str


class TokenIssued(Struct, frozen=True):
    """`digest`: of a token that the server has drawn; only the caller gets the token itself.
    `by_admin`: an administrator asked, so the share of an owner does not limit the request."""

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
    """A person wants this pilot to end."""

    request: RequestId
    pilot: PilotId


class FollowRequested(Struct, frozen=True):
    """A person watches the output of this task (-1: of every task of the bag), for a while."""

    bag: BagId
    task: int


class ProgramHeard(Struct, frozen=True):
    """A program waits for the values of this bag's calls."""

    bag: BagId


class PilotEnrolled(Struct, frozen=True):
    """`credential` was drawn by the server (core has no secure randomness); only its digest is
    kept. `owner`: whose tasks the pilot may run, as its secret proves; empty: everybody's."""

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
    """The sender of this request has hung up before it was answered."""

    request: RequestId
    pilot: PilotId


class Committed(Struct, frozen=True):
    """Every write up to this one is durable."""

    through: int


class BagLoaded(Struct, frozen=True):
    """The record's answer to `LoadBag`. `snapshot`: None if there is no such bag."""

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
    """The job waits at its site, which calls it `handle`. Also for a job that an earlier server
    submitted, or whose submission had an unknown outcome."""

    job: JobId
    handle: str = ""


class JobStarted(Struct, frozen=True):
    """The site says that the job runs."""

    job: JobId
    seconds: float = 0.0  # for how long it has run, as far as the site tells


class JobSuspended(Struct, frozen=True):
    """The site has suspended a job that runs, and its pilot with it; or it lets the job go on."""

    job: JobId
    suspended: bool


class JobRequeued(Struct, frozen=True):
    """The job ran and waits again; its pilot is gone."""

    job: JobId
    reason: str


class JobRefused(Struct, frozen=True):
    """The site did not accept the job, so the job is certainly not there."""

    job: JobId
    reason: str


class JobEnded(Struct, frozen=True):
    """The site says that this job has ended; its pilot is gone."""

    job: JobId
    reason: str


class JobVanished(Struct, frozen=True):
    """The site does not list the job; it is unknown how the job ended."""

    job: JobId
    reason: str


class SiteFailed(Struct, frozen=True):
    """A site cannot be used: its commands fail, or its credentials are missing. Sent after each
    try that failed."""

    site: str
    reason: str


class WeightsGiven(Struct, frozen=True):
    """A resource priority service has said what sites are worth. `request`: None if it was asked,
    and has not called by itself. `source`: where the weights come from, for people."""

    request: RequestId | None
    service: str
    weights: dict[str, float]
    source: str


class WeightsFailed(Struct, frozen=True):
    """A service was asked for weights, and gave none that make sense."""

    service: str
    reason: str


class SiteAnswered(Struct, frozen=True):
    """A site has answered: for the first time, or for the first time after it failed."""

    site: str


class SiteMeasured(Struct, frozen=True):
    """What a site's batch system says of itself just now."""

    site: str
    capacity: SiteCapacity


class SiteSaved(Struct, frozen=True):
    """A person adds a site, or changes a site that a person added."""

    request: RequestId
    spec: SiteSpec


class SiteStatusRequested(Struct, frozen=True):
    """A person switches a site on, pauses it or drains it."""

    request: RequestId
    site: str
    status: SiteStatus


class SiteRemoved(Struct, frozen=True):
    """A person removes a site: its waiting jobs are cancelled and its pilots end first."""

    request: RequestId
    site: str


class SiteTried(Struct, frozen=True):
    """`covey site test`: start one pilot there, whatever the demand, for tasks of `owner`."""

    request: RequestId
    site: str
    owner: str = ""


class TrialEnded(Struct, frozen=True):
    """The test of a site is over: its job is cancelled, or its pilot ends."""

    request: RequestId
    job: JobId


class DrainRequested(Struct, frozen=True):
    """The server is about to end: pilots that need not wait for the next server end, too."""


class DrawContinued(Struct, frozen=True):
    """There is time for work that core has put off (`ReplicaWatch.drawing`, `PolicyBudgets`)."""


class Ticked(Struct, frozen=True):
    """Some time has passed (about a second)."""


SiteEvent: TypeAlias = (
    JobSubmitted
    | JobStarted
    | JobSuspended
    | JobRequeued
    | JobRefused
    | JobEnded
    | JobVanished
    | SiteFailed
    | SiteAnswered
    | SiteMeasured
    | WeightsGiven
    | WeightsFailed
    | SiteSaved
    | SiteStatusRequested
    | SiteRemoved
    | SiteTried
    | TrialEnded
)

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
    | SiteEvent
    | DrainRequested
    | DrawContinued
    | Ticked
)
