"""All that core knows. `check()` asserts what must hold between any two events.

Nothing per task exists until something happens to it: a bag of ten million is a few numbers and
bitmaps, plus one `Attempt` for each task that is out with a pilot.
"""

from collections import deque

from msgspec import Struct, field
from pyroaring import BitMap

from covey.core.actions import ReplyMessage, SavePilotStatus
from covey.core.model import (
    AttemptId,
    BagId,
    BagSpec,
    BagStatus,
    JobId,
    JobRecord,
    PilotId,
    PilotRecord,
    PilotStatus,
    RequestId,
    Settings,
    TaskNumber,
)
from covey.core.space import Point
from covey.pilot.messages import Answer, Body, End


class Attempt(Struct, eq=False):
    """One try of a task, out with a pilot."""

    id: AttemptId
    bag: BagId
    task: TaskNumber
    pilot: PilotId
    sent: float
    recalled: bool = False
    cancelled: bool = False


class Bag(Struct, eq=False):
    """A bag that may still change. Every task number is in exactly one place:
    done, failed, ready, doubt, `live` (out with pilots), or not handed out yet (>= next)."""

    id: BagId
    spec: BagSpec
    body: Body
    point: Point
    total: int
    created: float
    status: BagStatus = BagStatus.RUNNING
    next: int = 0  # the lowest number never handed out
    mark: int = 0  # numbers below are durably reserved
    asked_mark: int = 0  # … or will be, once the write is durable
    not_before: int = 0  # nothing goes out until this write is durable
    chunk: int = 0  # size of the latest chunk
    chunks: dict[int, int] = field(default_factory=dict)  # open ones: first -> stop
    unfinished: dict[int, int] = field(default_factory=dict)  # chunk's first -> tasks to go
    marred: dict[int, int] = field(default_factory=dict)  # closed chunks with given-up tasks
    done: BitMap = field(default_factory=BitMap)
    failed: BitMap = field(default_factory=BitMap)
    ready: BitMap = field(default_factory=BitMap)  # below next, free to go out (again)
    doubt: BitMap = field(default_factory=BitMap)  # may be running with an unheard pilot
    live: dict[int, list[Attempt]] = field(default_factory=dict)
    tries: dict[int, int] = field(default_factory=dict)  # failures of the task's own
    losses: dict[int, int] = field(default_factory=dict)  # failures of the infrastructure

    def over(self) -> bool:
        return len(self.done) + len(self.failed) == self.total

    def unsent(self) -> int:
        """Tasks that could go out now or once their numbers are reserved."""
        if self.status is not BagStatus.RUNNING:
            return 0
        return len(self.ready) + self.total - self.next


class Waiting(Struct):
    """A sync that has no answer yet: parked, or until write `after` is durable. Without a
    request its sender has hung up; it will ask again with the same number."""

    request: RequestId | None
    number: int
    since: float
    after: int


class Pilot(Struct, eq=False):
    record: PilotRecord
    heard: float
    status: PilotStatus = PilotStatus.ACTIVE
    resync: bool = False  # it must first say what it holds
    last: int = 0  # the highest sync number taken
    recorded: int = 0  # the highest one whose ends are durable
    want: int = 0
    attempts: dict[AttemptId, Attempt] = field(default_factory=dict)
    waiting: dict[int, Waiting] = field(default_factory=dict)
    answers: dict[int, Answer] = field(default_factory=dict)
    taken: dict[int, list[End]] = field(default_factory=dict)  # ends it may send once more
    cancels: list[Attempt] = field(default_factory=list)
    recalls: list[Attempt] = field(default_factory=list)
    bodies: set[BagId] = field(default_factory=set)
    proven: set[BagId] = field(default_factory=set)  # bags of which it has run a task


class Job(Struct):
    record: JobRecord
    since: float
    pilot: PilotId | None = None


class Answering(Struct, frozen=True):
    """Once durable: answer this sync."""

    pilot: PilotId
    number: int


class Replying(Struct, frozen=True):
    request: RequestId
    message: ReplyMessage


class Reserving(Struct, frozen=True):
    bag: BagId
    mark: int


class Starting(Struct, frozen=True):
    job: JobId


class Forgetting(Struct, frozen=True):
    """Once durable: the record has it, core need not."""

    bag: BagId


Then = Answering | Replying | Reserving | Starting | Forgetting


class State:
    def __init__(self, epoch: int, settings: Settings, now: float) -> None:
        self.epoch = epoch
        self.settings = settings
        self.ticked = now
        self.bags: dict[BagId, Bag] = {}
        self.loading: dict[BagId, bool] = {}  # being read; True: it changed meanwhile
        self.keys: dict[str, BagId] = {}
        self.pilots: dict[PilotId, Pilot] = {}
        self.pilot_keys: dict[str, PilotId] = {}
        self.jobs: dict[JobId, Job] = {}
        self.hungry: dict[PilotId, None] = {}  # parked with room to spare, oldest first
        self.signalled: dict[PilotId, None] = {}  # have cancels or recalls to hear of
        self.unheard: dict[PilotId, None] = {}  # of earlier epochs, not synced yet
        self.adopt_until = now
        self.departed: dict[PilotId, SavePilotStatus | None] = {}  # without a word, not saved yet
        self.all_heard = True  # no pilot of an earlier epoch has gone without a word
        self.draining = False
        self.next_bag = 1
        self.next_pilot = 1
        self.next_sequence = 1
        self.next_job = 0
        self.writes = 0  # numbered so far
        self.durable = 0
        self.then: deque[tuple[int, Then]] = deque()
        self.ended: dict[str, int] = {}  # attempts by outcome, in this epoch
        self.job_failures = 0  # site jobs in a row that ended before their pilot did any good
        self.job_not_before = now

    def slots(self) -> int:
        return sum(p.record.slots for p in self.pilots.values() if p.status is PilotStatus.ACTIVE)

    def unsent(self) -> int:
        return sum(bag.unsent() for bag in self.bags.values())

    def check(self) -> None:
        """Assert the invariants; for tests and the simulator, after every event."""
        live = 0
        for bag in self.bags.values():
            _check_bag(bag)
            live += sum(len(attempts) for attempts in bag.live.values())
        known = 0
        for pilot in self.pilots.values():
            for attempt in pilot.attempts.values():
                assert attempt.pilot == pilot.record.id
                if attempt.bag in self.bags:
                    assert attempt in self.bags[attempt.bag].live[attempt.task]
                    known += 1
            assert all(number > pilot.last - 3 for number in pilot.waiting), "too many open syncs"
            assert pilot.status is not PilotStatus.LOST or not pilot.attempts
        assert live == known, f"{live} live attempts in bags, {known} with pilots"
        assert self.durable <= self.writes


def _check_bag(bag: Bag) -> None:
    assert bag.next <= bag.mark <= bag.asked_mark <= bag.total
    places = [bag.done, bag.failed, bag.ready, bag.doubt]
    running = BitMap(task for task, attempts in bag.live.items() if attempts)
    assert len(running) == len(bag.live), "a live list is empty"
    settled = bag.done | bag.failed
    union = BitMap()
    for place in places:
        assert not union & place, "a task is in two places"
        union |= place
    assert not (running & (bag.ready | bag.doubt)), "a running task is also waiting"
    if bag.status is BagStatus.RUNNING:
        expected = BitMap(range(bag.next))
        assert (union | running) == expected, f"lost or invented: {(union | running) ^ expected}"
    for first, stop in bag.chunks.items():
        left = stop - first - settled.range_cardinality(first, stop)
        assert bag.unfinished[first] == left, f"chunk {first}: {bag.unfinished[first]} != {left}"
        assert left > 0
