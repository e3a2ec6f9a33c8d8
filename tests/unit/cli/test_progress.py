"""Rates, estimates, and how they are drawn."""

import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.cli import progress
from covey.cli.progress import Lines, Meter, Redrawn, bar, describe, eta, percent
from covey.cli.tables import width_of
from tests.unit.cli.builders import bag


def steady(per_second: float, seconds: int) -> Meter:
    meter = Meter()
    for now in range(seconds + 1):
        meter.update(float(now), int(now * per_second))
    return meter


def test_nothing_is_known_at_first() -> None:
    meter = Meter()
    assert eta(meter, 5) == "–"
    meter.update(0.0, 0)
    meter.update(0.5, 100)
    assert eta(meter, 5) == "–"


def test_a_steady_rate_is_found_at_once_and_kept() -> None:
    for seconds in (2, 10, 1000):
        assert steady(10, seconds).rate == pytest.approx(10)
    assert steady(10, 100).eta_seconds(50) == pytest.approx(5)


def test_recent_ends_weigh_more() -> None:
    meter = steady(10, 60)
    for now in range(61, 181):
        meter.update(float(now), 600 + (now - 60))
    assert 1 <= meter.rate < 2


def test_a_standstill_makes_the_estimate_grow() -> None:
    meter = steady(10, 10)
    before = meter.eta_seconds(100)
    meter.update(600.0, 100)
    after = meter.eta_seconds(100)
    assert before is not None
    assert after is not None
    assert after > before


def test_what_was_done_before_we_looked_is_not_our_rate() -> None:
    meter = Meter()
    meter.update(0.0, 5000)
    meter.update(2.0, 5002)
    assert meter.rate == pytest.approx(1)


@given(
    st.lists(st.tuples(st.floats(-10, 1e6), st.integers(0, 10**7)), max_size=30),
    st.integers(-5, 10**9),
)
def test_estimates_are_never_absurd(samples: list[tuple[float, int]], left: int) -> None:
    meter, now = Meter(), 0.0
    for passed, ended in samples:
        now += passed
        meter.update(now, ended)
    assert meter.rate >= 0
    text = eta(meter, left)
    assert re.fullmatch(r"–|>99 d|\d+ d \d+ h|\d+ h \d\d m|\d+ m \d\d s|\d+ s", text), text


def test_percent_is_100_only_at_the_end() -> None:
    assert [percent(n, 1000) for n in (0, 9, 10, 999, 1000)] == [0, 0, 1, 99, 100]
    assert percent(0, 0) == 100


def test_bar() -> None:
    assert bar(0, 10, 4) == "░░░░"
    assert bar(9, 10, 4) == "███░"
    assert bar(10, 10, 4, ascii_only=True) == "####"


def test_facts() -> None:
    view = bag(total=2000, done=1000, failed=3, running=8, in_doubt=1)
    assert describe(view, Meter()) == [
        "1,003/2,000", "50%", "3 failed", "8 running", "1 in doubt", "ETA –",
    ]  # fmt: skip
    assert describe(bag(total=4, done=4, status="finished"), Meter()) == ["4/4", "100%"]


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("columns", [10, 20, 40, 60, 80, 200])
@pytest.mark.parametrize("colour", [True, False])
def test_a_drawn_line_fits(columns: int, colour: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    drawn = Redrawn(stream, colour)
    monkeypatch.setattr(drawn, "_columns", lambda: columns)
    drawn.show(bag(name="a" * 50, total=10**6, done=4321, failed=7, running=64))
    visible = re.sub(r"\x1b\[[?\d]*\w|\r", "", stream.getvalue())
    assert width_of(visible) < columns
    assert ("\x1b[3" in stream.getvalue()) <= colour


def test_equal_lines_are_not_drawn_twice_and_none_is_left() -> None:
    stream = Terminal()
    drawn = Redrawn(stream, False)
    drawn.show(bag())
    size = len(stream.getvalue())
    drawn.show(bag())
    assert len(stream.getvalue()) == size
    drawn.close()
    drawn.close()
    assert stream.getvalue()[size:] == "\r" + progress.ERASE


def test_a_pipe_gets_few_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    stream = io.StringIO()
    lines = Lines(stream)
    for second in range(25):
        now = float(second)
        lines.show(bag(done=second, total=100))
    lines.show(bag(done=100, total=100, status="finished"))
    lines.close()
    told = stream.getvalue().splitlines()
    assert len(told) == 3
    assert told[0] == "bag 3: 0/100, 0%, 0 running, ETA –"
    assert "1.0/s" in told[1]


def test_the_stream_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    coloured = progress.for_stream(Terminal())
    assert isinstance(coloured, Redrawn)
    assert coloured.colour
    monkeypatch.setenv("NO_COLOR", "1")
    plain = progress.for_stream(Terminal())
    assert isinstance(plain, Redrawn)
    assert not plain.colour
    assert isinstance(progress.for_stream(io.StringIO()), Lines)
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(progress.for_stream(Terminal()), Lines)
