"""How many more slots are wanted, and for what: the overlay's arithmetic.

A *row* is a class of tasks that wait. Tasks are counted, not slots: a slot covers as many tasks as
it can do in `WORTH_SECONDS`, a free slot at least one. So a thousand tasks of a second want a
hundred slots, and a thousand tasks of an hour want a thousand. Before the first task is measured,
each task wants a slot; the ramps of sites keep that within limits.

Pilots, and then jobs that wait at sites, cover the rows: the row that fits the fewest of them
first. A pilot whose time ends too soon for a class covers none of it. An idle pilot does not cover
tasks that it was offered and has not taken. The tasks that are not covered are missing; the waiting
jobs that cover nothing are surplus. Jobs that have waited for long, or whose site does not answer,
cover last: tasks that only they cover are *late*, and pilots for them may be started elsewhere.
"""

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Container, Iterable
from itertools import islice
from typing import NamedTuple, TypeAlias

from msgspec import Struct
from msgspec.structs import replace
from pyroaring import BitMap

from covey.core.bags.estimate import expected
from covey.core.match.pilot_fit import stretch, weight
from covey.core.record.model import BagStatus, JobRecord, Need, PilotStatus
from covey.core.state import Bag, Job, Pilot, State

WORTH_SECONDS = 10.0  # of work for a slot that justify a pilot
OFFERED_SECONDS = 2.0  # in which idle pilots have been offered the tasks that wait
LATE_SECONDS = 120.0  # after which a waiting job does not count any more
MANY_CLASSES = 32  # of a bag; if it has more, classes with equal needs are one row
MOST_ROWS = 100  # of a bag; if it has more, the rows with the most tasks count
MOST_GROWN = 1000  # tasks with more time than their class that are looked at
_HERE = (PilotStatus.ACTIVE, PilotStatus.SUSPECTED)


class Shape(NamedTuple):
    """What a pilot can hold, and how long it stays at least. `pilot_fit.weight` takes it in place
    of a pilot's record."""

    site: str
    slots: int
    memory_mb: int
    disk_mb: int
    gpus: int
    owner: str
    life: float


Key: TypeAlias = tuple[str, int, int, int, int, str, float]  # the fields of a Shape


class Supply(Struct, eq=False):
    """Slots of pilots of one shape: free ones, idle ones although there is work, busy ones, slots
    that wait at their site, and slots that have waited there for long."""

    shape: Shape
    free: float = 0.0
    idle: float = 0.0
    busy: float = 0.0
    queued: float = 0.0
    late: float = 0.0
    slow: bool = False  # some jobs have waited for long


class DemandRow(Struct, eq=False):
    """Tasks of one class of a bag that wait, and what each takes."""

    bag: Bag
    kind: int
    need: Need
    tasks: float
    seconds: float  # that one takes; 0: not known
    rescue: bool = False  # they have failed everywhere else
    grown: bool = False  # they have more time than others of their class
    offered: bool = False  # idle pilots have been offered them
    missing: float = 0.0  # tasks that no pilot and no waiting job covers
    late: float = 0.0  # tasks that only jobs cover which have waited for long

    @property
    def in_time(self) -> float:
        """How many of them a slot does in `WORTH_SECONDS`."""
        return WORTH_SECONDS / self.seconds if self.seconds > 0 else 0.0

    @property
    def life(self) -> float:
        """Seconds that a pilot must have left to run one."""
        return self.need.limit_seconds or self.seconds


def notice(state: State, now: float) -> None:
    """Note since when each bag wants slots."""
    for bag in state.bags.values():
        bag.progress.wanting = min(bag.progress.wanting, now) if _wants(bag) else math.inf


def _wants(bag: Bag) -> bool:
    return bool(bag.unsent() or (bag.replicas.overdue and bag.status is BagStatus.RUNNING))


def rows(state: State, now: float) -> list[DemandRow]:
    found: list[DemandRow] = []
    for bag in filter(_wants, state.bags.values()):
        places, classes = bag.places, bag.classes
        old = now - bag.progress.wanting >= OFFERED_SECONDS
        old = old and places.not_before <= state.journal.durable
        waiting = _waiting(bag)
        for kind, times, tasks in _long_ones(bag) if bag.failures.grown else ():
            waiting[kind] -= tasks
            found.append(_row(bag, kind, tasks, classes[kind].need, offered=old, times=times))
        some = _alike(bag, waiting) if len(waiting) > MANY_CLASSES else _some(bag, waiting)
        for kind, tasks, need in some:
            unsorted = places.next < bag.chunks.mark
            sent = bool(places.ready[kind] or unsorted or bag.replicas.overdue)
            found.append(_row(bag, kind, tasks, need, offered=old and sent))
        rescue = sorted(Counter(map(bag.class_of, places.rescue)).items())
        for kind, tasks in rescue[:MOST_ROWS]:
            found.append(_row(bag, kind, tasks, classes[kind].need, offered=old, rescue=True))
    return found


def _some(bag: Bag, waiting: list[int]) -> list[tuple[int, int, Need]]:
    """Classes with tasks that wait, how many tasks wait, and what each needs."""
    needs = [class_.need for class_ in bag.classes]
    return [(kind, tasks, needs[kind]) for kind, tasks in enumerate(waiting) if tasks > 0]


def _alike(bag: Bag, waiting: list[int]) -> list[tuple[int, int, Need]]:
    """The same for a bag with many classes. Classes with equal needs are one row; if there are many
    different needs, those of about the same size are, with the largest need. The class with the
    most tasks stands for the others."""
    some = _some(bag, waiting)
    rough = len({bag.classes[kind].number for kind, _, _ in some}) > MANY_CLASSES
    merged: dict[object, tuple[int, int, int, Need]] = {}
    for kind, tasks, need in some:
        key = _magnitude(need) if rough else bag.classes[kind].number
        best, most, total, largest = merged.get(key, (kind, 0, 0, need))
        if tasks > most:
            best, most = kind, tasks
        merged[key] = (best, most, total + tasks, _larger(largest, need))
    rows = sorted(merged.values(), key=lambda row: -row[2])[:MOST_ROWS]
    return [(kind, total, need) for kind, _, total, need in rows]


def _magnitude(need: Need) -> tuple[int, ...]:
    """Needs of one magnitude differ at most by a factor of two in everything."""
    amounts = (need.cores, need.memory_mb, need.disk_mb, need.gpus, int(need.limit_seconds))
    return tuple(amount.bit_length() for amount in amounts)


def _larger(one: Need, other: Need) -> Need:
    if one is other:
        return one
    return Need(
        cores=max(one.cores, other.cores),
        memory_mb=max(one.memory_mb, other.memory_mb),
        disk_mb=max(one.disk_mb, other.disk_mb),
        gpus=max(one.gpus, other.gpus),
        limit_seconds=max(one.limit_seconds, other.limit_seconds),
    )


def _row(
    bag: Bag,
    kind: int,
    tasks: int,
    need: Need,
    *,
    offered: bool,
    rescue: bool = False,
    times: float = 1.0,
) -> DemandRow:
    """`times`: the tasks' time limit, as a multiple of the class's."""
    measured = expected(bag, kind)
    seconds = max(measured.mean, 1e-3) if measured.count else 0.0
    if times != 1.0:
        limit = need.limit_seconds * times
        need, seconds = replace(need, limit_seconds=limit), max(seconds, need.limit_seconds)
    return DemandRow(bag, kind, need, tasks, seconds, rescue, times != 1.0, offered)


def _long_ones(bag: Bag) -> list[tuple[int, float, int]]:
    """Waiting tasks that have more time than their class: the class, how many times as much, and
    how many tasks these are."""
    counts: Counter[tuple[int, float]] = Counter()
    grown = BitMap(bag.failures.overtimes)
    for raised in bag.failures.raised:
        if raised.tasks is None:
            grown.add_range(0, bag.places.next)
        else:
            grown |= BitMap(raised.tasks)
    for kind, ready in enumerate(bag.places.ready):
        limit = bag.classes[kind].need.limit_seconds
        if limit:
            tasks = islice(ready & grown, MOST_GROWN)
            counts.update((kind, stretch(bag, task, limit)) for task in tasks)
    return [(*key, tasks) for key, tasks in sorted(counts.items()) if key[1] != 1.0][:MOST_ROWS]


def _waiting(bag: Bag) -> list[int]:
    """How many tasks wait, by class. Tasks whose class is not known yet are taken to be of the
    classes of the others, in the same proportion."""
    counts = [len(ready) for ready in bag.places.ready] or [0]
    for task in bag.replicas.overdue:
        counts[bag.places.live[task][0].kind] += 1  # as it was sent
    unsorted = bag.total - bag.places.next + len(bag.places.parked) + len(bag.places.aside)
    sorted_ = sum(counts)
    if not sorted_ or len(counts) == 1:
        counts[0] += unsorted
        return counts
    return [tasks + -(-unsorted * tasks // sorted_) for tasks in counts]


# -- what there is ---------------------------------------------------------------------------


class Lives:
    """The lifetimes that rows want. A pilot's own lifetime is rounded down to one of them, so that
    fewer shapes differ."""

    def __init__(self, found: Iterable[DemandRow]) -> None:
        self.wanted = [0.0, *sorted({row.life for row in found if row.life})]


def supplies(state: State, now: float, lives: Lives) -> dict[Shape, Supply]:
    """The slots of all pilots and waiting jobs. There may be thousands, so equal ones are counted
    first."""
    by_key: dict[Key, Supply] = {}
    for (key, hungry, (free, busy)), count in _pilots_alike(state, now, lives).items():
        supply = _supply(by_key, key)
        supply.busy += count * busy
        if hungry:
            supply.idle += count * free
        else:
            supply.free += count * free
    for (key, late), count in _jobs_alike(state, now, lives).items():
        supply = _supply(by_key, key)
        if late:
            supply.late += count * supply.shape.slots
            supply.slow = True
        else:
            supply.queued += count * supply.shape.slots
    return {supply.shape: supply for supply in by_key.values()}


def _supply(supplies: dict[Key, Supply], key: Key) -> Supply:
    if key not in supplies:
        supplies[key] = Supply(Shape(*key))
    return supplies[key]


def _pilots_alike(
    state: State, now: float, lives: Lives
) -> Counter[tuple[Key, bool, tuple[int, int]]]:
    """How many pilots have this shape, wait for tasks or not, and have so many free and busy
    slots."""
    hungry, wanted = state.queue.hungry, lives.wanted
    return Counter(
        (
            (
                one.site,
                one.slots,
                one.memory_mb,
                one.disk_mb,
                one.gpus,
                one.owner,
                wanted[bisect_right(wanted, pilot.until - now) - 1],
            ),
            id_ in hungry,
            _at_hand(pilot),
        )
        for id_, pilot in state.pilots.items()
        if pilot.status in _HERE and now < pilot.until
        for one in (pilot.record,)
    )


def _at_hand(pilot: Pilot) -> tuple[int, int]:
    """The free and the busy slots of a pilot. A pilot that wants no more tasks is about to end. A
    pilot that has not said yet what it holds is taken to be busy."""
    slots, load = pilot.record.slots, pilot.load
    if pilot.resync:
        return 0, slots
    if not pilot.last:
        return slots, 0
    if not pilot.want:
        return 0, 0
    if load >= slots:
        return 0, slots
    return min(slots - load, max(0, pilot.want - load)), load


def _jobs_alike(state: State, now: float, lives: Lives) -> Counter[tuple[Key, bool]]:
    """How many waiting jobs will have pilots of this shape, and are late or not."""
    shared = {name for name, site in state.sites.items() if site.record.spec.shared}
    return Counter(
        (key_of(job.record, job.record.site in shared, lives), is_late(state, job, now))
        for job in state.jobs.values()
        if job.pilot is None and is_to_come(state, job)
    )


def key_of(job: JobRecord, shared: bool, lives: Lives) -> Key:
    """The shape that the job's pilot will have. `site_table.owner_of` decides its owner."""
    wanted = lives.wanted
    return (
        job.site,
        job.slots,
        job.memory_mb,
        job.disk_mb,
        job.gpus,
        "" if shared else job.wanted_by,
        wanted[bisect_right(wanted, job.wall_seconds or math.inf) - 1],
    )


def is_to_come(state: State, job: Job) -> bool:
    """Whether its pilot is expected to enrol. A pilot that has left will not come back, though its
    job may still be listed."""
    expected = job.pilot is None and not job.cancelled and not job.vanished
    return expected and not job.record.trial and job.record.site in state.sites


def is_late(state: State, job: Job, now: float) -> bool:
    """Whether the job has waited for long, or its site does not answer."""
    return now - job.since >= LATE_SECONDS or bool(state.sites[job.record.site].unanswered)


# -- what covers what --------------------------------------------------------------------------


class Serves(NamedTuple):
    """Whether pilots at a site may run tasks of a row: `allowed_sites.allowed` for sites that core
    knows, and what the bag says of others."""

    allowed: dict[tuple[int, bool], dict[str, bool]]
    known: Container[str]  # sites

    def sites(self, row: DemandRow) -> dict[str, bool]:
        return self.allowed[row.bag.id, row.rescue]

    def strange(self, row: DemandRow, site: str) -> bool:
        """Whether pilots that people started at a site that core does not know may run them."""
        if site in self.known:
            return False
        return not row.rescue or site in row.bag.policy.spec.failover_sites


def cover(found: list[DemandRow], supply: Iterable[Supply], serves: Serves) -> None:
    """Take the slots that the rows use from the supply, and set what each row is missing."""
    able: list[tuple[int, int, DemandRow, list[tuple[Supply, int]]]] = []
    supply = list(supply)
    strange = serves.strange
    theirs: dict[str, list[Supply]] = {}  # what an owner's tasks may use
    weights: dict[tuple[str, Need], list[tuple[Supply, int]]] = {}  # many rows need the same
    for number, row in enumerate(found):
        owner, need = row.bag.spec.owner, row.need
        if owner not in theirs:
            theirs[owner] = [one for one in supply if one.shape.owner in ("", owner)]
        if (owner, need) not in weights:
            all_ = ((one, weight(need, one.shape)) for one in theirs[owner])
            weights[owner, need] = [one for one in all_ if one[1]]
        life, served = row.life, serves.sites(row)
        fitting = [
            one
            for one in weights[owner, need]
            if (shape := one[0].shape).life >= life
            and (served[shape.site] if shape.site in served else strange(row, shape.site))
        ]
        able.append((len(fitting), number, row, fitting))
    able.sort(key=lambda one: one[:2])
    for _, _, row, fitting in able:
        _cover(row, fitting)


def _cover(row: DemandRow, fitting: list[tuple[Supply, int]]) -> None:
    left = row.tasks
    ready = max(1.0, row.in_time)  # tasks that a place with nothing to do takes
    for supply, taken in fitting:
        left, supply.free = _use(left, supply.free, taken, ready)
        if not row.offered:
            left, supply.idle = _use(left, supply.idle, taken, ready)
    if row.in_time:
        for supply, taken in fitting:
            left, supply.busy = _use(left, supply.busy, taken, row.in_time)
    open_ = held = left
    for supply, taken in fitting:
        left, supply.queued = _use(left, supply.queued, taken, ready)
    for supply, taken in fitting:  # these jobs are kept: they may start before new ones
        held, supply.late = _use(held, supply.late, taken, ready)
    row.late = min(left, open_ - held)
    row.missing = left - row.late


def _use(tasks: float, slots: float, taken: int, each: float) -> tuple[float, float]:
    """The tasks and the slots that are left when the slots take `each` tasks in each place."""
    if tasks <= 0.0 or slots <= 0.0:
        return tasks, slots
    used = min(slots / taken, tasks / each)
    return max(0.0, tasks - used * each), slots - used * taken
