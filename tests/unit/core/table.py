"""A scheduler on the table: events in, actions out, with `check()` after every step.

`durable=True` answers every write at once, as a store would after its commit.
"""

from collections.abc import Sequence
from typing import Any, TypeVar

from covey.core.protocol import receipts
from covey.core.record.actions import Action, Refuse, Reply, Submitted, Write
from covey.core.record.attempts import Attempt
from covey.core.record.events import (
    BagSubmitted,
    Committed,
    Event,
    PilotEnrolled,
    SyncReceived,
    Ticked,
)
from covey.core.record.model import (
    AttemptId,
    BagId,
    BagSpec,
    PilotId,
    RequestId,
    Settings,
    Snapshot,
    TaskNumber,
)
from covey.core.scheduler import Scheduler
from covey.core.values.space import Axis, Range
from covey.pilot.protocol.messages import Answer, End, Enrol, Enrolled, Held, Sync

Kind = TypeVar("Kind")

EMPTY = Snapshot(epoch=1, bags=(), pilots=(), jobs=(), next_bag=1, next_pilot=1, keys={})


def spec(count: int = 4, **fields: object) -> BagSpec:
    space = Axis("i", Range("0", "1", count))
    return BagSpec(argv=("work", "{i}"), space=space, **fields)  # type: ignore[arg-type]


class Table:
    def __init__(self, *, durable: bool = True, snapshot: Snapshot = EMPTY, **settings: object):
        self.durable = durable
        self.now = 1000.0
        chosen = Settings(**{"chunk": 8, **settings})  # type: ignore[arg-type]
        self.scheduler, actions = Scheduler.recover(snapshot, chosen, self.now)
        self.actions: list[Action] = []
        self.requests = 0
        self._take(actions)

    def handle(self, event: Event) -> list[Action]:
        """What this event leads to, commits included."""
        start = len(self.actions)
        self._take(self.scheduler.handle(event, self.now))
        return self.actions[start:]

    def commit(self) -> list[Action]:
        return self.handle(Committed(self.scheduler.state.journal.writes))

    def later(self, seconds: float) -> list[Action]:
        """Time passes, in small steps, as it does."""
        start = len(self.actions)
        until = self.now + seconds
        while self.now < until:
            self.now = min(self.now + 1.0, until)
            self.handle(Ticked())
        return self.actions[start:]

    def _take(self, actions: Sequence[Action]) -> None:
        self.scheduler.state.check()
        self.actions.extend(actions)
        if self.durable and any(isinstance(action, Write) for action in actions):
            self.commit()

    # -- people and pilots -------------------------------------------------------------------

    def request(self) -> RequestId:
        self.requests += 1
        return RequestId(self.requests)

    def submit(self, bag: BagSpec) -> int:
        submitted = only(self.handle(BagSubmitted(self.request(), bag)), Submitted)
        return submitted.bag

    def enrol(self, slots: int = 1, key: str = "", host: str = "host", **more: Any) -> "Hand":
        name = key or f"pilot-key-{self.requests}"
        enrol = Enrol(name, host, slots, **more)
        event = PilotEnrolled(self.request(), enrol, "word", "digest")
        return Hand(self, only(self.handle(event), Enrolled).pilot)


class Hand:
    """A pilot played by hand: it sends exactly what the test says. In a full sync it shows receipts
    for all that it names, as an honest pilot can, unless the test says what is `shown`."""

    def __init__(self, table: Table, pilot: int) -> None:
        self.table = table
        self.pilot = pilot
        self.number = 0
        self.epoch = table.scheduler.state.epoch

    def sync(
        self,
        want: int = 1,
        ends: Sequence[End] = (),
        held: list[Held] | None = None,
        number: int | None = None,
        shown: list[str] | None = None,
    ) -> list[Action]:
        self.number = number if number is not None else self.number + 1
        sync = Sync(self.pilot, self.epoch, self.number, self.number - 1, want, list(ends), held)
        if shown is not None:
            sync = sync._replace(receipts=shown)
        elif held is not None:
            sync = sync._replace(receipts=self.true_receipts([*held, *ends]))
        return self.table.handle(SyncReceived(self.table.request(), sync))

    def true_receipts(self, attempts: Sequence[Held | End]) -> list[str]:
        state = self.table.scheduler.state
        record, key = state.pilots[PilotId(self.pilot)].record, state.settings.receipt_key
        return [
            receipts.write(
                key,
                record.key,
                [
                    Attempt(
                        AttemptId(one.epoch, one.sequence),
                        BagId(one.bag),
                        TaskNumber(one.task),
                        record.id,
                        0.0,
                    )
                ],
            )
            for one in attempts
        ]

    def ask(self, want: int = 1, ends: Sequence[End] = ()) -> Answer:
        return only(self.sync(want, ends), Answer)


def end(answer: Answer, index: int = 0, outcome: str = "ok", exit_code: int = 0) -> End:
    task = answer.tasks[index]
    return End(answer.epoch, task.sequence, task.bag, task.task, outcome, exit_code)


def replies(actions: Sequence[Action], kind: type[Kind]) -> list[Kind]:
    found = [action.message for action in actions if isinstance(action, Reply)]
    return [message for message in found if isinstance(message, kind)]


def only(actions: Sequence[Action], kind: type[Kind]) -> Kind:
    found = replies(actions, kind)
    assert len(found) == 1, f"{len(found)} answers of that kind in {actions}"
    return found[0]


def refusal(actions: Sequence[Action]) -> Refuse:
    (found,) = [action for action in actions if isinstance(action, Refuse)]
    return found


def writes(actions: Sequence[Action], kind: type[Kind]) -> list[Kind]:
    changes = [action.change for action in actions if isinstance(action, Write)]
    return [change for change in changes if isinstance(change, kind)]
