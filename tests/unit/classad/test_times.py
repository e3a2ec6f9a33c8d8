"""Moments and spans, read and written."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.classad import Context, parse
from covey.classad.times import (
    format_absolute,
    format_relative,
    in_parts,
    parse_absolute,
    parse_relative,
    shown,
)
from covey.classad.values import AbsTime, RelTime

HOUR = 3600


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2003-01-25T09:00:00-06:00", AbsTime(1043506800, -6 * HOUR)),
        ("2003-01-25T09:00:00-0600", AbsTime(1043506800, -6 * HOUR)),
        ("2003-01-25T09:00:00Z ", AbsTime(1043485200, 0)),
        ("2003/01/25 at 09h00", AbsTime(1043485200, 0)),
        ("20030125090000", AbsTime(1043485200, 0)),
        ("2003", AbsTime(1041292800, 0)),  # the day that is missing is day 0
        ("2003-13-01", AbsTime(1072915200, 0)),
        ("0000-01-01", AbsTime(-62167219200, 0)),
        ("9999-99-01", AbsTime(253628323200, 0)),
        ("junk", None),
        ("", None),
        ("203", None),
        ("2003-01-25T09:00:00.5", None),
    ],
)
def test_a_moment_is_any_digits_in_order(text: str, moment: AbsTime | None) -> None:
    assert parse_absolute(text, 0) == moment


def test_a_moment_without_a_zone_is_local() -> None:
    assert parse_absolute("1970-01-01T01:00:00", HOUR) == AbsTime(0, HOUR)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1+02:03:04.5", 93784.5),
        ("-1+00:00:00", -86400),
        ("5", 5),
        ("5:", 300),
        ("1h 5s", 3605),
        ("2d", 172800),
        (" 1 d 2 h 3 m 4.25 s ", 93784.25),
        ("", 0),
        ("s", 0),
        ("junk", None),
        ("1:2:3:4", None),
        ("5 5", None),
        ("9" * 300, None),
        (" " * 190 + "x", None),
    ],
)
def test_a_span_is_read_from_its_end(text: str, seconds: float | None) -> None:
    assert parse_relative(text) == seconds


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "00"),
        (5, "05"),
        (65, "01:05"),
        (3605, "01:00:05"),
        (93784, "1+02:03:04"),
        (93784.5, "1+02:03:4.5"),
        (-0.25, "-0.25"),
        (-90000, "-1+01:00:00"),
    ],
)
def test_a_span_is_written_without_what_is_nothing(seconds: float, text: str) -> None:
    assert format_relative(seconds) == text


@given(st.integers(-(10**10), 10**11), st.integers(-23, 23))
def test_a_moment_survives_being_written(seconds: int, hours: int) -> None:
    moment = AbsTime(seconds, hours * HOUR)
    assert parse_absolute(format_absolute(moment), 7) == moment


@given(st.integers(-(10**9), 10**9))
def test_a_span_survives_being_written(seconds: int) -> None:
    assert parse_relative(format_relative(seconds)) == seconds


@given(st.floats(0, 1e9))
def test_parts_add_up(seconds: float) -> None:
    days, hours, minutes, rest = in_parts(seconds)
    assert days * 86400 + hours * 3600 + minutes * 60 + rest == pytest.approx(seconds)


@given(st.integers(-(2**63), 2**63 - 1))
def test_no_moment_is_too_far(seconds: int) -> None:
    assert 1 <= shown(seconds).tm_mon <= 12


def test_clock_and_zone_are_those_of_the_caller() -> None:
    def value(text: str) -> object:
        return parse(text).evaluate(None, None, Context(now=1e9 + 0.75, zone=2 * HOUR))

    assert value("time()") == 10**9
    assert value("currentTime()") == AbsTime(10**9, 2 * HOUR)
    assert value("absTime()") == AbsTime(10**9, 2 * HOUR)
    assert value("timeZoneOffset()") == RelTime(7200.0)
    assert value("dayTime()") == RelTime(3 * 3600.0 + 46 * 60 + 40)
    assert value("getHours(absTime(0, 0))") == 2
    assert value('formatTime(0, "%H:%M %d %b %Y")') == "02:00 01 Jan 1970"
    assert value('formatTime(0, "%Z %z %s %%s")') == "UTC +0000 7200 %s"
    assert value("formatTime()") == "Sun Sep  9 03:46:40 2001"
    assert value("string(absTime(0))") == "1970-01-01T02:00:00+02:00"
    assert value("splitTime(0).Offset") == 7200
