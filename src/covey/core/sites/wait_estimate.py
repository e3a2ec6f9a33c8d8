"""How long jobs wait at a site, by those that have started and those that still wait.

A job that still waits has waited for at least so long. To leave it out would make a site that
blocks look like one that starts everything at once. So the waits are estimated as lifetimes are in
medicine: by the curve of Kaplan and Meier, where such a job counts among those that wait until its
own time, and then drops out. Newer samples weigh more: each weighs half of one that came
`HALF_SAMPLES` later. Jobs that wait now weigh as much as the newest sample.

Where the curve ends before it reaches the fraction that is asked for, nobody knows more than that
it takes at least as long as the longest wait: then that is the answer, and it is a lower bound.

The trend is the slope of a straight line through waits by the time of submission. A job that still
waits stands there with the mean of the waits that were longer than its own (Buckley and James).
"""

from bisect import bisect_left
from collections.abc import Sequence
from operator import neg
from typing import NamedTuple, TypeAlias

from covey.core.state.sites import MOST_OUTCOMES, MOST_WAITS, Wait

HALF_SAMPLES = 20
# What a sample weighs, by how many came later.
WEIGHTS = tuple(0.5 ** (age / HALF_SAMPLES) for age in range(max(MOST_WAITS, MOST_OUTCOMES)))
TREND_SAMPLES = 4  # started ones, before there is a trend
TREND_SECONDS = 60.0  # between the first and the last submission, likewise
ALMOST = 1e-9


class WaitEstimate(NamedTuple):
    """Seconds. `at_least`: the median is a lower bound."""

    median: float
    p90: float
    at_least: bool
    trend: float | None  # seconds that an hour adds


# In this order: seconds, whether it still waits, its weight, and when it was submitted.
_Sample: TypeAlias = tuple[float, bool, float, float]


def estimate(done: Sequence[Wait], waiting: Sequence[Wait]) -> WaitEstimate | None:
    """`done`: the oldest sample first; `waiting`: of jobs that wait now. None: no sample."""
    samples = _weighed(done, waiting)
    if not samples:
        return None
    chances = _curve(samples)
    median, at_least = _quantile(samples, chances, 0.5)
    p90, _ = _quantile(samples, chances, 0.9)
    return WaitEstimate(median, p90, at_least, _trend(samples, chances))


def _weighed(done: Sequence[Wait], waiting: Sequence[Wait]) -> list[_Sample]:
    """The shortest wait first; of equal ones, those that have started."""
    found = [
        (seconds, not started, weight, since)
        for (_, since, seconds, started, _), weight in zip(reversed(done), WEIGHTS, strict=False)
    ]
    found += [(wait.seconds, True, float(wait.jobs), wait.since) for wait in waiting]
    found.sort()
    return found


def _curve(samples: Sequence[_Sample]) -> list[float]:
    """For each sample, the chance to wait for longer than that."""
    left = sum([weight for _, _, weight, _ in samples])
    chance, chances = 1.0, []
    for _, still, weight, _ in samples:
        if not still:
            chance = chance * (1.0 - weight / left) if weight < left else 0.0
        left -= weight
        chances.append(chance)
    return chances


def _quantile(
    samples: Sequence[_Sample], chances: Sequence[float], part: float
) -> tuple[float, bool]:
    """The wait that this part of all jobs does not exceed, and whether it is a lower bound."""
    place = bisect_left(chances, part - 1.0 - ALMOST, key=neg)
    if place < len(samples):
        return samples[place][0], False
    return samples[-1][0], True


def _trend(samples: Sequence[_Sample], chances: Sequence[float]) -> float | None:
    """A regression in one pass, from the longest wait to the shortest."""
    times = [since for _, _, _, since in samples]
    origin = min(times)
    if max(times) - origin < TREND_SECONDS:
        return None
    started = 0
    tail = chances[-1] * samples[-1][0]  # the end of the curve counts as the longest wait
    whole = sum_time = sum_wait = squares = products = 0.0
    for place in range(len(samples) - 1, -1, -1):
        seconds, still, weight, since = samples[place]
        chance = chances[place]
        if still:
            expected = tail / chance if chance > ALMOST else seconds
        else:
            started += 1
            tail += ((chances[place - 1] if place else 1.0) - chance) * seconds
            expected = seconds
        time = since - origin
        whole += weight
        sum_time += weight * time
        sum_wait += weight * expected
        squares += weight * time * time
        products += weight * time * expected
    spread = squares - sum_time * sum_time / whole
    if started < TREND_SAMPLES or spread <= ALMOST * squares:
        return None
    return 3600.0 * (products - sum_time * sum_wait / whole) / spread
