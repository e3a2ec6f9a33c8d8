"""Tables and the words in them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.frontend import formats
from covey.frontend.tables import Column, TextTable, fit, width_of
from covey.frontend.terminal import clean, clean_lines
from tests.unit.cli.builders import row

COLUMNS = (Column("task", right=True), Column("name"), Column("output"))


def test_columns_are_as_wide_as_they_need() -> None:
    assert TextTable(COLUMNS).lines([["7", "long name", "x"], ["10", "日本", ""]]) == [
        "task  name       output",
        "   7  long name  x",
        "  10  日本",
    ]


def test_later_pages_keep_the_widths_and_have_no_titles() -> None:
    table = TextTable(COLUMNS)
    table.lines([["7", "abc", "x"]])
    assert table.lines([["8", "abcdefg", "y"], ["9", "a", "z"]]) == [
        "   8  abcdefg  y",
        "   9  a     z",
    ]


def test_no_rows_still_have_titles() -> None:
    assert TextTable(COLUMNS).lines([]) == ["task  name  output"]


@given(st.text(), st.integers(2, 40))
def test_cut_text_fits(text: str, width: int) -> None:
    assert width_of(fit(clean(text), width)) <= width


@given(st.text())
def test_clean_text_is_one_harmless_line(text: str) -> None:
    assert len(clean(text).splitlines()) <= 1
    assert "\x1b" not in clean(text)


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (-5, "0 ms"),
        (0.04, "40 ms"),
        (9.96, "10 s"),
        (59.6, "1 m 00 s"),
        (61, "1 m 01 s"),
        (7260, "2 h 01 m"),
        (90000, "1 d 1 h"),
        (1e9, ">99 d"),
    ],
)
def test_durations(seconds: float, told: str) -> None:
    assert formats.duration(seconds) == told


def test_small_words() -> None:
    assert formats.count(1, "task") == "1 task"
    assert formats.count(1200, "task") == "1,200 tasks"
    assert formats.rate(1234) == "1,234/s"
    assert formats.rate(0.5) == "30.0/min"
    assert formats.rate(0.001) == "3.6/h"
    assert formats.memory(0) == "–"
    assert formats.memory(2048) == "2.0 MB"
    assert formats.memory(3 << 20) == "3.0 GB"
    assert formats.ago(0.0) == "–"
    assert formats.ago(10.0, 25.0) == "15 s ago"
    assert (
        formats.command(["sh", "-c", "echo {x} | wc", "{x}", ""]) == "sh -c 'echo {x} | wc' {x} ''"
    )


def test_endings() -> None:
    assert formats.ending(row(exit_code=3, outcome="failed")) == "exit 3"
    assert formats.ending(row(exit_code=-1, signal=9, outcome="failed")) == "SIGKILL"
    assert formats.ending(row(exit_code=-1, signal=99, outcome="failed")) == "signal 99"
    assert formats.ending(row(exit_code=-1, signal=9, outcome="timeout")) == "timeout"
    stopped = row(exit_code=-1, signal=9, outcome="timeout", message="over its limit of 5 s")
    assert formats.explained(stopped) == "over its limit of 5 s"
    assert formats.explained(row(message="exit code 1", exit_code=1, outcome="failed")) == "exit 1"
    assert formats.task_title(["x"], 5, [0.5]) == "task 5 (x=0.5)"
    assert formats.task_title([], 5, []) == "task 5"


@pytest.mark.parametrize(
    ("low", "high", "told"),
    [
        (0, 0, "1 s"),
        (0.2, 2.4, "1–2 s"),
        (20, 35, "20–35 s"),
        (240, 360, "4–6 min"),
        (300, 310, "5 min"),
        (5000, 9000, "1.5–2.5 h"),
        (80_000, 200_000, "1–2.5 d"),
        (86_400, 1e12, ">1 d"),
        (1e9, 1e12, ">99 d"),
        (-5, -1, "1 s"),
    ],
)
def test_spans(low: float, high: float, told: str) -> None:
    assert formats.span(low, high) == told


@given(st.floats(0, 1e9), st.floats(0, 1e9))
def test_spans_are_short(low: float, high: float) -> None:
    assert len(formats.span(low, high)) <= 10


def test_values_and_lists() -> None:
    assert formats.plain_value(None) == ""
    assert formats.plain_value(1 / 3) == "0.333333"
    assert formats.plain_value([1, {"a": None}]) == '[1,{"a":null}]'
    assert formats.plain_value(True) == "true"
    assert formats.some(["a", "b"], 2) == "a, b"
    assert formats.some(["a", "b"], 1002) == "a, b and 1,000 more"
    assert formats.last_lines("a\nb\nc\n\n", 2) == ["b", "c"]


def test_titles_are_clean_too() -> None:
    assert TextTable([Column("a\x1b[2J")]).lines([["b"]])[0] == "a·[2J"


def test_lines_stay_lines() -> None:
    assert clean_lines(["a\x1b", "b\nc\td"]) == "a·\nb\nc·d"
