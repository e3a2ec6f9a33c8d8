"""The arithmetic that turns stamps and floors into figures."""

import pytest

from bench.measures import Floor, Floors, middle, percentile, quiet_at, window_rates


def floors(before: float, after: float) -> Floors:
    return Floors(Floor(before, 700.0), Floor(after, 900.0))


def test_a_ratio_is_to_the_mean_of_both_floors() -> None:
    assert floors(2000, 3000).ratio(2000) == pytest.approx(0.8)
    assert floors(2000, 3000).micros == pytest.approx(800)


def test_a_time_in_spawns_is_what_one_probing_process_would_have_done() -> None:
    assert floors(2000, 2000).spawns(0.005) == pytest.approx(5)


@pytest.mark.parametrize(
    ("after", "noisy"), [(1000, False), (1210, False), (1230, True), (800, True)]
)
def test_floors_that_differ_by_more_than_a_fifth_are_noisy(after: float, noisy: bool) -> None:
    assert floors(1000, after).noisy is noisy


def test_percentiles_are_values_that_were_seen() -> None:
    values = [float(value) for value in range(200, 0, -1)]
    assert percentile(values, 50) == 100
    assert percentile(values, 95) == 190
    assert percentile([7.0], 95) == 7
    with pytest.raises(ValueError):
        percentile([], 50)


def test_windows_follow_each_other_and_the_last_is_full() -> None:
    stamps = [10.5, 11.0, 11.5, 12.0, 13.0]
    assert window_rates(10.0, stamps, 2) == pytest.approx([2.0, 2.0])
    assert window_rates(10.0, stamps, 6) == []


def test_quiet_is_the_first_moment_after_which_little_is_used() -> None:
    busy = [(0.0, 0.0), (0.1, 0.05), (0.2, 0.1)]
    assert quiet_at(busy, 0.2, 0.01) is None
    calm = [*busy, (0.3, 0.1), (0.4, 0.11)]
    assert quiet_at(calm, 0.2, 0.011) == 0.2


def test_the_middle_of_nothing_is_not_a_number() -> None:
    assert middle([1.0, 5.0, 2.0]) == 2.0
    assert middle([]) != middle([])
