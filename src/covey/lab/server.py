"""The server of a world: core itself, with nothing around it. Its writes are durable at once."""

from random import Random
from typing import Protocol

from covey.core.match import policy_budget
from covey.core.record.actions import (
    Action,
    RecordEnds,
    Refuse,
    Reply,
    SaveBagStatus,
    Submitted,
    Write,
)
from covey.core.record.events import BagSubmitted, Committed, DrawContinued, Event, Ticked
from covey.core.record.model import (
    BagId,
    BagSpec,
    BagStatus,
    PolicySpec,
    RequestId,
    Settings,
    Snapshot,
)
from covey.core.scheduler import Scheduler
from covey.core.values.space import Axis, Range
from covey.lab.clock import Timeline
from covey.lab.ledger import Account
from covey.lab.worldfile import BagPart, ServerPart
from covey.pilot.protocol.messages import Answer

NEVER = 1e12


class LabCaller(Protocol):
    alive: bool

    def heard(self, request: RequestId, message: object) -> None: ...


class LabServer:
    def __init__(self, part: ServerPart, clock: Timeline, seed: int) -> None:
        self.part = part
        self.clock = clock
        self.accounts: dict[int, Account] = {}  # by bag
        self._seed = seed
        self._requests = 0
        self._callers: dict[RequestId, LabCaller] = {}
        self._times: dict[int, list[float]] = {}
        self._submitting: tuple[Account, list[float]] | None = None
        settings = Settings(
            poll_seconds=NEVER, lease_seconds=NEVER, replicate_seconds=part.cycle * 0.999
        )
        snapshot = Snapshot(
            epoch=seed + 1, bags=(), pilots=(), jobs=(), next_bag=1, next_pilot=1, keys={}
        )
        self._core, actions = Scheduler.recover(snapshot, settings, clock.time)
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

    def submit(self, part: BagPart, policy: PolicySpec) -> Account:
        spec = BagSpec(
            argv=("work",),
            space=Axis("i", Range("0", "1", part.tasks)),
            name=part.name,
            retries=part.retries,
            policy=policy,
        )
        random = Random(f"{self._seed}/bag {part.name}")
        times = [part.time.draw(random) for _ in range(part.tasks)]
        account = Account(part.name, part.tasks, self.clock.time)
        self._submitting = account, times
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
        while actions:
            written = 0
            for action in actions:
                if isinstance(action, Write):
                    written = action.number
                    if isinstance(action.change, RecordEnds):
                        for end in action.change.ends:
                            self.accounts[end.bag].ended(end)
                    elif isinstance(action.change, SaveBagStatus):
                        self._note_status(action.change)
                elif isinstance(action, Reply):
                    self._reply(action)
                elif isinstance(action, Refuse):
                    self._refused(action)
            if not written:
                return
            actions = self._core.handle(Committed(written), self.clock.time)

    def _note_status(self, change: SaveBagStatus) -> None:
        account = self.accounts[change.bag]
        if change.status is BagStatus.FINISHED:
            account.finish(change.at, change.failed)
        elif change.status is BagStatus.PAUSED:
            account.stopped = f"paused: {change.reason}"

    def _reply(self, reply: Reply) -> None:
        message = reply.message
        if isinstance(message, Submitted):
            assert self._submitting is not None
            self.accounts[message.bag], self._times[message.bag] = self._submitting
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
