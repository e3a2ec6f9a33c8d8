"""What happened. Past tense; each carries its cause, if only a request's number.

Requests come from pilots and clients; the rest are the answers of ports. Every action that can
fail has an event that says so.
"""

from typing import TypeAlias

from msgspec import Struct

from covey.core.model import BagId, BagSnapshot, BagSpec, JobId, PilotId, RequestId
from covey.pilot.messages import Enrol, Leave, Sync


class BagSubmitted(Struct, frozen=True):
    request: RequestId
    spec: BagSpec


class CancelRequested(Struct, frozen=True):
    request: RequestId
    bag: BagId


class RetryRequested(Struct, frozen=True):
    """The owner wants the given-up tasks tried again."""

    request: RequestId
    bag: BagId


class PilotEnrolled(Struct, frozen=True):
    """`credential` was drawn by the server (core has no secure randomness); only its digest is
    kept."""

    request: RequestId
    enrol: Enrol
    credential: str
    digest: str


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


class JobSubmitted(Struct, frozen=True):
    job: JobId


class JobRefused(Struct, frozen=True):
    """The site would not take the job."""

    job: JobId
    reason: str


class JobEnded(Struct, frozen=True):
    """The site says that this job is no more; so is its pilot."""

    job: JobId
    reason: str


class DrainRequested(Struct, frozen=True):
    """The server is about to end: send the pilots home."""


class Ticked(Struct, frozen=True):
    """Some time has passed (about a second)."""


Event: TypeAlias = (
    BagSubmitted
    | CancelRequested
    | RetryRequested
    | PilotEnrolled
    | SyncReceived
    | PilotLeft
    | RequestDropped
    | Committed
    | BagLoaded
    | JobSubmitted
    | JobRefused
    | JobEnded
    | DrainRequested
    | Ticked
)
