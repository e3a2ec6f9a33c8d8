"""policy: what a decision costs in core, with policies and without, in virtual time.

A *request* is one sync of a pilot that brings one end and is answered with one task: `SyncReceived`
and the `Committed` that follow, as the engine hands them to core. The store is as good as one that
commits at once. Every bag has requirements, a rank and a concurrency, over statistics of the host
and tags that it publishes: a policy of its own, or one of 20 (bags with the same one are answered
together). All variants take turns.

- *Warm*: the pilot has asked within the last second.
- *Later*: it asks after more than a second, so that what its ends have changed is looked at anew.
- *Cold*: it has just enrolled, so nothing that any policy says of it is known. The expressions are
  compiled, and the bags' own ads are up to date.

Times are CPU time of the one thread there is: others use the machine, too.

A *cycle* of replication is a `Ticked` and the `DrawContinued` after it, over one closed bag all of
whose tasks run, with some slots idle that take what is offered.
"""

import gc
import time
from collections.abc import Iterator
from statistics import median
from typing import NamedTuple, TypeVar

from bench import rig
from bench.measures import percentile
from bench.report import NOTE, RUN, Column, Report, Row, Table, Verdict, at_most, best_of
from covey.core.record.actions import Action, Reply
from covey.core.record.events import (
    BagSubmitted,
    Committed,
    DrawContinued,
    Event,
    PilotEnrolled,
    SyncReceived,
    Ticked,
)
from covey.core.record.model import BagSpec, PolicySpec, RequestId, Settings, Snapshot
from covey.core.scheduler import Scheduler
from covey.pilot.protocol.messages import Answer, End, Enrol, Enrolled, Sync

NOBODY = Snapshot(epoch=1, bags=(), pilots=(), jobs=(), next_bag=1, next_pilot=1, keys={})
STEP_SECONDS = 0.001  # of virtual time between two requests
PILOTS = 20
WANT = 4  # tasks that a pilot would hold
REQUESTS = 600  # of each variant: no bag runs out
NEWCOMERS = 20
LATER = 20  # requests after a pause
BLOCK = 50  # requests of one variant before the next has its turn
FEW, MANY = 50, 1_000  # bags
KINDS = 20  # of policies, where many bags share them
SMALL, LARGE = 1_000, 1_000_000  # tasks in each
NOISE = 1.15  # between figures that should be the same
RUNNING = 100_000
SLOTS, IDLE = 100, 64
CYCLES = 5
LATE = "Job.RunningTime > 1.5 * Job.MeanTime + 2 * Job.TimeDeviation"
UNSOUND = f"countMatches(Host.ErrorRate > 0.1, Job.Replicas) > 0 || {LATE}"
LOOKS = {"Job.RunningTime": LATE, "Job.Replicas": UNSOUND}
COLUMNS = (
    RUN,
    Column("bags", "bags", ",d"),
    Column("tasks", "tasks in each", ",d"),
    Column("policies", "policies", ",d"),
    Column("median", "warm, median µs", ",.0f"),
    Column("p95", "p95", ",.0f"),
    Column("most", "most", ",.0f"),
    Column("later", "later, median µs", ",.0f"),
    Column("cold", "cold, median µs", ",.0f"),
    Column("cold_p95", "p95", ",.0f"),
    NOTE,
)
CYCLE_COLUMNS = (
    RUN,
    Column("looks", "looks at"),
    Column("running", "attempts", ",d"),
    Column("asked", "calls", ",d"),
    Column("total", "a cycle, ms", ".1f"),
    Column("longest", "longest call, ms", ".2f"),
    Column("replicas", "replicas sent", ",d"),
    NOTE,
)
Kind = TypeVar("Kind")


def run(where: rig.Rig) -> Report:
    requests, running = (100, 10_000) if where.quick else (REQUESTS, RUNNING)
    rows: list[Row] = []
    drawn: list[Row] = []
    for number in range(1, 2 if where.quick else 4):
        rows += where.bounded_rows(f"policy, requests {number}", number, lambda: measure(requests))
        drawn += where.bounded_rows(f"policy, cycles {number}", number, lambda: draws(running))
    tables = [
        Table(COLUMNS, rows, "One end in, one task out:"),
        Table(CYCLE_COLUMNS, drawn, "One cycle of replication:"),
    ]
    return Report("policy", "decisions with policies, in core", tables, verdicts(rows, drawn))


def verdicts(rows: list[Row], drawn: list[Row]) -> list[Verdict]:
    few, many = _of(rows, FEW, SMALL, FEW), _of(rows, MANY, SMALL, MANY)
    alike = _of(rows, MANY, SMALL, KINDS)
    bounds = [
        (f"{FEW} bags, median, µs", few, "median", 150),
        (f"{FEW} bags, 95 of 100 requests, µs", few, "p95", 150),
        (f"{MANY:,} bags, warm, median, µs", many, "median", 1_000),
        (f"{MANY:,} bags, warm, 95 of 100 requests, µs", many, "p95", 1_000),
        (f"{MANY:,} bags with {MANY:,} policies, cold, median, µs", many, "cold", 3_000),
        (f"{MANY:,} bags with {KINDS} policies, cold, median, µs", alike, "cold", 3_000),
    ]
    found = [at_most(what, best_of(of, key, min), most, ",.0f") for what, of, key, most in bounds]
    found += [same(rows, bags) for bags in (FEW, MANY)]
    for looks in LOOKS:
        of = [row for row in drawn if row.get("looks") == looks]
        found += [
            at_most(f"a cycle that looks at {looks}, ms", best_of(of, "total", min), 100, ".1f"),
            at_most("… its longest call, ms", best_of(of, "longest", min), 5),
        ]
    return found


def same(rows: list[Row], bags: int) -> Verdict:
    """The number of tasks makes no difference."""
    small, large = (
        best_of(_of(rows, bags, tasks, bags), "median", min) for tasks in (SMALL, LARGE)
    )
    ratio = large / small if large and small else None
    return at_most(f"{bags:,} bags of {LARGE:,} tasks over {SMALL:,}", ratio, NOISE)


def _of(rows: list[Row], bags: int, tasks: int, policies: int) -> list[Row]:
    wanted = {"bags": bags, "tasks": tasks, "policies": policies}
    return [row for row in rows if wanted.items() <= row.items()]


# -- a core, and pilots --------------------------------------------------------------------


class Desk:
    """A core with a store that commits at once."""

    def __init__(self) -> None:
        self.now = 1_700_000_000.0
        settings = Settings(lease_seconds=1e9, idle_seconds=1e9)
        self.scheduler, _ = Scheduler.recover(NOBODY, settings, self.now)
        self._requests = 0

    def request(self) -> RequestId:
        self._requests += 1
        return RequestId(self._requests)

    def handle(self, event: Event) -> list[Action]:
        """All that comes of it, commits included."""
        scheduler, state, now = self.scheduler, self.scheduler.state, self.now
        actions = scheduler.handle(event, now)
        while state.journal.durable < state.journal.writes:
            actions += scheduler.handle(Committed(state.journal.writes), now)
        return actions

    def submit(self, tasks: int, policy: PolicySpec) -> None:
        spec = BagSpec(argv=("true",), space=rig.counting(tasks), policy=policy)
        self.handle(BagSubmitted(self.request(), spec))

    def enrol(self, number: int, slots: int = 1) -> "Asker":
        tags = {
            "cores": str(2 + number % 3),
            "cpu_mhz": str(2000 + 37 * number % 1000),
            "free_mem_mb": str(4000 + 111 * number % 2000),
        }
        enrol = Enrol(f"pilot-key-{number}", f"host{number}", slots, tags=tags)
        found = self.handle(PilotEnrolled(self.request(), enrol, "word", "digest"))
        return Asker(self, next(_messages(found, Enrolled)).pilot)


def _messages(actions: list[Action], kind: type[Kind]) -> Iterator[Kind]:
    found = (action.message for action in actions if isinstance(action, Reply))
    return (message for message in found if isinstance(message, kind))


class Asker:
    """A pilot that has always just done the oldest of its tasks."""

    def __init__(self, desk: Desk, pilot: int) -> None:
        self.desk, self.pilot, self.number = desk, pilot, 0
        self.held: list[End] = []

    def ask(self, want: int, ends: int) -> float:
        """Seconds that core took over it."""
        self.number += 1
        sync = Sync(self.pilot, 1, self.number, self.number - 1, want, self.held[:ends])
        del self.held[:ends]
        event = SyncReceived(self.desk.request(), sync)
        began = time.thread_time()
        actions = self.desk.handle(event)
        seconds = time.thread_time() - began
        for answer in _messages(actions, Answer):
            for one in answer.tasks:
                self.held.append(End(1, one.sequence, one.bag, one.task, "ok", 0, cpu_seconds=1.0))
        return seconds


# -- requests ------------------------------------------------------------------------------


class Variant(NamedTuple):
    bags: int
    tasks: int
    policies: int  # different ones


VARIANTS = (
    Variant(FEW, SMALL, FEW),
    Variant(FEW, LARGE, FEW),
    Variant(FEW, SMALL, 0),
    Variant(MANY, SMALL, MANY),
    Variant(MANY, LARGE, MANY),
    Variant(MANY, SMALL, KINDS),
    Variant(MANY, SMALL, 0),
)


def policy_of(number: int) -> PolicySpec:
    return PolicySpec(
        requirements=f"Host.ErrorRate < 0.9 && Host.cpu_mhz >= {1500 + number} && "
        "Host.free_mem_mb > 1000",
        rank=f"Host.cpu_mhz * (1 - Host.ErrorRate) + {number % 97}",
        concurrency="Host.ConsecutiveFailures > 0 ? 1 : Host.NumCpus",
    )


class Crowd:
    """The bags of one variant, and pilots that have asked before."""

    def __init__(self, variant: Variant) -> None:
        self.desk = Desk()
        for number in range(variant.bags):
            kinds = variant.policies
            policy = policy_of(number % kinds * variant.bags // kinds) if kinds else PolicySpec()
            self.desk.submit(variant.tasks, policy)
        self.pilots = [self.desk.enrol(number) for number in range(PILOTS)]
        self.warm: list[float] = []
        self.later: list[float] = []
        self.cold: list[float] = []
        for pilot in self.pilots * 3:
            self.desk.now += STEP_SECONDS
            pilot.ask(WANT, min(1, len(pilot.held)))

    def requests(self, count: int) -> None:
        for number in range(count):
            self.desk.now += STEP_SECONDS
            pilot = self.pilots[number % PILOTS]
            held = len(pilot.held)
            self.warm.append(pilot.ask(WANT, 1))
            if len(pilot.held) != held:
                raise rig.Broken(f"one end, and {len(pilot.held) - held + 1} tasks")

    def return_later(self, number: int) -> None:
        self.desk.now += 2.0
        self.later.append(self.pilots[number % PILOTS].ask(WANT, 1))

    def newcomer(self) -> None:
        self.desk.now += STEP_SECONDS
        pilot = self.desk.enrol(PILOTS + len(self.cold))
        self.cold.append(pilot.ask(WANT, 0))


def measure(requests: int) -> list[Row]:
    crowds = {variant: Crowd(variant) for variant in VARIANTS}
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        for _ in range(requests // BLOCK):
            for crowd in crowds.values():
                crowd.requests(BLOCK)
        for number in range(LATER):
            for crowd in crowds.values():
                crowd.return_later(number)
        for _ in range(NEWCOMERS):
            for crowd in crowds.values():
                crowd.newcomer()
    finally:
        gc.enable()
        gc.unfreeze()
    return [_row(variant, crowd) for variant, crowd in crowds.items()]


def _row(variant: Variant, crowd: Crowd) -> Row:
    times = (crowd.warm, crowd.later, crowd.cold)
    warm, later, cold = ([1e6 * one for one in found] for found in times)
    return {
        "bags": variant.bags,
        "tasks": variant.tasks,
        "policies": variant.policies,
        "median": median(warm),
        "p95": percentile(warm, 95),
        "most": max(warm),
        "later": median(later),
        "cold": median(cold),
        "cold_p95": percentile(cold, 95),
    }


# -- cycles --------------------------------------------------------------------------------


def draws(running: int) -> list[Row]:
    return [cycles(looks, condition, running) for looks, condition in LOOKS.items()]


def cycles(looks: str, condition: str, running: int) -> Row:
    desk = Desk()
    desk.submit(running, PolicySpec(replication=condition, max_replicas="2"))
    busy = [desk.enrol(number, SLOTS) for number in range(running // SLOTS)]
    for pilot in busy:
        while len(pilot.held) < SLOTS:
            pilot.ask(SLOTS, 0)
    for number in range(IDLE):
        desk.enrol(len(busy) + number).ask(1, 0)
    totals, longest, calls = [], 0.0, 0
    for _ in range(CYCLES):
        desk.now += 1.0
        times = [_timed(desk, Ticked())]
        while desk.scheduler.state.replication.drawing:
            times.append(_timed(desk, DrawContinued()))
        totals.append(sum(times))
        longest, calls = max(longest, *times), len(times)
    (bag,) = desk.scheduler.state.bags.values()
    return {
        "looks": looks,
        "running": sum(map(len, bag.places.live.values())),
        "asked": calls,
        "total": 1e3 * median(totals),
        "longest": 1e3 * longest,
        "replicas": bag.replicas.sent,
    }


def _timed(desk: Desk, event: Event) -> float:
    began = time.thread_time()
    desk.handle(event)
    return time.thread_time() - began
