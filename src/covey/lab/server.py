"""The server of a world: core itself, with nothing around it. Its writes are durable at once."""

from collections.abc import Callable
from random import Random
from typing import Protocol

from covey.core.match import policy_budget
from covey.core.match.policies import Compiled
from covey.core.record.actions import (
    Action,
    CancelJobs,
    RecordEnds,
    Refuse,
    Reply,
    SaveBagStatus,
    SubmitPilots,
    Submitted,
    Write,
)
from covey.core.record.events import BagSubmitted, DrawContinued, Event, Ticked
from covey.core.record.model import (
    BagId,
    BagSpec,
    BagStatus,
    EndRecord,
    JobRecord,
    Need,
    PolicySpec,
    RequestId,
    Settings,
    SiteSpec,
    Snapshot,
)
from covey.core.scheduler import Scheduler
from covey.core.values.space import Axis, Range
from covey.lab.census import Census
from covey.lab.clock import Timeline
from covey.lab.ledger import Account
from covey.lab.world_parts import BagPart, WorldFile
from covey.pilot.protocol.messages import Answer

NEVER = 1e12
ALWAYS = 2**62  # a write of this number is durable, and all before it


class LabCaller(Protocol):
    alive: bool

    def heard(self, request: RequestId, message: object) -> None: ...


class LabJobs(Protocol):
    """A site that carries out what core asks for."""

    def submit(self, records: tuple[JobRecord, ...]) -> None: ...

    def cancel(self, records: tuple[JobRecord, ...]) -> None: ...


class LabServer:
    """`specs`: the sites at which core asks for pilots; their `places` are added afterwards."""

    def __init__(
        self, world: WorldFile, clock: Timeline, seed: int, specs: tuple[SiteSpec, ...]
    ) -> None:
        self.part = part = world.server
        self.clock = clock
        self.unfinished = len(world.bags)  # none: the run is over
        self.when_over: Callable[[str], None] = lambda name: None
        self.census = Census(clock)
        self.places: dict[str, LabJobs] = {}
        self.accounts: dict[int, Account] = {}  # by bag
        self.bags: dict[int, BagPart] = {}
        self.calls_busy = False  # whether it may have anything to say to pilots that are busy
        self._tail = world.tail
        self._before_tail = len(world.bags)  # bags whose tail has not begun
        self._seed = seed
        self._requests = 0
        self._callers: dict[RequestId, LabCaller] = {}
        self._times: dict[int, list[float]] = {}
        self._submitting: tuple[Account, BagPart, list[float]] | None = None
        settings = Settings(
            poll_seconds=NEVER,
            lease_seconds=NEVER,
            replicate_seconds=part.cycle * 0.999,
            sites=specs,
        )
        snapshot = Snapshot(
            epoch=seed + 1, bags=(), pilots=(), jobs=(), next_bag=1, next_pilot=1, keys={}
        )
        self._core, actions = Scheduler.recover(snapshot, settings, clock.time)
        self._core.state.journal.durable = ALWAYS
        self._carry_out(actions)
        clock.every(part.tick, self._tick)

    def request(self, caller: LabCaller) -> RequestId:
        self._requests += 1
        request = RequestId(self._requests)
        self._callers[request] = caller
        return request

    def task_seconds(self, bag: int, task: int) -> float:
        """The time of a task at speed 1. It does not depend on any decision, so that policies are
        compared with equal bags."""
        return self._times[bag][task]

    def submit(self, part: BagPart, policy: PolicySpec, broker: str) -> Account:
        spec = BagSpec(
            argv=("work",),
            space=Axis("i", Range("0", "1", part.tasks)),
            name=part.name,
            owner=part.owner,
            need=Need(cores=part.cores),
            retries=part.retries,
            broker=broker,
            policy=policy,
        )
        rules = Compiled(policy)
        may_stop = rules.replicates or rules.limiting or bool(policy.deadline)
        self.calls_busy = self.calls_busy or (self.part.connected and may_stop)
        random = Random(f"{self._seed}/bag {part.name}")
        times = [part.time.draw(random) for _ in range(part.tasks)]
        account = Account(part.name, part.tasks, self.clock.time, self._tail)
        self._submitting = account, part, times
        self._requests += 1
        self.handle(BagSubmitted(RequestId(self._requests), spec))
        return account

    def handle(self, event: Event) -> None:
        self._carry_out(self._core.handle(event, self.clock.time))

    def _tick(self) -> None:
        self.handle(Ticked())
        looks = 0
        while policy_budget.goes_on(self._core.state, looks):
            looks += 1
            self.handle(DrawContinued())

    def _carry_out(self, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, Write):
                change = action.change
                if isinstance(change, RecordEnds):
                    for end in change.ends:
                        self._note_end(end)
                elif isinstance(change, SaveBagStatus):
                    self._note_status(change)
            elif isinstance(action, Reply):
                self._reply(action)
            elif isinstance(action, Refuse):
                self._refused(action)
            elif isinstance(action, SubmitPilots):
                self.places[action.jobs[0].site].submit(action.jobs)
            elif isinstance(action, CancelJobs):
                self.places[action.jobs[0].site].cancel(action.jobs)

    def _note_end(self, end: EndRecord) -> None:
        account = self.accounts[end.bag]
        before = account.most_done_at
        account.ended(end)
        if account.most_done_at and not before:
            self._before_tail -= 1
            if not self._before_tail:
                self.census.stop()

    def _note_status(self, change: SaveBagStatus) -> None:
        account = self.accounts[change.bag]
        if change.status is BagStatus.FINISHED:
            account.finish(change.at, change.failed)
            self.unfinished -= 1
            self.when_over(account.name)
        elif change.status is BagStatus.PAUSED:
            account.stopped = f"paused: {change.reason}"
            self.unfinished = 0

    def _reply(self, reply: Reply) -> None:
        message = reply.message
        if isinstance(message, Submitted):
            assert self._submitting is not None
            account, part, self._times[message.bag] = self._submitting
            self.accounts[message.bag], self.bags[message.bag] = account, part
            return
        if isinstance(message, Answer):
            for task in message.tasks:
                self._note_sent(BagId(task.bag), task.task)
        self._callers.pop(reply.request).heard(reply.request, message)

    def _note_sent(self, bag: BagId, task: int) -> None:
        """Count an attempt. It is a replica if another attempt may still end in time."""
        attempts = self._core.state.bags[bag].places.live[task]
        in_time = sum(not attempt.expired for attempt in attempts)
        self.accounts[bag].sent(replica=in_time > 1, repeat=len(attempts) > in_time)

    def _refused(self, refusal: Refuse) -> None:
        caller = self._callers.pop(refusal.request, None)
        if caller is None or caller.alive:
            raise AssertionError(f"core refused: {refusal.detail}")
