"""What an onlooker sees: what hosts really ran, what the server sent, what was acknowledged to
whom, and every change as it became durable. It takes notes; `checkers` judges them.
"""

from bisect import bisect_left, bisect_right

from msgspec import Struct, field

from covey.core.actions import (
    AppendSegment,
    Change,
    RecordEnds,
    ReopenFailed,
    SaveBag,
    SaveBagStatus,
)
from covey.core.model import BagSpec
from covey.pilot.messages import End

Key = tuple[int, int]  # an attempt: epoch, sequence
TaskKey = tuple[int, int]  # bag, task


class Sending(Struct, eq=False):
    """An attempt, as it left the server."""

    key: Key
    task: TaskKey
    pilot: int
    number: int  # of the answer
    at: float


class Run(Struct, eq=False):
    """An attempt that a host really started."""

    sending: Sending
    host: "HostLife"
    started: float
    ended: float = 0.0
    outcome: str = ""  # empty: it runs, or died with its host


class HostLife(Struct, eq=False):
    """A pilot's process as seen from outside, whatever ids the server gives it."""

    name: str
    died: float = 0.0  # also when it ended in order
    contacts: list[float] = field(default_factory=list)  # it was heard by a working server
    full_syncs: list[float] = field(default_factory=list)  # … and said all it holds

    def silent_for(self, seconds: float, since: float, until: float) -> bool:
        """Was there so long a silence, that began no earlier than with the last contact before
        `since`, and had lasted `seconds` before `until`?"""
        last = since
        first = max(bisect_right(self.contacts, since) - 1, 0)
        for contact in self.contacts[first : bisect_right(self.contacts, until)]:
            if contact - last >= seconds:
                return True
            last = contact
        return until - last >= seconds

    def unheard_between(self, first: float, last: float) -> bool:
        return bisect_left(self.full_syncs, first) == bisect_right(self.full_syncs, last)


class BagNotes(Struct, eq=False):
    """A bag as its changes in the record tell it."""

    spec: BagSpec
    total: int
    status: str = "running"
    reopened: int = 0


class Ledger:
    def __init__(self) -> None:
        self.hosts: dict[str, HostLife] = {}
        self.sendings: dict[Key, Sending] = {}
        self.runs: dict[TaskKey, list[Run]] = {}
        self.by_attempt: dict[Key, Run] = {}
        self.restarts: list[float] = []  # when a server was ready again
        self.submitted: dict[str, int] = {}  # key -> bag, as acknowledged
        self.cancelled: dict[int, float] = {}  # bag -> acknowledged at
        self.retries: dict[int, list[float]] = {}  # bag -> when a server got an owner's retry
        self.acknowledged: dict[Key, End] = {}
        self.bags: dict[int, BagNotes] = {}
        self.recorded: dict[Key, list[str]] = {}  # outcomes in the record
        self.recorded_at: dict[Key, float] = {}
        self.repeats = 0

    def applied(self, change: Change, now: float) -> None:
        """This has become durable."""
        match change:
            case SaveBag(bag):
                self.bags[bag.id] = BagNotes(bag.spec, bag.total)
            case SaveBagStatus(bag, status):
                self.bags[bag].status = status.value
            case AppendSegment(bag, _, total):
                self.bags[bag].total = total
            case ReopenFailed(bag):
                self.bags[bag].status = "running"
                self.bags[bag].reopened += 1
            case RecordEnds(_, _, ends):
                for end in ends:
                    key = (end.attempt.epoch, end.attempt.sequence)
                    self.recorded.setdefault(key, []).append(end.outcome)
                    self.recorded_at.setdefault(key, now)
            case _:
                pass

    def status(self, key: str) -> str:
        """Of an acknowledged bag, or nothing."""
        bag = self.submitted.get(key)
        return self.bags[bag].status if bag in self.bags else ""

    def started_count(self, task: TaskKey) -> int:
        return len(self.runs.get(task, ()))
