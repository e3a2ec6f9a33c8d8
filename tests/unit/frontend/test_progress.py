"""Rates, estimates, and how they are drawn."""

import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.frontend import progress
from covey.frontend.progress import (
    ProgressLines,
    ProgressMeter,
    Redrawn,
    bar,
    describe,
    eta,
    percent,
)
from covey.frontend.tables import width_of
from covey.wire import Estimate, Straggler
from tests.unit.cli.builders import bag


def steady(per_second: float, seconds: int) -> ProgressMeter:
    meter = ProgressMeter()
    for now in range(seconds + 1):
        meter.update(float(now), int(now * per_second))
    return meter


def test_nothing_is_known_at_first() -> None:
    meter = ProgressMeter()
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
    meter = ProgressMeter()
    meter.update(0.0, 5000)
    meter.update(2.0, 5002)
    assert meter.rate == pytest.approx(1)


@given(
    st.lists(st.tuples(st.floats(-10, 1e6), st.integers(0, 10**7)), max_size=30),
    st.integers(-5, 10**9),
)
def test_estimates_are_never_absurd(samples: list[tuple[float, int]], left: int) -> None:
    meter, now = ProgressMeter(), 0.0
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
    assert describe(view, ProgressMeter()) == [
        "1,003/2,000", "50%", "3 failed", "8 running", "1 being checked after a restart", "ETA –",
    ]  # fmt: skip
    assert describe(bag(total=4, done=4, status="finished"), ProgressMeter()) == ["4/4", "100%"]


def test_the_estimate_of_the_server_is_a_range() -> None:
    view = bag(total=10, done=5, estimate=Estimate(likely=300, low=240, high=360))
    assert describe(view, steady(10, 100))[-1] == "ETA 4–6 min"


def test_a_paused_bag_has_no_end_in_sight() -> None:
    view = bag(total=10, done=5, running=2, status="paused")
    assert describe(view, ProgressMeter()) == ["5/10", "50%", "PAUSED", "2 running"]


def test_an_open_bag_waits() -> None:
    assert describe(bag(total=4, done=4, open=True), ProgressMeter())[-1] == (
        "waits for more tasks, or for 'covey close 3'"
    )


def late(task: int) -> Straggler:
    return Straggler(task=task, values=[0.5], host="n3", seconds=720.0, typical_seconds=40.0)


LATE = "slow: task 7 (x=0.5) on n3 runs for 12 m 00 s, others took 40 s"


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
    view = bag(name="a" * 50, total=10**6, done=4321, failed=7, running=64)
    view.stragglers = [late(7), late(8), late(9)]
    drawn.show(view)
    visible = re.sub(r"\x1b\[[?\d]*\w|\r", "", stream.getvalue()).split("\n")
    assert len(visible) == 3, "the bar and two tasks"
    assert all(width_of(line) < columns for line in visible)
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
    assert stream.getvalue()[size:] == "\r" + progress.ERASE_BELOW


def test_several_lines_are_drawn_over() -> None:
    """As a terminal of one's own would see it."""
    stream = Terminal()
    drawn = Redrawn(stream, False)
    print("before", file=stream)
    drawn.show(bag(stragglers=[late(7), late(8)]))
    assert screen(stream.getvalue())[2] == "  " + LATE
    assert len(screen(stream.getvalue())) == 4
    drawn.show(bag(done=1, stragglers=[late(7)]))
    assert len(screen(stream.getvalue())) == 3
    drawn.show(bag(done=2))
    shown = screen(stream.getvalue())
    assert shown[0] == "before"
    assert "2/10" in shown[1]
    assert len(shown) == 2
    drawn.show(bag(done=3, stragglers=[late(8)]))
    drawn.close()
    print("after", file=stream)
    assert screen(stream.getvalue()) == ["before", "after"]


def screen(text: str) -> list[str]:
    """What a terminal shows that knows just what we use."""
    rows, at, column = [""], 0, 0
    for token in re.findall(r"\x1b\[(?:\d+A|K|J)|\r|\n|[^\x1b\r\n]+", text):
        if token == "\n":
            at, column = at + 1, 0
            rows += [""] * (at + 1 - len(rows))
        elif token == "\r":
            column = 0
        elif token.endswith("A") and token[0] == "\x1b":
            at -= int(token[2:-1])
        elif token == "\x1b[K":
            rows[at] = rows[at][:column]
        elif token == "\x1b[J":
            rows[at:] = [rows[at][:column]]
        else:
            rows[at] = rows[at][:column] + token + rows[at][column + len(token) :]
            column += len(token)
    return [row for row in rows if row]


def test_a_pipe_gets_few_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    stream = io.StringIO()
    lines = ProgressLines(stream)
    for second in range(25):
        now = float(second)
        lines.show(bag(done=second, total=100))
    lines.show(bag(done=100, total=100, status="finished"))
    lines.close()
    told = stream.getvalue().splitlines()
    assert len(told) == 3
    assert told[0] == "bag 3: 0/100, 0%, 0 running, ETA –"
    assert "1.0/s" in told[1]


def test_a_pipe_gets_one_line_for_a_slow_task() -> None:
    stream = io.StringIO()
    lines = ProgressLines(stream)
    lines.show(bag())
    for tasks in ([7], [7], [8, 7], []):
        lines.show(bag(stragglers=[late(task) for task in tasks]))
    told = stream.getvalue().splitlines()
    assert told[1] == f"bag 3: {LATE}"
    assert ["task 7" in line for line in told] == [False, True, False]


def test_it_is_said_once_why_nothing_runs() -> None:
    stream = io.StringIO()
    lines = ProgressLines(stream)
    for _ in range(3):
        lines.show(bag(reason="no pilot has 1000 cores"))
    assert stream.getvalue().splitlines()[1:] == ["bag 3: waits: no pilot has 1000 cores"]


def test_the_stream_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.delenv("NO_COLOR", raising=False)
    coloured = progress.for_stream(Terminal())
    assert isinstance(coloured, Redrawn)
    assert coloured.colour
    monkeypatch.setenv("NO_COLOR", "1")
    plain = progress.for_stream(Terminal())
    assert isinstance(plain, Redrawn)
    assert not plain.colour
    assert isinstance(progress.for_stream(io.StringIO()), ProgressLines)
    monkeypatch.setenv("CI", "true")
    assert isinstance(progress.for_stream(Terminal()), ProgressLines)
    monkeypatch.delenv("CI")
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(progress.for_stream(Terminal()), ProgressLines)
