"""The arithmetic of a measurement: floors, ratios, best, percentiles. No clock, no I/O.

A shared machine is never quiet, so no figure stands alone. The floor, how many `/bin/true` two
processes spawn in a second, is probed just before and just after each run; a rate is given as its
ratio to the mean of the two, and a run whose two floors disagree says little.
"""

from collections.abc import Sequence
from math import ceil
from statistics import median
from typing import NamedTuple

NOISY = 0.20


class Floor(NamedTuple):
    """Spawns per second, and the CPU microseconds that one took."""

    rate: float
    micros: float = 0.0


class Floors(NamedTuple):
    """Just before and just after."""

    before: Floor
    after: Floor

    @property
    def mean(self) -> float:
        return (self.before.rate + self.after.rate) / 2

    @property
    def micros(self) -> float:
        return (self.before.micros + self.after.micros) / 2

    @property
    def noisy(self) -> bool:
        return abs(self.before.rate - self.after.rate) > NOISY * self.mean

    def ratio(self, rate: float) -> float:
        return rate / self.mean

    def spawns(self, seconds: float) -> float:
        """How many tasks one of the two probing processes would have spawned in this time."""
        return seconds * self.mean / 2


def percentile(values: Sequence[float], percent: float) -> float:
    """Nearest rank: a value that was really seen."""
    if not values:
        raise ValueError("no values")
    ranked = sorted(values)
    return ranked[max(1, ceil(len(ranked) * percent / 100)) - 1]


def window_rates(began: float, stamps: Sequence[float], size: int) -> list[float]:
    """Completions per second in each full window of `size`, from the times of all completions in
    order. The first window begins at `began`, each other at the end of the one before."""
    rates = []
    for stop in range(size, len(stamps) + 1, size):
        ended = stamps[stop - 1]
        rates.append(size / max(ended - began, 1e-9))
        began = ended
    return rates


def quiet_at(samples: Sequence[tuple[float, float]], window: float, most: float) -> float | None:
    """When processes became quiet, from samples of (time, CPU seconds so far): the first sample
    after which, for a whole window, they used no more than `most`. None: not yet."""
    for index, (began, used) in enumerate(samples):
        later = next((s for s in samples[index:] if s[0] >= began + window), None)
        if later is None:
            return None
        if later[1] - used <= most:
            return began
    return None


def middle(values: Sequence[float]) -> float:
    return median(values) if values else float("nan")
