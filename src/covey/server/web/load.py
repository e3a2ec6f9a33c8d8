"""Which requests the server takes now, by its measured load. Without a clock; the only I/O is to
read this process's memory use.

When the load is too high, what can wait is refused first: enrolments, then syncs without ends of
tasks. Ends are refused only when memory runs out: their work is done, and would be lost with a
pilot whose time is up. Requests of people are never refused here. A refused request gets a time
slot in the future; slots are as dense as the server can serve them. A request that has to wait
again keeps its place in the line. So many requests at once are served in the order in which they
came, and each is served at last.
"""

import os
from enum import StrEnum
from pathlib import Path
from random import Random
from typing import NamedTuple

from msgspec import Struct

SAMPLE_SECONDS = 0.25
FALL = 0.5  # a level is left at this fraction of the pressure at which it is entered
LEVELS = (1.0, 2.0)  # pressure at which enrolments, then syncs without ends, have to wait
EARLY_SECONDS = 0.05
LEAST_SECONDS, LONGEST_SECONDS = 0.02, 10.0  # of one wait
FIRST_RATE, LEAST_RATE, MOST_RATE = 1000.0, 50.0, 5000.0  # a second
BURST_SECONDS = 0.1
MOST_IN_LINE = 50_000
FORGET_SECONDS = 30.0  # an unused slot is forgotten this long after its time
LEAST_SHARE = 50  # requests a second that a pilot may make even when others wait
TYPICAL_SHARE = 4  # or this many times the average of all pilots


class RequestKind(StrEnum):
    ENROL = "enrol"
    ASK = "ask"  # a sync without ends
    ENDS = "ends"  # a sync with ends, or a pilot's leave
    PEOPLE = "people"


class Sample(NamedTuple):
    """`waiting`: requests without an answer, except parked syncs, which cost nothing. `bytes`: of
    requests whose writes are not durable yet."""

    lag_seconds: float
    writes: int
    bytes: int
    waiting: int
    memory: int


class Bounds(Struct, frozen=True):
    """The values at which the pressure is 1, and the memory that the server may use."""

    lag_seconds: float = 0.3
    writes: int = 10_000
    bytes: int = 64 << 20
    waiting: int = 5_000
    memory: int = 1 << 30


class WaitingLine:
    """The refused requests of one kind. `rate`: how many a second are let in; it follows what the
    server can serve."""

    def __init__(self, random: Random) -> None:
        self.rate = FIRST_RATE
        self._random = random
        self._slots: dict[object, float] = {}
        self._next = 0.0  # the last slot of new requests
        self._front = 0.0  # the last slot of requests that had to wait again
        self._tokens = 1.0
        self._filled = 0.0
        self._passed = 0

    def __len__(self) -> int:
        return len(self._slots)

    def passed(self) -> None:
        """A request came in without waiting."""
        self._passed += 1

    def ask(self, key: object, now: float) -> float:
        """0 if the request's turn has come, else the seconds that it has to wait."""
        passed, self._filled = max(0.0, now - self._filled), now
        most = max(1.0, self.rate * BURST_SECONDS)
        self._tokens = min(most, self._tokens + passed * self.rate)
        due = self._slots.get(key)
        if due is not None and now >= due - EARLY_SECONDS:
            if self._tokens >= 1.0:
                self._tokens -= 1.0
                self._passed += 1
                del self._slots[key]
                return 0.0
            self._front = due = max(self._front, now) + 1.0 / self.rate  # keeps its place in line
        elif due is None:
            self._next = due = max(self._next, self._front, now) + 1.0 / self.rate
            if len(self._slots) < MOST_IN_LINE:
                self._slots[key] = due
        spread = self._random.random() * min(1.0, 2.0 / self.rate)
        return min(due - now + LEAST_SECONDS, LONGEST_SECONDS) + spread

    def adapt(self, closed: bool, seconds: float, now: float) -> None:
        """After each sample: let in fewer while the load is too high (`closed`), else more."""
        seen, self._passed = self._passed / max(seconds, 0.001), 0
        if closed:
            best = min(self.rate, seen) if seen else self.rate
            self.rate = max(LEAST_RATE, 0.8 * best)
        else:
            self.rate = min(MOST_RATE, max(self.rate * 1.1, seen))
        while self._slots:
            key, due = next(iter(self._slots.items()))
            if due + FORGET_SECONDS > now:
                break
            del self._slots[key]
        if not self._slots:
            self._next = self._front = 0.0


class Load:
    def __init__(self, bounds: Bounds | None = None, random: Random | None = None) -> None:
        self.bounds = bounds or Bounds(memory=half_of_memory())
        self.sample = Sample(0.0, 0, 0, 0, 0)
        self.lag_seconds = 0.0  # smoothed
        self.pressure = 0.0
        self.level = 0
        self.full = False  # too little memory is left
        self.calm = True  # every sync may come in
        self.turned_away = dict.fromkeys(RequestKind, 0)
        self.lines = {kind: WaitingLine(random or Random()) for kind in RequestKind}
        self._counts: dict[object, int] = {}  # requests of each pilot, in this second
        self._second = 0

    def sampled(self, sample: Sample, seconds: float, now: float) -> None:
        """The sample of the last `seconds`."""
        bounds = self.bounds
        self.sample = sample
        self.lag_seconds += 0.5 * (sample.lag_seconds - self.lag_seconds)
        memory = sample.memory / bounds.memory
        self.pressure = max(
            self.lag_seconds / bounds.lag_seconds,
            sample.writes / bounds.writes,
            sample.bytes / bounds.bytes,
            sample.waiting / bounds.waiting,
            (memory - 0.6) / 0.2,  # 1 when four fifths are used, 2 when all is used
        )
        while self.level < len(LEVELS) and self.pressure >= LEVELS[self.level]:
            self.level += 1
        while self.level and self.pressure < FALL * LEVELS[self.level - 1]:
            self.level -= 1
        much = FALL if self.full else 1.0
        self.full = memory >= 0.6 + 0.4 * much or sample.bytes >= 4 * bounds.bytes * much
        for kind, line in self.lines.items():
            line.adapt(self._closed(kind), seconds, now)
        self.calm = not self.level and not self.full and not any(self.lines.values())

    def admit(self, kind: RequestKind, key: object, now: float) -> float:
        """0 if this request may come in, else the seconds after which it should be sent again."""
        if kind is RequestKind.PEOPLE or (self.calm and kind is not RequestKind.ENROL):
            return 0.0
        if kind is not RequestKind.ENROL:
            wait = self._over_share(key, now)
            if wait:
                self.turned_away[kind] += 1
                return wait
        line = self.lines[kind]
        if not line and not self._closed(kind):
            line.passed()
            return 0.0
        wait = line.ask(key, now)
        if wait:
            self.turned_away[kind] += 1
            self.calm = False
        return wait

    def _closed(self, kind: RequestKind) -> bool:
        if kind is RequestKind.ENDS:
            return self.full
        return (
            self.level >= (1 if kind is RequestKind.ENROL else 2) and kind is not RequestKind.PEOPLE
        )

    def _over_share(self, key: object, now: float) -> float:
        """How long a pilot has to wait that asks much more often than others under high load."""
        second = int(now)
        counts = self._counts
        if second != self._second:
            self._second = second
            counts.clear()
        count = counts.get(key, 0) + 1
        counts[key] = count
        if not self.level or count <= LEAST_SHARE:
            return 0.0
        if count * len(counts) <= TYPICAL_SHARE * sum(counts.values()) and len(counts) > 1:
            return 0.0
        return second + 1 - now + EARLY_SECONDS


def memory() -> int:
    """Resident bytes of this process."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


def half_of_memory() -> int:
    """Half of this machine's memory, or of what our control group may use."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        text = Path("/sys/fs/cgroup/memory.max").read_text().strip()
        if text.isdigit():
            total = min(total, int(text))
    except OSError:
        pass
    return max(total // 2, 256 << 20)
