"""What an observer sees: what hosts really ran, what the server sent, what was acknowledged to
whom, and every change as it became durable. It takes notes; `checkers` judges them.
"""

import math
from bisect import bisect_left, bisect_right

from msgspec import Struct, field
from msgspec.structs import replace

from covey.core.record.actions import (
    AppendSegment,
    Change,
    RecordEnds,
    ReopenFailed,
    SaveBag,
    SaveBagStatus,
    SaveHistory,
    SavePilot,
    SavePilotStatus,
    SavePolicy,
)
from covey.core.record.events import CloseRequested, PolicyRequested, RetryRequested
from covey.core.record.histories import History
from covey.core.record.model import BagSpec, PilotStatus, PolicySpec, Segment
from covey.pilot.protocol.messages import HOST, OK, OWN_FAILURES, TIMEOUT, End
from covey.ports import EngineEvent
from tests.simulator.plan.places import Place

Key = tuple[int, int]  # an attempt: epoch, sequence
TaskKey = tuple[int, int]  # bag, task
SURE_FAILURES = 3  # of a host in a row; these count against the bag, whatever other hosts do


class Violation(Exception):
    """Covey broke a promise."""


class Sending(Struct, eq=False):
    """An attempt as it left the server."""

    key: Key
    task: TaskKey
    pilot: int
    number: int  # of the answer
    at: float
    life: "HostLife"
    decided: float  # when it left, or earlier if nobody waited for the answer then
    deadline: float = math.inf  # it was not given up for its deadline before this time
    beside: tuple[Key, ...] = ()  # attempts of the task that were out then
    may_repeat: bool = False  # the policy may have wanted another attempt then

    def __str__(self) -> str:
        epoch, sequence = self.key
        bag, task = self.task
        where = f"{self.life.name} on {self.life.place.host}"
        return f"attempt {epoch}.{sequence} of task {bag}/{task}, sent at {self.at:.2f} to {where}"


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
    place: Place  # with the name that core has for the host
    slots: int = 1
    owner: str = ""
    job: str = ""  # of its site; empty: somebody started it by hand
    died: float = 0.0  # also if it ended normally
    idle_since: float = math.inf  # it has nothing to do, and asks for work
    dropped: float = 0.0  # when the server last saw its connection break, or that it left
    contacts: list[float] = field(default_factory=list)  # when a working server heard it
    left_empty: float = 0.0  # when a server heard that it leaves and holds nothing
    gone: float = 0.0  # when it became durable that it has left
    full_syncs: list[float] = field(default_factory=list)  # when it reported all it holds

    def silent_for(self, seconds: float, since: float, until: float) -> bool:
        """Was there a silence of `seconds` before `until`, that began no earlier than with the last
        contact before `since`?"""
        last = since
        first = max(bisect_right(self.contacts, since) - 1, 0)
        for contact in self.contacts[first : bisect_right(self.contacts, until)]:
            if contact - last >= seconds:
                return True
            last = contact
        return until - last >= seconds

    def unheard_between(self, first: float, last: float) -> bool:
        return bisect_left(self.full_syncs, first) == bisect_right(self.full_syncs, last)


class Ruling(Struct, eq=False):
    """A policy, and when it may have decided: from when a server heard of it until another one was
    durable, or the server died before this one was durable."""

    policy: PolicySpec
    since: float = 0.0
    until: float = math.inf
    durable: bool = True


class BagNotes(Struct, eq=False):
    """A bag as its changes in the record describe it."""

    spec: BagSpec
    total: int
    more: list[Segment] = field(default_factory=list)  # appended segments
    status: str = "running"
    rulings: list[Ruling] = field(default_factory=list)
    closed: bool = True  # a server may believe that no more tasks will follow
    touched: float = 0.0  # when the last message about it came or went
    row: int = 0  # failures that this server has heard of since the last success or new start
    failures: dict[str, int] = field(default_factory=dict)  # by host: in a row

    def in_force(self, since: float, until: float) -> list[PolicySpec]:
        """The policies that may have decided between these times."""
        return [
            ruling.policy
            for ruling in self.rulings
            if ruling.since <= until and ruling.until >= since
        ]

    @property
    def policy(self) -> PolicySpec:
        """The durable policy."""
        return [ruling for ruling in self.rulings if ruling.durable][-1].policy

    def ruled(self, policy: PolicySpec, now: float) -> None:
        """This policy has become durable."""
        pending = [
            ruling
            for ruling in self.rulings
            if not ruling.durable and ruling.policy == policy and ruling.until == math.inf
        ]
        if not pending:
            raise Violation(f"a policy that nobody asked for became durable: {policy}")
        for ruling in self.rulings:
            if ruling.durable:
                ruling.until = min(ruling.until, now)
        pending[0].durable = True
        self.rulings.remove(pending[0])
        self.rulings.append(pending[0])


class Ledger:
    def __init__(self) -> None:
        self.hosts: dict[str, HostLife] = {}
        self.by_key: dict[str, HostLife] = {}  # by the keys with which their pilots enrol
        self.sendings: dict[Key, Sending] = {}
        self.sent: dict[TaskKey, list[Sending]] = {}
        self.runs: dict[TaskKey, list[Run]] = {}
        self.by_attempt: dict[Key, Run] = {}
        self.restarts: list[float] = []  # when a server was ready again
        self.submitted: dict[str, int] = {}  # key -> bag, as acknowledged
        self.cancelled: dict[int, float] = {}  # bag -> acknowledged at
        self.retries: dict[int, list[float]] = {}  # bag -> when a server got an owner's retry
        self._wishes: dict[int, list[tuple[int, ...] | None]] = {}  # what is to be tried again
        self.acknowledged: dict[Key, End] = {}
        self.bags: dict[int, BagNotes] = {}
        self.recorded: dict[Key, list[str]] = {}  # outcomes in the record
        self.recorded_at: dict[Key, float] = {}
        self.repeats = 0
        self.nonsense: dict[int, list[PolicySpec]] = {}  # bag -> invalid policies
        self.lives: dict[int, HostLife] = {}  # by pilot, as the server numbers them
        self.live: dict[Key, Sending] = {}  # out with pilots, as the present server knows
        self.over_at: dict[Key, float] = {}  # when a server first knew of the end
        self.taken_in: dict[Key, float] = {}  # when the server that recorded the end judged it
        self.heard_first: dict[tuple[int, int, int], float] = {}  # (server, pilot, sync)
        self.heard_twice: dict[tuple[int, int, int], None] = {}
        self.histories: dict[str, History] = {}  # by host

    # -- as servers see it -----------------------------------------------------------------

    def restarted(self, now: float) -> None:
        """A server starts, and knows what is durable."""
        self.restarts.append(now)
        self.live.clear()
        for notes in self.bags.values():
            notes.row, notes.touched = 0, now
            notes.failures.clear()
            for ruling in notes.rulings:
                if not ruling.durable:
                    ruling.until = min(ruling.until, now)

    def asked(self, event: EngineEvent, now: float) -> None:
        """A working server has received this request of an owner."""
        match event:
            case RetryRequested(_, bag, tasks):
                self.retries.setdefault(bag, []).append(now)
                self._wishes.setdefault(bag, []).append(tasks)
            case PolicyRequested(_, bag, policy) if policy not in self.nonsense.get(bag, ()):
                ruling = Ruling(policy, now, durable=False)
                self.bags[bag].rulings.append(ruling)
            case CloseRequested(_, bag):
                self.bags[bag].closed = True
            case _:
                pass

    def is_wished_for(self, bag: int, task: int) -> bool:
        """Whether an owner has ever wanted this task tried again."""
        return any(tasks is None or task in tasks for tasks in self._wishes.get(bag, ()))

    def heard(self, pilot: int, number: int, now: float) -> None:
        """A sync has reached the server."""
        key = (len(self.restarts), pilot, number)
        if key in self.heard_first:
            self.heard_twice[key] = None
        self.heard_first.setdefault(key, now)

    def decided(self, pilot: int, number: int, now: float) -> float:
        """The earliest time at which an answer that leaves now may have been decided."""
        key = (len(self.restarts), pilot, number)
        return self.heard_first[key] if key in self.heard_twice else now

    def ended(self, key: Key, outcome: str, now: float) -> None:
        """The server knows of this end."""
        self.over_at.setdefault(key, now)
        sending = self.live.pop(key, None)
        if sending is None:
            return
        notes = self.bags[sending.task[0]]
        notes.touched = now
        host = sending.life.place.host
        if outcome == OK:
            notes.row = 0
            notes.failures.pop(host, None)
        elif outcome == HOST or (outcome in OWN_FAILURES and outcome != TIMEOUT):
            notes.failures[host] = notes.failures.get(host, 0) + 1
        if outcome in OWN_FAILURES and not self._may_be_the_host(sending.task[0], host):
            notes.row += 1

    def known_at(self, key: Key) -> float:
        """Since when this end counts. A server may not process the sync that first reported it, or
        may die with it; then the end counts from the next report."""
        return self.taken_in.get(key, self.over_at.get(key, math.inf))

    def _may_be_the_host(self, bag: int, host: str) -> bool:
        """Whether a failure says nothing about the bag: the host has failed several times, and at
        least as many hosts as fail work on the bag and have not failed. This changes with every
        end, so it is judged when the server hears of the failure; the bag's next attempt may be
        sent long after that."""
        failures = self.bags[bag].failures
        if failures.get(host, 0) <= SURE_FAILURES:
            return False
        working = {sent.life.place.host for sent in self.live.values() if sent.task[0] == bag}
        return len(working - failures.keys()) >= len(failures)

    def out(self, task: TaskKey) -> list[Sending]:
        return [sending for sending in self.sent.get(task, ()) if sending.key in self.live]

    # -- as the record has it --------------------------------------------------------------

    def applied(self, change: Change, now: float) -> None:
        """This change has become durable."""
        match change:
            case SaveBag(bag):
                rulings = [Ruling(bag.spec.policy)]
                closed = not bag.spec.open
                self.bags[bag.id] = BagNotes(
                    bag.spec, bag.total, rulings=rulings, closed=closed, touched=now
                )
            case SaveBagStatus(bag, status):
                notes = self.bags[bag]
                notes.status, notes.row, notes.touched = status.value, 0, now
            case AppendSegment(bag, segment, total):
                self.bags[bag].total, self.bags[bag].touched = total, now
                self.bags[bag].more.append(segment)
            case ReopenFailed(bag):
                notes = self.bags[bag]
                notes.status, notes.row, notes.touched = "running", 0, now
            case SavePolicy(bag, policy):
                if policy in self.nonsense.get(bag, ()):
                    raise Violation(f"bag {bag} has a policy that cannot be: {policy}")
                self.bags[bag].ruled(policy, now)
                self.bags[bag].touched = now
            case SavePilot(record) if record.key in self.by_key:
                life = self.by_key[record.key]
                life.place = replace(life.place, host=record.host)
            case SavePilotStatus(pilot, PilotStatus.LEFT) if pilot in self.lives:
                self.lives[pilot].gone = now
            case SaveHistory(host, history):
                self.histories[host] = history
            case RecordEnds(_, _, ends):
                for row in ends:
                    key = (row.attempt.epoch, row.attempt.sequence)
                    self.recorded.setdefault(key, []).append(row.end.outcome)
                    self.recorded_at.setdefault(key, now)
                    self.taken_in.setdefault(key, row.delivered)
            case _:
                pass

    def status(self, key: str) -> str:
        """The status of an acknowledged bag, or ""."""
        bag = self.submitted.get(key)
        return self.bags[bag].status if bag in self.bags else ""

    def started_count(self, task: TaskKey) -> int:
        return len(self.runs.get(task, ()))
