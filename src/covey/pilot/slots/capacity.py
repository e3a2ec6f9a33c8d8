"""How many tasks fit on this host at once: cores, memory, disk, GPUs. Pure.

The rule: never more than fits. A task is *light* if every slot could run such a task at the same
time. While all tasks are light, slots are filled ahead without counting, because that can never be
too much. As soon as any other task is inside or next, an order is admitted only if it fits beside
all that is inside, running or waiting. Callers decide which task is next: they ask for the first of
their queue and make the rest wait, so that small tasks never starve a large one.
"""

from typing import Dict, List, NamedTuple, Sequence, TypeVar

Thing = TypeVar("Thing")


class Ask(NamedTuple):
    """The resources of one task. `pin`: processors of its own, as many as it has cores."""

    cores: int = 1
    memory_mb: int = 0
    disk_mb: int = 0
    gpus: int = 0
    pin: bool = False


class Grant(NamedTuple):
    """What the task may use, and no other task meanwhile."""

    gpus: List[str] = []
    processors: List[int] = []


NOTHING = Grant()
PLAIN = Ask()  # what most tasks need; compared by identity, so that they cost almost nothing


class Capacity:
    """`memory_mb` and `disk_mb` of 0 are unknown, so they are not counted."""

    def __init__(
        self,
        cores: int,
        memory_mb: int = 0,
        disk_mb: int = 0,
        gpus: Sequence[str] = (),
        processors: Sequence[int] = (),
    ) -> None:
        self.cores = cores
        self.memory_mb = memory_mb
        self.disk_mb = disk_mb
        self.gpus = list(gpus)
        self.processors = list(processors)
        self._free_gpus = list(gpus)
        self._free_processors = list(processors)
        self._inside: Dict[str, Ask] = {}
        self._grants: Dict[str, Grant] = {}
        self._heavy = 0
        self._cores_used = self._memory_used = self._disk_used = 0

    def light(self, ask: Ask) -> bool:
        return (
            ask.cores <= 1
            and not ask.gpus
            and not ask.pin
            and (not ask.memory_mb or not 0 < self.memory_mb < ask.memory_mb * self.cores)
            and (not ask.disk_mb or not 0 < self.disk_mb < ask.disk_mb * self.cores)
        )

    def never(self, ask: Ask) -> str:
        """Why it does not fit even on the empty host; "" if it fits."""
        for amount, most, what in (
            (ask.cores, self.cores, "cores"),
            (ask.memory_mb, self.memory_mb or ask.memory_mb, "MB of memory"),
            (ask.disk_mb, self.disk_mb or ask.disk_mb, "MB of disk"),
            (ask.gpus, len(self.gpus), "GPUs"),
            (ask.cores if ask.pin else 0, len(self.processors), "processors of its own"),
        ):
            if amount > most:
                return "it needs %d %s, this pilot has %d" % (amount, what, most)
        return ""

    def admits(self, ask: Ask) -> bool:
        """Whether it may be given to a slot now."""
        if not self._heavy and (ask is PLAIN or self.light(ask)):
            return True
        return (
            self._cores_used + max(1, ask.cores) <= self.cores
            and (not self.memory_mb or self._memory_used + ask.memory_mb <= self.memory_mb)
            and (not self.disk_mb or self._disk_used + ask.disk_mb <= self.disk_mb)
            and ask.gpus <= len(self._free_gpus)
            and (not ask.pin or ask.cores <= len(self._free_processors))
        )

    def take(self, key: str, ask: Ask) -> Grant:
        """Count an admitted task as inside, until `give`."""
        self._inside[key] = ask
        if ask is PLAIN:
            self._cores_used += 1
            return NOTHING
        self._cores_used += max(1, ask.cores)
        grant = NOTHING
        if ask.gpus or ask.pin:
            count = ask.cores if ask.pin else 0
            grant = Grant(self._free_gpus[: ask.gpus], self._free_processors[:count])
            del self._free_gpus[: ask.gpus]
            del self._free_processors[:count]
            self._grants[key] = grant
        self._count(ask, 1)
        return grant

    def give(self, key: str) -> None:
        """The task is over. A key that is not inside is ignored."""
        ask = self._inside.pop(key, None)
        if ask is None:
            return
        if ask is PLAIN:
            self._cores_used -= 1
            return
        self._cores_used -= max(1, ask.cores)
        self._count(ask, -1)
        grant = self._grants.pop(key, NOTHING)
        if grant is not NOTHING:
            self._free_gpus = _ordered(self.gpus, self._free_gpus + grant.gpus)
            free = self._free_processors + grant.processors
            self._free_processors = _ordered(self.processors, free)

    def _count(self, ask: Ask, sign: int) -> None:
        self._heavy += 0 if self.light(ask) else sign
        self._memory_used += sign * ask.memory_mb
        self._disk_used += sign * ask.disk_mb

    def count(self) -> int:
        """How many orders are inside."""
        return len(self._inside)

    def free_cores(self) -> int:
        return max(0, self.cores - self._cores_used)


def _ordered(all_things: List[Thing], free: List[Thing]) -> List[Thing]:
    """The free ones in their original order: the first are used first."""
    return [thing for thing in all_things if thing in free]
