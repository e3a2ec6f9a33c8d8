"""Count, mean and deviation, without keeping the times."""

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.core.values.durations import Times


@given(st.lists(st.floats(0.0, 1e6), min_size=2, max_size=50))
def test_they_are_those_of_all_times(seconds: list[float]) -> None:
    times = Times()
    for one in seconds:
        times.add(one)
    assert times.count == len(seconds)
    assert times.mean == pytest.approx(statistics.fmean(seconds), abs=1e-6)
    assert times.deviation == pytest.approx(statistics.stdev(seconds), rel=1e-6, abs=1e-3)


def test_one_time_has_no_deviation() -> None:
    times = Times()
    assert times.deviation == 0.0
    times.add(7.0)
    assert (times.mean, times.deviation) == (7.0, 0.0)
