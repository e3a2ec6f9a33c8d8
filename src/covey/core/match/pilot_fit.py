"""Whether a task fits a pilot, and how many of its slots it takes.

A pilot's slots are its cores. A task that needs several cores, or more than a slot's share of the
memory or of the GPUs, takes several slots. A pilot that does not say how much memory or disk it has
is taken to have enough.
"""

from typing import Protocol

from msgspec.structs import replace

from covey.core.record.model import Need, PilotRecord, TaskNumber
from covey.core.state import Bag, Pilot, State

MOST_GROWTH = 1e6  # factor by which retries may raise a task's memory or time, all together
MOST_POWER = 100  # retries that raise it: the result of more may be too large for arithmetic


class Roomy(Protocol):
    """A pilot that is there or yet to come: its slots, and all else that tasks need."""

    @property
    def slots(self) -> int: ...
    @property
    def memory_mb(self) -> int: ...
    @property
    def disk_mb(self) -> int: ...
    @property
    def gpus(self) -> int: ...


def weight_on(bag: Bag, kind: int, pilot: Pilot, now: float) -> int:
    """As `weight`, for a task of this class; also 0 if the pilot's time ends before the task's time
    limit. A task without a time limit is taken to last as long as the others of its class did,
    unless the pilot never had that much time."""
    class_, left = bag.classes[kind], pilot.until - now
    need, mean = class_.need, class_.times.mean
    if need.limit_seconds > left:
        return 0
    if not need.limit_seconds and left < mean < pilot.until - pilot.record.enrolled:
        return 0
    return weight(need, pilot.record)


def held_of(state: State, pilot: Pilot, owner: str) -> int:
    """How many tasks of this owner the pilot holds."""
    if pilot.record.owner or len(state.scene.owners) == 1:
        return len(pilot.attempts)
    bags = [state.bags.get(one.bag) for one in pilot.attempts.values()]
    return sum(bag is not None and bag.spec.owner == owner for bag in bags)


def weight(need: Need, pilot: Roomy) -> int:
    """How many slots of the pilot a task with this need takes; 0 if it does not fit there."""
    slots = pilot.slots
    if need.cores > slots or need.gpus > pilot.gpus:
        return 0
    if pilot.memory_mb and need.memory_mb > pilot.memory_mb:
        return 0
    if pilot.disk_mb and need.disk_mb > pilot.disk_mb:
        return 0
    taken = need.cores
    for wanted, there in ((need.memory_mb, pilot.memory_mb), (need.gpus, pilot.gpus)):
        if wanted and there:
            taken = max(taken, -(-wanted * slots // there))
    return min(taken, slots)


def limits(bag: Bag, task: TaskNumber, need: Need, pilot: PilotRecord) -> tuple[int, float]:
    """The memory and the time that this attempt gets; 0: as usual in its class. Never more memory
    than the pilot has."""
    memory, seconds = _amounts(bag, task, need.memory_mb, need.limit_seconds)
    memory_mb = 0
    if memory != need.memory_mb:
        memory_mb = max(1, round(memory))
        if pilot.memory_mb:
            memory_mb = min(memory_mb, pilot.memory_mb)
    return memory_mb, seconds if seconds != need.limit_seconds else 0.0


def need_now(bag: Bag, task: int, need: Need) -> Need:
    """The need of the task. `need`: that of its class; the task's own may have been raised."""
    memory, seconds = _amounts(bag, task, need.memory_mb, need.limit_seconds)
    return replace(need, memory_mb=round(memory), limit_seconds=seconds)


def stretch(bag: Bag, task: int, limit_seconds: float) -> float:
    """The factor by which the task's time limit is longer than that of its class."""
    return _amounts(bag, task, 0, limit_seconds)[1] / limit_seconds if limit_seconds else 1.0


def _amounts(bag: Bag, task: int, memory_mb: int, seconds: float) -> tuple[float, float]:
    """Memory and time of the task. `memory_mb`, `seconds`: those of its class. People may have
    raised or set them, and they grow when the task runs out of them."""
    memory: float = memory_mb
    most_memory, most_seconds = memory * MOST_GROWTH, seconds * MOST_GROWTH
    for raised in bag.failures.raised:
        if raised.tasks is None or task in raised.tasks:
            more = raised.more
            memory = more.memory_mb or min(memory * more.memory, most_memory)
            seconds = more.limit_seconds or min(seconds * more.time, most_seconds)
            most_memory = max(most_memory, more.memory_mb * MOST_GROWTH)
            most_seconds = max(most_seconds, more.limit_seconds * MOST_GROWTH)
    if bag.failures.short or bag.failures.overtimes:
        memory *= bag.spec.grow_memory ** min(bag.failures.short.get(task, 0), MOST_POWER)
        seconds *= bag.spec.grow_time ** min(bag.failures.overtimes.get(task, 0), MOST_POWER)
    return min(memory, most_memory), min(seconds, most_seconds)
