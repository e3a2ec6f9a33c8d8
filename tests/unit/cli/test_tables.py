"""Tables and the words in them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.cli import formats
from covey.cli.tables import Column, Table, clean, fit, width_of
from tests.unit.cli.builders import row

COLUMNS = (Column("task", right=True), Column("name"), Column("output"))


def test_columns_are_as_wide_as_they_need() -> None:
    assert Table(COLUMNS).lines([["7", "long name", "x"], ["10", "日本", ""]]) == [
        "task  name       output",
        "   7  long name  x",
        "  10  日本",
    ]


def test_later_pages_keep_the_widths_and_have_no_titles() -> None:
    table = Table(COLUMNS)
    table.lines([["7", "abc", "x"]])
    assert table.lines([["8", "abcdefg", "y"], ["9", "a", "z"]]) == [
        "   8  abcdefg  y",
        "   9  a     z",
    ]


def test_no_rows_still_have_titles() -> None:
    assert Table(COLUMNS).lines([]) == ["task  name  output"]


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
        (-5, "0.0 s"),
        (0.04, "0.0 s"),
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
    assert formats.last_line("a\nb \n\n") == "b"
    assert formats.last_line("\n") == ""


def test_endings() -> None:
    assert formats.ending(row(exit_code=3, outcome="failed")) == "exit 3"
    assert formats.ending(row(exit_code=-1, signal=9, outcome="failed")) == "SIGKILL"
    assert formats.ending(row(exit_code=-1, signal=9, outcome="timeout")) == "timeout"
    stopped = row(exit_code=-1, signal=9, outcome="timeout", message="over its limit of 5 s")
    assert formats.explained(stopped) == "over its limit of 5 s"
    assert formats.explained(row(message="exit code 1", exit_code=1, outcome="failed")) == "exit 1"
    assert formats.signal_name(99) == "signal 99"
    assert formats.task_title(["x"], row(5)) == "task 5 (x=5)"
    assert formats.task_title([], row(5, values=[])) == "task 5"
