"""How many more slots are wanted, and for what: the overlay's arithmetic.

A *row* is a class of tasks that wait. Tasks are counted, not slots: a free slot takes at once one
task, and in `WORTH_SECONDS` as many as it can do in that time; a busy slot takes what it can do
then. So a thousand tasks of a second want a hundred slots and a thousand tasks of an hour want a
thousand. As long as nothing is measured each task wants a slot; that is what the ramps of sites are
for.

What there is covers the rows, the pickiest first: pilots, then jobs that wait at sites, grouped by
what they can hold. A pilot whose time is over too soon for a class covers none of it, and one that
stands idle covers nothing that it has been offered and has not taken. What is left of the rows is
missing; what is left of the waiting jobs is surplus. Jobs that have waited for long, or of whose
site nothing is heard, cover last: what only they cover is *late*, and may be started elsewhere.
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

WORTH_SECONDS = 10.0  # of work that make a slot worth a pilot
OFFERED_SECONDS = 2.0  # in which whoever stands idle has been offered what waits
LATE_SECONDS = 120.0  # of waiting, after which a job is not counted on any more
MANY_CLASSES = 32  # of a bag: of more, those with equal needs are one row
MOST_ROWS = 100  # of a bag: those with the most tasks
MOST_GROWN = 1000  # tasks with more time than others that are looked at
_HERE = (PilotStatus.ACTIVE, PilotStatus.SUSPECTED)


class Shape(NamedTuple):
    """What a pilot can hold, and for how long at least. Looks like a pilot's record, as far as
    `pilot_fit.weight` is concerned."""

    site: str
    slots: int
    memory_mb: int
    disk_mb: int
    gpus: int
    owner: str
    life: float


Key: TypeAlias = tuple[str, int, int, int, int, str, float]  # a shape, made faster


class Supply(Struct, eq=False):
    """Slots of one shape: free ones, those that stand idle though there is work, those at work,
    those that wait at their site, and those that have waited there for long."""

    shape: Shape
    free: float = 0.0
    idle: float = 0.0
    busy: float = 0.0
    queued: float = 0.0
    late: float = 0.0
    slow: bool = False  # some of them have


class DemandRow(Struct, eq=False):
    """Tasks of one class of a bag that wait, and what each takes."""

    bag: Bag
    kind: int
    need: Need
    tasks: float
    seconds: float  # that one takes; 0: not known
    rescue: bool = False  # they have failed everywhere else
    grown: bool = False  # they have more time than others of their class
    offered: bool = False  # whoever stands idle has been offered them
    missing: float = 0.0  # tasks that nothing there is will take
    late: float = 0.0  # … that are left to jobs which wait for long

    @property
    def in_time(self) -> float:
        """How many of them a slot does in the time that makes it worth a pilot."""
        return WORTH_SECONDS / self.seconds if self.seconds > 0 else 0.0

    @property
    def life(self) -> float:
        """What a pilot must have left to be of use."""
        return self.need.limit_seconds or self.seconds


def notice(state: State, now: float) -> None:
    """Since when does each bag want slots?"""
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
    """Classes with tasks that wait, how many these are, and what each needs."""
    needs = [one.need for one in bag.classes]
    return [(kind, tasks, needs[kind]) for kind, tasks in enumerate(waiting) if tasks > 0]


def _alike(bag: Bag, waiting: list[int]) -> list[tuple[int, int, Need]]:
    """The same where there are many classes. Those with equal needs are taken together; of very
    many needs those of about the same size, since what can hold the largest can hold them all. The
    class with the most tasks stands for the others."""
    some = _some(bag, waiting)
    rough = len({bag.classes[kind].number for kind, _, _ in some}) > MANY_CLASSES
    found: dict[object, tuple[int, int, int, Need]] = {}
    for kind, tasks, need in some:
        key = _magnitude(need) if rough else bag.classes[kind].number
        best, most, total, largest = found.get(key, (kind, 0, 0, need))
        if tasks > most:
            best, most = kind, tasks
        found[key] = (best, most, total + tasks, _larger(largest, need))
    rows = sorted(found.values(), key=lambda one: -one[2])[:MOST_ROWS]
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
    """`times`: their limit is so many times that of the class."""
    measured = expected(bag, kind)
    seconds = max(measured.mean, 1e-3) if measured.count else 0.0
    if times != 1.0:
        limit = need.limit_seconds * times
        need, seconds = replace(need, limit_seconds=limit), max(seconds, need.limit_seconds)
    return DemandRow(bag, kind, need, tasks, seconds, rescue, times != 1.0, offered)


def _long_ones(bag: Bag) -> list[tuple[int, float, int]]:
    """Tasks that wait and have more time than others of their class: the class, how many times as
    much, and how many they are."""
    found: Counter[tuple[int, float]] = Counter()
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
            found.update((kind, stretch(bag, task, limit)) for task in tasks)
    return [(*one, tasks) for one, tasks in sorted(found.items()) if one[1] != 1.0][:MOST_ROWS]


def _waiting(bag: Bag) -> list[int]:
    """By class. Numbers that are not sorted yet are taken to be like those that are."""
    found = [len(ready) for ready in bag.places.ready] or [0]
    for task in bag.replicas.overdue:
        found[bag.places.live[task][0].kind] += 1  # as it was sent
    unsorted = bag.total - bag.places.next + len(bag.places.parked) + len(bag.places.aside)
    sorted_ = sum(found)
    if not sorted_ or len(found) == 1:
        found[0] += unsorted
        return found
    return [tasks + -(-unsorted * tasks // sorted_) for tasks in found]


# -- what there is ---------------------------------------------------------------------------


class Lives:
    """Lifetimes are told apart only as far as some row does: the longest that a pilot is good for
    is the last of those wanted that its own reaches."""

    def __init__(self, found: Iterable[DemandRow]) -> None:
        self.wanted = [0.0, *sorted({row.life for row in found if row.life})]


def supplies(state: State, now: float, lives: Lives) -> dict[Shape, Supply]:
    """There may be thousands, so those that are alike are counted first."""
    found: dict[Key, Supply] = {}
    for (key, hungry, (free, busy)), count in _pilots_alike(state, now, lives).items():
        one = _supply(found, key)
        one.busy += count * busy
        if hungry:
            one.idle += count * free
        else:
            one.free += count * free
    for (key, late), count in _jobs_alike(state, now, lives).items():
        one = _supply(found, key)
        if late:
            one.late += count * one.shape.slots
            one.slow = True
        else:
            one.queued += count * one.shape.slots
    return {one.shape: one for one in found.values()}


def _supply(found: dict[Key, Supply], key: Key) -> Supply:
    if key not in found:
        found[key] = Supply(Shape(*key))
    return found[key]


def _pilots_alike(
    state: State, now: float, lives: Lives
) -> Counter[tuple[Key, bool, tuple[int, int]]]:
    """How many pilots have this shape, wait for tasks or do not, and have that much at hand."""
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
    """Slots of a pilot that stand free, and that are at work. One that wants nothing more is about
    to end; what one has of which we wait to hear it is taken to be at work."""
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
    """How many jobs are to have pilots of this shape, and are late or not."""
    shared = {name for name, site in state.sites.items() if site.record.spec.shared}
    return Counter(
        (key_of(job.record, job.record.site in shared, lives), is_late(state, job, now))
        for job in state.jobs.values()
        if job.pilot is None and is_to_come(state, job)
    )


def key_of(job: JobRecord, shared: bool, lives: Lives) -> Key:
    """The shape that the job's pilot will have; whose it will be, `sites.owner_of` says as well."""
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
    """Whether its pilot will, as far as we know, enrol. A pilot that has left will not come back,
    though its job may still be listed."""
    expected = job.pilot is None and not job.cancelled and not job.vanished
    return expected and not job.record.trial and job.record.site in state.sites


def is_late(state: State, job: Job, now: float) -> bool:
    """It has waited for long, or nobody knows what has become of it."""
    return now - job.since >= LATE_SECONDS or bool(state.sites[job.record.site].unanswered)


# -- what covers what --------------------------------------------------------------------------


class Serves(NamedTuple):
    """Whether pilots at a site run tasks of a row, as far as bags and sites say: by bag and whether
    its tasks have failed everywhere else."""

    allowed: dict[tuple[int, bool], dict[str, bool]]
    known: Container[str]  # sites

    def sites(self, row: DemandRow) -> dict[str, bool]:
        return self.allowed[row.bag.id, row.rescue]

    def strange(self, row: DemandRow, site: str) -> bool:
        """Somebody started it by hand, at a site that is none of ours."""
        if site in self.known:
            return False
        return not row.rescue or site in row.bag.policy.spec.failover_sites


def cover(found: list[DemandRow], supply: Iterable[Supply], serves: Serves) -> None:
    """Takes away from the supply what the rows use, and tells them what is missing."""
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
    for one, taken in fitting:
        left, one.free = _use(left, one.free, taken, ready)
        if not row.offered:
            left, one.idle = _use(left, one.idle, taken, ready)
    if row.in_time:
        for one, taken in fitting:
            left, one.busy = _use(left, one.busy, taken, row.in_time)
    open_ = held = left
    for one, taken in fitting:
        left, one.queued = _use(left, one.queued, taken, ready)
    for one, taken in fitting:  # kept, in case that they come first
        held, one.late = _use(held, one.late, taken, ready)
    row.late = min(left, open_ - held)
    row.missing = left - row.late


def _use(tasks: float, slots: float, taken: int, each: float) -> tuple[float, float]:
    """What is left of both."""
    if tasks <= 0.0 or slots <= 0.0:
        return tasks, slots
    used = min(slots / taken, tasks / each)
    return max(0.0, tasks - used * each), slots - used * taken
