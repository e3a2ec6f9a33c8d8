"""How many more slots are wanted, and for what: the overlay's arithmetic.

A *row* is a class of tasks that wait. Tasks are counted, not slots: a free slot takes at once one
task, and in `WORTH_SECONDS` as many as it can do in that time; a busy slot takes what it can do
then. So a thousand tasks of a second want a hundred slots and a thousand tasks of an hour want a
thousand. As long as nothing is measured each task wants a slot; that is what the ramps of sites are
for.

What there is covers the rows, the pickiest first: pilots, then jobs that wait at sites, grouped by
what they can hold. A pilot whose time is over too soon for a class covers none of it. What is left
of the rows is missing; what is left of the waiting jobs is surplus.
"""

from collections.abc import Iterable
from typing import NamedTuple

from msgspec import Struct

from covey.core.fitting import weight
from covey.core.model import BagStatus, Need, PilotStatus
from covey.core.state import Bag, Job, State

WORTH_SECONDS = 10.0  # of work that make a slot worth a pilot
UNITS = 60.0  # lifetimes are told apart in minutes
AGES = 12  # … up to so many, and then by doubling


class Shape(NamedTuple):
    """What a pilot can hold, and for how long at least. Looks like a pilot's record, as far as
    `fitting.weight` is concerned."""

    site: str
    slots: int
    memory_mb: int
    disk_mb: int
    gpus: int
    owner: str
    life: float


class Supply(Struct, eq=False):
    """Slots of one shape: those that stand free, those at work, those that wait at their site."""

    shape: Shape
    free: float = 0.0
    busy: float = 0.0
    queued: float = 0.0


class Row(Struct, eq=False):
    """Tasks of one class of a bag that wait, and what each takes."""

    bag: Bag
    kind: int
    need: Need
    tasks: float
    seconds: float  # that one takes; 0: not known
    missing: float = 0.0  # tasks that nothing there is will take
    sites: list[str] = []  # where pilots for it may be started

    @property
    def in_time(self) -> float:
        """How many of them a slot does in the time that makes it worth a pilot."""
        return WORTH_SECONDS / self.seconds if self.seconds > 0 else 0.0

    @property
    def life(self) -> float:
        """What a pilot must have left to be of use."""
        return self.need.limit_seconds or self.seconds


def rows(state: State) -> list[Row]:
    found = []
    for bag in state.bags.values():
        if bag.status is not BagStatus.RUNNING:
            continue
        if not bag.unsent() and not bag.overdue:
            continue
        for kind, tasks in enumerate(_waiting(bag)):
            if tasks:
                times = bag.times[kind]
                seconds = max(times.mean, 1e-3) if times.count else 0.0
                found.append(Row(bag, kind, bag.needs[kind], tasks, seconds))
    return found


def _waiting(bag: Bag) -> list[int]:
    """By class. Numbers that are not sorted yet are taken to be like those that are."""
    found = [len(ready) for ready in bag.ready] or [0]
    for task in (*bag.overdue, *bag.rescue):
        found[bag.class_of(task)] += 1
    unsorted = bag.total - bag.next + len(bag.parked) + len(bag.aside)
    sorted_ = sum(found)
    if not sorted_ or len(found) == 1:
        found[0] += unsorted
        return found
    return [tasks + -(-unsorted * tasks // sorted_) for tasks in found]


def supplies(state: State, now: float) -> dict[Shape, Supply]:
    found: dict[Shape, Supply] = {}
    for pilot in state.pilots.values():
        if pilot.status is not PilotStatus.ACTIVE or now >= pilot.until:
            continue
        record = pilot.record
        shape = Shape(
            record.site,
            record.slots,
            record.memory_mb,
            record.disk_mb,
            record.gpus,
            record.owner,
            _rounded(pilot.until - now),
        )
        one = found.get(shape)
        if one is None:
            one = found[shape] = Supply(shape)
        idle = record.slots - pilot.load
        one.free += max(idle, 0)
        one.busy += record.slots - max(idle, 0)
    for job in state.jobs.values():
        if _is_to_come(state, job):
            shape = shape_of(job)
            one = found.setdefault(shape, Supply(shape))
            one.queued += shape.slots
    return found


def shape_of(job: Job) -> Shape:
    one = job.record
    life = _rounded(one.wall_seconds) if one.wall_seconds else float("inf")
    return Shape(one.site, one.slots, one.memory_mb, one.disk_mb, one.gpus, "", life)


def _is_to_come(state: State, job: Job) -> bool:
    """Whether its pilot will, as far as we know, enrol. A pilot that has left will not come back,
    though its job may still be listed."""
    return job.pilot is None and not job.cancelled and not job.record.trial


def _rounded(seconds: float) -> float:
    """Down, to few different values."""
    units = seconds // UNITS
    if units < AGES or units == float("inf"):
        return units * UNITS
    power = AGES
    while power * 2 <= units:
        power *= 2
    return power * UNITS


def cover(found: list[Row], supply: Iterable[Supply], serves: "Serves") -> None:
    """Takes away from the supply what the rows use, and tells them what is missing."""
    able: list[tuple[int, int, Row, list[tuple[Supply, int]]]] = []
    supply = list(supply)
    for number, row in enumerate(found):
        fitting = []
        for one in supply:
            taken = weight(row.need, one.shape)
            if taken and one.shape.life >= row.life and serves(row, one.shape):
                fitting.append((one, taken))
        able.append((len(fitting), number, row, fitting))
    able.sort(key=lambda one: one[:2])
    for _, _, row, fitting in able:
        row.missing = _covered(row, fitting)


def _covered(row: Row, fitting: list[tuple[Supply, int]]) -> float:
    left = row.tasks
    ready = max(1.0, row.in_time)  # tasks that a place with nothing to do takes
    for one, taken in fitting:
        left, one.free = _use(left, one.free, taken, ready)
    if row.in_time:
        for one, taken in fitting:
            left, one.busy = _use(left, one.busy, taken, row.in_time)
    for one, taken in fitting:
        left, one.queued = _use(left, one.queued, taken, ready)
    return left


def _use(tasks: float, slots: float, taken: int, each: float) -> tuple[float, float]:
    """What is left of both."""
    places = slots / taken
    used = min(places, tasks / each)
    return max(0.0, tasks - used * each), slots - used * taken


class Serves(NamedTuple):
    """Whether pilots of this shape run tasks of this row, as far as bags and sites say."""

    allowed: dict[tuple[int, str], bool]

    def __call__(self, row: Row, shape: Shape) -> bool:
        if shape.owner not in ("", row.bag.spec.owner):
            return False
        return self.allowed.get((row.bag.id, shape.site), True)
