"""How world files say numbers that differ."""

from random import Random

import pytest

from covey.lab.draws import draw, seconds


@pytest.mark.parametrize(
    ("given", "found"), [(90, 90.0), ("90", 90.0), ("30s", 30.0), ("1.5m", 90.0), ("2h", 7200.0)]
)
def test_times(given: object, found: float) -> None:
    assert seconds(given) == found


@pytest.mark.parametrize("given", [-1, True, "", "soon", "3 weeks", None])
def test_what_is_no_time(given: object) -> None:
    with pytest.raises(ValueError, match="expected a time"):
        seconds(given)


@pytest.mark.parametrize(
    ("text", "low", "high", "mean"),
    [
        ("5m", 300, 300, 300),
        ("10m..15m", 600, 900, 750),
        ("loguniform 1..100", 1, 100, 21.5),
        ("exponential 1m", 0, 1000, 60),
        ("lognormal 1m 0.5", 5, 1000, 68),
    ],
)
def test_draws_are_what_they_say(text: str, low: float, high: float, mean: float) -> None:
    random, one = Random(1), draw(text)
    found = [one.draw(random) for _ in range(4000)]
    assert low <= min(found) <= max(found) <= high
    assert sum(found) / len(found) == pytest.approx(mean, rel=0.08)


@pytest.mark.parametrize("text", ["15m..10m", "loguniform 0..5", "normal 3 4", "exponential", ""])
def test_what_is_no_draw(text: str) -> None:
    with pytest.raises(ValueError):
        draw(text)
