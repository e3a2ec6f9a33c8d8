"""One way to write how long something lasts."""

import re

import pytest

from covey.core.values.time_spans import PATTERN, parse_seconds


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90.0),
        ("90s", 90.0),
        ("1.5h", 5400.0),
        ("1h30m", 5400.0),
        (" 1d 12h ", 129600.0),
        ("2w", 1209600.0),
        ("1m 0.5s", 60.5),
        ("0.016666666666666666h", 60.0),  # as Python writes a number
        ("1:30:00", 5400.0),
        ("00:00:07", 7.0),
        ("120:00:00", 432000.0),
        ("1-12:00:30", 129630.0),
    ],
)
def test_time_spans(text: str, seconds: float) -> None:
    assert parse_seconds(text) == seconds
    assert re.search(PATTERN, text)


@pytest.mark.parametrize(
    "text", ["", " ", "soon", "30m1h", "1h1h", "h", "-1h", "1h30", "1M", "1:30", "1:60:00", "1:2:3"]
)
def test_what_is_not_a_time_span(text: str) -> None:
    assert parse_seconds(text) is None
    assert not re.search(PATTERN, text)


def test_a_number_alone_may_need_a_unit() -> None:
    assert parse_seconds("90", bare=False) is None
