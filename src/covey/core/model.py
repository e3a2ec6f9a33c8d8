"""The records core keeps and the store remembers: immutable, and free of behaviour."""

from enum import StrEnum
from typing import NamedTuple, NewType

from msgspec import Struct

from covey.core.space import ONE_TASK, Space

BagId = NewType("BagId", int)
TaskNumber = NewType("TaskNumber", int)
PilotId = NewType("PilotId", int)
RequestId = NewType("RequestId", int)
JobId = NewType("JobId", str)


class AttemptId(NamedTuple):
    """Never reused: the epoch is durable and grows with every start of a server."""

    epoch: int
    sequence: int

    def __str__(self) -> str:
        return f"{self.epoch}.{self.sequence}"


class BagStatus(StrEnum):
    RUNNING = "running"
    FINISHED = "finished"
    CANCELLED = "cancelled"


class PilotStatus(StrEnum):
    ACTIVE = "active"
    SUSPECTED = "suspected"
    LOST = "lost"
    LEFT = "left"


class JobStatus(StrEnum):
    """Of a site job: what a site's own queue runs, a pilot."""

    SUBMITTED = "submitted"
    ENDED = "ended"


class Verdict(StrEnum):
    """What an ended attempt means for its task's result."""

    COUNTS = "counts"  # it is the result
    REPLACES = "replaces"  # it is a success, and takes the place of a counted failure
    LATE = "late"  # a success of a bag core holds no longer: counts if the task has no success
    WASTE = "waste"  # recorded only


class BagSpec(Struct, frozen=True, kw_only=True):
    """What a person asks for. Equal keys are one submission, however often it is sent."""

    argv: tuple[str, ...]
    space: Space = ONE_TASK
    name: str = ""
    owner: str = ""
    key: str = ""
    env: dict[str, str] = {}
    chdir: str = ""
    retries: int = 0
    limit_seconds: float = 0.0
    idempotent: bool = True


class BagRecord(Struct, frozen=True, kw_only=True):
    id: BagId
    spec: BagSpec
    total: int
    created: float
    status: BagStatus = BagStatus.RUNNING


class PilotRecord(Struct, frozen=True, kw_only=True):
    id: PilotId
    key: str
    credential: str  # digest of what the pilot shows in every sync
    host: str
    slots: int
    site: str
    job: JobId
    tags: dict[str, str]
    version: str
    enrolled: float
    status: PilotStatus = PilotStatus.ACTIVE
    recorded: int = 0  # the last sync whose ends are durable


class JobRecord(Struct, frozen=True, kw_only=True):
    id: JobId
    site: str
    slots: int
    submitted: float
    status: JobStatus = JobStatus.SUBMITTED


class ChunkRecord(Struct, frozen=True, kw_only=True):
    """Task numbers first … stop-1, reserved for dispatch. In a closed chunk every task has its
    result; in an open one the ends tell which."""

    first: int
    stop: int
    closed: bool


class EndRecord(Struct, frozen=True, kw_only=True):
    """One ended attempt, and what core decided: whether it is its task's result."""

    bag: BagId
    task: TaskNumber
    attempt: AttemptId
    pilot: PilotId
    host: str
    outcome: str
    verdict: Verdict
    exit_code: int = -1
    signal: int = 0
    sent: float = 0.0
    fetched: float = 0.0
    started: float = 0.0
    ended: float = 0.0
    delivered: float = 0.0
    cpu_seconds: float = 0.0
    memory_kb: int = 0
    stdout: str = ""
    stderr: str = ""
    stdout_bytes: int = 0
    stderr_bytes: int = 0
    message: str = ""


class BagSnapshot(Struct, frozen=True, kw_only=True):
    """All that the record knows of an unfinished bag: enough to go on with it."""

    bag: BagRecord
    chunks: tuple[ChunkRecord, ...]
    open_done: tuple[int, ...]  # tasks in open chunks that have succeeded
    failed: tuple[int, ...]  # tasks anywhere that were given up
    tries: dict[int, int]  # task -> failures so far, of unfinished tasks


class Snapshot(Struct, frozen=True, kw_only=True):
    """What a server starts from."""

    epoch: int
    bags: tuple[BagSnapshot, ...]
    pilots: tuple[PilotRecord, ...]  # active and lost ones
    jobs: tuple[JobRecord, ...]  # not ended
    next_bag: int
    next_pilot: int
    keys: dict[str, BagId]  # submission keys of every bag


class Settings(Struct, frozen=True, kw_only=True):
    """How core behaves; times in seconds."""

    poll_seconds: float = 15.0
    lease_seconds: float = 60.0
    adopt_seconds: float = 60.0
    idle_seconds: float = 60.0
    chunk: int = 1024
    largest_chunk: int = 16384
    most_ends: int = 4096
    most_pilots: int = 100_000
    most_losses: int = 20
    local_pilots: int = 0
    local_slots: int = 1
