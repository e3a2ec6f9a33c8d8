"""One event's worth of deciding: the state, the time, and the actions so far."""

from collections.abc import Callable

from covey.core.after_commit import Then
from covey.core.record.actions import (
    Action,
    Change,
    Note,
    Problem,
    RecordEnds,
    Refuse,
    Reply,
    ReplyMessage,
    Write,
)
from covey.core.record.model import BagId, RequestId
from covey.core.state import State


class Turn:
    def __init__(self, state: State, now: float) -> None:
        self.state = state
        self.now = now
        self.actions: list[Action] = []
        self._last: list[tuple[Callable[[], Change], Then | None]] = []

    def write(self, change: Change, then: Then | None = None) -> int:
        """Make a change durable, and do `then` once it is. Returns the write's number."""
        bags, journal = self.state.bags, self.state.journal
        journal.writes = number = journal.writes + 1
        self.actions.append(Write(number, change))
        if isinstance(change, RecordEnds):
            for id_ in {record.end.bag for record in change.ends}:
                bag = bags.get(BagId(id_))
                if bag is not None:
                    bag.progress.recorded = number
        if then is not None:
            journal.then.append((number, then))
        return number

    def write_last(self, make: Callable[[], Change], then: Then | None = None) -> None:
        """Write after all other writes of this turn; `make` is called only then. A crash may fall
        between any two writes, so a chunk is closed, and a bag finished, after its results."""
        self._last.append((make, then))

    def flush(self) -> None:
        if self._last:
            last, self._last = self._last, []
            for make, then in last:
                self.write(make(), then)

    def when_durable(self, then: Then) -> None:
        """Do `then` once everything written so far is durable: at the end of this turn if all of it
        is durable already."""
        journal = self.state.journal
        journal.then.append((journal.writes, then))

    def reply(self, request: RequestId, message: ReplyMessage) -> None:
        self.actions.append(Reply(request, message))

    def refuse(self, request: RequestId, problem: Problem, detail: str) -> None:
        self.actions.append(Refuse(request, problem, detail))

    def note(self, note: Note) -> None:
        self.actions.append(note)
