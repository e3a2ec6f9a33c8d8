"""A scheduler with a record behind it, and pilots that keep the protocol but nothing else: they
may do whatever a legal pilot could. Every step ends with `check()`, and every request is answered
at most once.
"""

from collections.abc import Iterator
from copy import deepcopy

from msgspec import Struct, field

from covey.core.record.actions import (
    Action,
    CancelJobs,
    Change,
    DefineSites,
    LoadBag,
    LoadRows,
    Note,
    Refuse,
    Reply,
    ReplyMessage,
    SubmitPilots,
    Write,
)
from covey.core.record.events import BagLoaded, Committed, Event, RowsLoaded, Ticked
from covey.core.record.histories import History
from covey.core.record.model import JobId, RequestId, Settings
from covey.core.scheduler import Scheduler
from covey.core.state import Bag, Pilot
from covey.core.values.space import Scalar
from covey.pilot.protocol.messages import Answer, End, Held, Need, Sync
from tests.memory_store.memory_record import MemoryRecord
from tests.unit.core.placing import local_site

SETTINGS = Settings(
    poll_seconds=10.0,
    lease_seconds=30.0,
    adopt_seconds=20.0,
    chunk=4,
    largest_chunk=8,
    most_ends=6,
    most_pilots=4,
    most_losses=3,
    most_lookahead=2,
    buffer_seconds=5.0,
    ban_seconds=40.0,
    ban_growth=20.0,
    sites=(local_site(1, 2),),
)


class Hand(Struct, eq=False):
    """A pilot, moved by hand."""

    id: int
    epoch: int
    number: int = 0
    received: int = 0
    full: bool = False
    holding: dict[tuple[int, int], Held] = field(default_factory=dict)
    unsent: list[End] = field(default_factory=list)  # ends to deliver
    open: dict[int, Sync] = field(default_factory=dict)  # not answered, as far as it knows
    heard: dict[int, Answer] = field(default_factory=dict)
    needs: dict[int, list[Need]] = field(default_factory=dict)  # of the bags it has heard of
    versions: dict[int, int] = field(default_factory=dict)  # of their input files
    # Bag, and version of its input files, of each attempt that any pilot was given.
    given: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)

    def sync(self, want: int, most: int) -> Sync:
        """The next one."""
        self.number += 1
        ends, self.unsent = self.unsent[:most], self.unsent[most:]
        held = None
        if self.full:
            self.full = False
            self.received = self.number - 1
            held = [*self.holding.values(), *(Held(*end[:4]) for end in self.unsent)]
        sync = Sync(self.id, self.epoch, self.number, self.received, want, ends, held)
        self.open[self.number] = sync
        return sync

    def answered(self, number: int, answer: Answer) -> None:
        if answer.epoch < self.epoch or number not in self.open:
            return
        if answer.resync:
            self.start_over(answer.epoch, answer.recorded)
            return
        self.heard[number] = answer
        for first in list(self.open):
            if first not in self.heard:
                break
            self._process(first, self.heard.pop(first))

    def _process(self, number: int, answer: Answer) -> None:
        del self.open[number]
        self.received = number
        self.needs.update({body.bag: body.needs for body in answer.bodies})
        self.versions.update({body.bag: body.inputs_version for body in answer.bodies})
        for task in answer.tasks:
            key = (answer.epoch, task.sequence)
            assert key not in self.holding, "the same attempt was sent twice"
            assert task.values == [task.task], "its values are its number, in every bag here"
            assert task.need == int(task.task % 4 == 3 and len(self.needs[task.bag]) > 1)
            self.holding[key] = Held(*key, task.bag, task.task)
            self.given[key] = task.bag, self.versions[task.bag]

    def start_over(self, epoch: int, recorded: int) -> None:
        again = [e for number, sync in self.open.items() if number > recorded for e in sync.ends]
        self.unsent = again + self.unsent
        self.open.clear()
        self.heard.clear()
        self.epoch, self.full = epoch, True

    def end(self, key: tuple[int, int], outcome: str) -> None:
        self.unsent.append(End(*self.holding.pop(key), outcome))


class Counting(dict[str, list[list[Scalar]]]):
    """Files of rows: the digest is where one begins to count."""

    def __missing__(self, digest: str) -> list[list[Scalar]]:
        return [[int(digest) + row] for row in range(100)]


class Bench:
    """Feeds one scheduler after another from one record."""

    def __init__(self) -> None:
        self.record = MemoryRecord(Counting())
        self.now = 1000.0
        self.requests = 0
        self.open_requests: dict[int, str] = {}
        self.submitted: set[JobId] = set()  # by any server
        self.restart()

    def restart(self) -> None:
        """The server was killed: what was not committed has not happened."""
        self.writes: list[Write] = []
        self.loads: list[tuple[int, LoadBag]] = []
        self.rows: list[LoadRows] = []
        self.jobs: dict[JobId, None] = {}
        self.replies: dict[int, ReplyMessage | Refuse] = {}
        self.open_requests.clear()
        snapshot = self.record.open()
        self.scheduler, actions = Scheduler.recover(snapshot, SETTINGS, self.now)
        for job in snapshot.jobs:
            self.jobs[job.id] = None
        self._take(actions)

    def request(self, what: str) -> RequestId:
        self.requests += 1
        self.open_requests[self.requests] = what
        return RequestId(self.requests)

    def handle(self, event: Event) -> list[Action]:
        actions = self.scheduler.handle(event, self.now)
        self._take(actions)
        return actions

    def pass_time(self, seconds: float) -> None:
        until = self.now + seconds
        while self.now < until:
            self.now = min(self.now + 4.0, until)
            self.handle(Ticked())

    def commit(self, count: int) -> None:
        """The first `count` of the writes become durable; what was to be read then is read."""
        batch, self.writes = self.writes[:count], self.writes[count:]
        if batch:
            changes: list[Change] = [write.change for write in batch]
            self.record.apply(changes)
            self.handle(Committed(batch[-1].number))
        durable = self.scheduler.state.journal.durable
        ripe = [load for after, load in self.loads if after <= durable]
        self.loads = [(after, load) for after, load in self.loads if after > durable]
        for load in ripe:
            self.handle(BagLoaded(load.request, load.bag, self.record.load(load.bag)))

    def read_rows(self) -> None:
        """The oldest rows that were asked for come."""
        if self.rows:
            load = self.rows.pop(0)
            rows = Counting()[load.rows.digest][load.first : load.stop]
            self.handle(RowsLoaded(load.bag, load.chunk, rows))

    def _take(self, actions: list[Action]) -> None:
        self.scheduler.state.check()
        for action in actions:
            match action:
                case Write():
                    last = (
                        self.writes[-1].number
                        if self.writes
                        else self.scheduler.state.journal.durable
                    )
                    assert action.number > last
                    self.writes.append(action)
                case Reply(request, message):
                    self._answer(request, message)
                case Refuse(request):
                    self._answer(request, action)
                case LoadBag():
                    self.loads.append((self.scheduler.state.journal.writes, action))
                case LoadRows():
                    self.rows.append(action)
                case SubmitPilots(jobs):
                    ids = {job.id: None for job in jobs}
                    assert not ids.keys() & self.submitted, "a job was submitted twice"
                    self.submitted |= ids.keys()
                    self.jobs |= ids
                case CancelJobs() | DefineSites():
                    pass
                case Note():
                    pass

    def _answer(self, request: int, message: ReplyMessage | Refuse) -> None:
        assert request in self.open_requests, f"{request} was answered twice, or never asked"
        del self.open_requests[request]
        self.replies[request] = message


def picture(scheduler: Scheduler) -> list[object]:
    """All that core knows, but for when it heard of whom."""
    state = scheduler.state
    counts = [
        state.epoch,
        state.journal.writes,
        state.journal.durable,
        state.counters.next_bag,
        state.counters.next_pilot,
    ]
    return [
        *counts,
        state.counters.next_sequence,
        list(state.bag_index.keys.items()),
        [list(_bag(bag)) for bag in state.bags.values()],
        [list(_pilot(pilot)) for pilot in state.pilots.values()],
        list(state.jobs),
        list(state.queue.hungry),
        list(state.arrivals.unheard),
        list(state.journal.then),
        remembered(scheduler),
    ]


def remembered(scheduler: Scheduler) -> dict[str, History]:
    """What is known of hosts on which something has ended."""
    hosts = scheduler.state.hosts.values()
    return {one.name: deepcopy(one.history) for one in hosts if one.history.at}


def _bag(bag: Bag) -> Iterator[object]:
    yield from (bag.id, bag.status, bag.places.next, bag.chunks.mark, bag.chunks.asked_mark)
    yield from (
        list(bag.places.done),
        list(bag.places.failed),
        list(bag.places.parked),
        list(bag.places.doubt),
    )
    yield [list(ready) for ready in bag.places.ready]
    yield from (
        bag.total,
        bag.open,
        bag.failures.streak,
        dict(bag.chunks.awaited),
        list(bag.failures.raised),
    )
    yield [(task, [one.id for one in attempts]) for task, attempts in bag.places.live.items()]
    yield from (
        dict(bag.failures.tries),
        dict(bag.failures.losses),
        dict(bag.chunks.open),
        dict(bag.chunks.unfinished),
    )
    yield from (
        bag.policy.spec,
        list(bag.replicas.overdue),
        list(bag.replicas.offers),
        list(bag.places.aside),
    )
    yield from (
        list(bag.places.rescue),
        list(bag.places.rescued),
        bag.classes.classify,
        len(bag.classes),
    )


def _pilot(pilot: Pilot) -> Iterator[object]:
    yield from (pilot.record, pilot.status, pilot.resync, pilot.last, pilot.recorded, pilot.want)
    yield from (list(pilot.attempts), list(pilot.waiting), dict(pilot.answers))
    yield [one.request for one in pilot.waiting.values()]
    yield from ([one.id for one in pilot.cancels], [one.id for one in pilot.recalls])
