"""How long jobs wait: those that still wait are lower bounds, and not ignored."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.core.sites.wait_estimate import HALF_SAMPLES, TREND_SAMPLES, estimate
from covey.core.state.sites import Wait


def started(*seconds: float) -> list[Wait]:
    return [Wait("ann", 0.0, one, True) for one in seconds]


def still(*seconds: float, jobs: int = 1) -> list[Wait]:
    return [Wait("ann", 0.0, one, False, jobs) for one in seconds]


waits = st.lists(st.floats(0.0, 1e6), max_size=30)


def test_of_nothing_nothing_is_known() -> None:
    assert estimate([], []) is None


def test_the_median_of_jobs_that_have_started() -> None:
    found = estimate(started(30, 10, 20), [])
    assert found is not None
    assert (found.median, found.p90, found.at_least) == (20, 30, False)


def test_jobs_that_still_wait_are_no_short_waits() -> None:
    """Of ten jobs, three started at once; the others have waited for an hour."""
    found = estimate(started(1, 1, 1), still(3600, jobs=7))
    assert found is not None
    assert found.median == 3600
    assert found.at_least


def test_a_job_that_has_just_begun_to_wait_says_almost_nothing() -> None:
    found = estimate(started(100, 100, 100), still(1, jobs=50))
    assert found is not None
    assert (found.median, found.at_least) == (100, False)


def test_only_jobs_that_wait_give_a_lower_bound() -> None:
    found = estimate([], still(40, 50))
    assert found is not None
    assert (found.median, found.p90, found.at_least) == (50, 50, True)


def test_jobs_that_were_given_up_while_they_waited_are_lower_bounds_too() -> None:
    found = estimate([*started(10), *still(500, 600)], [])
    assert found is not None
    assert (found.median, found.at_least) == (600, True)


def test_newer_samples_weigh_more() -> None:
    was_slow = [*started(*[1000.0] * HALF_SAMPLES), *started(*[10.0] * HALF_SAMPLES)]
    found = estimate(was_slow, [])
    assert found is not None
    assert found.median == 10
    found = estimate(was_slow[::-1], [])
    assert found is not None
    assert found.median == 1000


def test_the_trend_is_what_an_hour_adds() -> None:
    rising = [Wait("ann", 600.0 * n, 100.0 + 50.0 * n, True) for n in range(7)]
    found = estimate(rising, [])
    assert found is not None
    assert found.trend == pytest.approx(300.0)


def test_a_queue_that_blocks_has_a_rising_trend() -> None:
    """Nothing of what was submitted lately has started."""
    quick = [Wait("ann", 60.0 * n, 5.0 + n % 3, True) for n in range(10)]
    stuck = [Wait("ann", 600.0 + 60.0 * n, 900.0 - 60.0 * n, False) for n in range(10)]
    before, after = estimate(quick, []), estimate(quick, stuck)
    assert before is not None
    assert after is not None
    assert before.trend is not None
    assert after.trend is not None
    assert abs(before.trend) < 30
    assert after.trend > 300


def test_of_few_samples_or_of_one_moment_there_is_no_trend() -> None:
    few = [Wait("ann", 600.0 * n, 1.0, True) for n in range(TREND_SAMPLES - 1)]
    for samples in (few, started(*range(20))):
        found = estimate(samples, [])
        assert found is not None
        assert found.trend is None


@given(waits, waits)
def test_the_estimate_lies_among_the_waits(done: list[float], now: list[float]) -> None:
    found = estimate(started(*done), still(*now))
    if not done and not now:
        assert found is None
        return
    assert found is not None
    assert found.median <= found.p90
    assert found.median in (*done, *now)
    assert found.p90 in (*done, *now)


@given(waits, waits.filter(bool), st.floats(0.0, 1e6))
def test_who_waits_for_longer_never_lowers_the_estimate(
    done: list[float], now: list[float], more: float
) -> None:
    earlier = estimate(started(*done), still(*now))
    later = estimate(started(*done), still(*[one + more for one in now]))
    assert earlier is not None
    assert later is not None
    assert later.median >= earlier.median
    assert later.p90 >= earlier.p90


@given(st.lists(st.tuples(st.floats(0, 1e5), st.floats(0, 1e5), st.booleans()), max_size=40))
def test_the_trend_is_a_finite_number(samples: list[tuple[float, float, bool]]) -> None:
    found = estimate([Wait("ann", *sample) for sample in samples], [])
    assert found is None or found.trend is None or math.isfinite(found.trend)
