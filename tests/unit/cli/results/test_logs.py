"""What tasks printed, and what they print now: nothing twice, nothing silently left out."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.cli.results.tail import Prefixed, SeenTask, TailPart, last_lines, parts_of
from tests.unit.cli.builders import bag, row
from tests.unit.cli.source import FakeSource, Look, lines, piece


def test_failures_come_first(look: Look) -> None:
    ran = look("logs", "--limit", "3")
    heads = [line for line in ran.stdout.splitlines() if line.startswith("==>")]
    assert heads == [
        "==> task 2 (x=2): exit 1 on node1",
        "==> task 4 (x=4): SIGKILL on node1",
        "==> task 0 (x=0): exit 0 on node1",
    ]
    assert "ValueError: bad" in ran.stdout
    assert "3 more have ended" in ran.stderr


def test_one_task(look: Look) -> None:
    assert look("logs", "3", "1", "--stdout").stdout == "out\n"
    assert look("logs", "3", "2", "--stderr").stdout == "Traceback\nValueError: bad\n"
    assert look("logs", "3", "2", "--stderr", "--tail", "1").stdout == "ValueError: bad\n"
    assert look("logs", "3", "2").stdout.startswith("==> task 2 (x=2): exit 1")
    assert json.loads(look("logs", "latest", "2", "--json").stdout)["stdout"] == "out\n"


@pytest.mark.parametrize(("task", "told"), [("7", "covey logs -f 3 7"), ("10", "tasks 0 to 9")])
def test_a_task_without_any(look: Look, task: str, told: str) -> None:
    assert told in str(look("logs", "3", task, status=1).exception)


def tasks_in(text: str) -> list[str]:
    return [line.split()[2] for line in text.splitlines() if line.startswith("==>")]


def test_by_failure_and_cause(look: Look) -> None:
    assert tasks_in(look("logs", "--failed").stdout) == ["2", "4"]
    assert tasks_in(look("logs", "--cause", "exit 1").stdout) == ["2"]
    assert tasks_in(look("logs", "--cause", "SIG", "--cause", "exit").stdout) == ["2", "4"]
    ran = look("logs", "--cause", "none")
    assert (ran.stdout, ran.stderr) == ("", "covey: bag 3 has no such failed tasks\n")
    assert "1 more have failed" in look("logs", "--failed", "--limit", "1").stderr
    assert len(json.loads(look("logs", "--failed", "--json").stdout)) == 2


def test_nothing_yet(look: Look, source: FakeSource) -> None:
    source.rows, source.view = [], bag()
    assert "to see them live: covey logs -f 3" in look("logs").stderr
    source.view = bag(status="cancelled")
    assert look("logs").stderr == "covey: bag 3 is cancelled; none of its tasks has ended\n"


def test_one_stream_is_what_the_task_printed(look: Look, source: FakeSource) -> None:
    source.stdout = "\x1b[31mred\x1b[0m\r\n\x00é"
    assert look("logs", "3", "1", "--stdout").stdout_bytes == source.stdout.encode()


def test_what_was_removed_is_not_taken_for_nothing(look: Look, source: FakeSource) -> None:
    source.stdout = source.stderr = ""
    source.rows[3].stdout_bytes = 0
    assert (
        look("logs", "3", "1").stderr == "covey: (what it printed was removed with 'covey purge')\n"
    )
    assert "removed" in look("logs", "3", "1", "--stdout").stderr
    assert look("logs", "3", "3").stderr == ""
    assert look("logs").stdout.count("removed") == 5


def test_a_title_moves_no_cursor(look: Look, source: FakeSource) -> None:
    source.rows[1] = row(1, values=["\x1b[2J\n"], message="\x1bX", outcome="timeout")
    assert look("logs", "3", "1").stdout.startswith("==> task 1 (x=·[2J·): ·X on node1\n")


# -- live ----------------------------------------------------------------------------------------


def finish(source: FakeSource, *ended: Any) -> Any:
    """To be called later: these tasks end, and with them the bag."""

    def done() -> None:
        source.rows.extend(ended)
        source.view = bag(status="finished", done=len(source.rows))

    return done


def nothing() -> None:
    """No news."""


def test_one_task_live(look: Look, source: FakeSource) -> None:
    """Two pieces, one of them twice; the rest comes with the record."""
    source.rows, source.view = [], bag()
    source.live = [[piece(7, 0, "one\ntw")], [piece(7, 0, "one\ntw"), piece(7, 6, "o\n")], []]
    source.stdout = "one\ntwo\nthree\n"
    source.later = [nothing, nothing, finish(source, row(7, stdout_bytes=14))]
    ran = look("logs", "-f", "3", "7")
    assert ran.stdout == "one\ntwo\nthree\n"
    assert ran.stderr == "covey: task 7 (x=7): exit 0 on node1\n"


def test_an_attempt_that_is_tried_again(look: Look, source: FakeSource) -> None:
    first = row(7, attempt="1.1", counted=False, outcome="failed", exit_code=1, stdout_bytes=4)
    source.rows, source.view, source.stdout = [first], bag(), "bad\n"

    def again() -> None:
        source.rows.insert(0, row(7, attempt="1.2", stdout_bytes=5))
        source.stdout = "good\n"

    source.later = [nothing, again]
    assert look("logs", "-f", "3", "7").stdout == "bad\ngood\n"


def test_a_task_that_will_have_no_result(look: Look, source: FakeSource) -> None:
    source.later = [lambda: setattr(source, "view", bag(status="cancelled"))]
    assert "is cancelled; task 7 has no result" in look("logs", "-f", "3", "7").stderr
    assert "tasks 0 to 9" in str(look("logs", "3", "10", status=1).exception)


def test_all_tasks_live(look: Look, source: FakeSource) -> None:
    """Only what is printed from now on, in whole lines; a task may end before we hear of it."""
    source.rows, source.view = [row(0, row=70)], bag(total=100)
    source.live = [[piece(7, 0, "a\nb"), piece(12, 0, "x\n", 2)], [piece(7, 3, "c\nd")]]
    source.stdout = "a\nbc\nd"
    ended = [row(7, row=80, stdout_bytes=6), row(9, row=90, stdout_bytes=6)]
    source.later = [nothing, finish(source, *ended)]
    ran = look("logs", "-f")
    assert ran.stdout.splitlines() == [
        " 7 | a", "12 | x", " 7 | bc", " 7 | d", " 9 | a", " 9 | bc", " 9 | d",
    ]  # fmt: skip


def test_only_failures_live(look: Look, source: FakeSource) -> None:
    source.rows, source.view = [], bag()
    source.live = [[piece(1, 0, "not wanted\n")]]
    bad = row(2, outcome="failed", exit_code=1, stdout_bytes=4, cause="exit 1: x")
    source.later = [finish(source, row(1), bad)]
    assert look("logs", "-f", "--cause", "exit 1").stdout == "2 | out\n"


def test_live_as_json(look: Look, source: FakeSource) -> None:
    source.rows, source.view = [], bag()
    source.live = [[piece(7, 0, "a\nb", 2)]]
    source.later = [finish(source)]
    assert lines(look("logs", "-f", "--json").stdout) == [
        {"task": 7, "attempt": "1.7", "stream": "stderr", "text": "a\nb"}
    ]


def test_a_pause_is_told_once(look: Look, source: FakeSource) -> None:
    source.view = bag(status="paused", reason="x")
    source.later = [nothing, nothing, finish(source)]
    assert look("logs", "-f").stderr.count("PAUSED") == 1


def test_interrupt_ends_it_well(look: Look, source: FakeSource) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    source.later = [interrupt]
    assert look("logs", "-f").stderr == "covey: bag 3 keeps running\n"


def test_following_a_bag_that_is_over_shows_what_there_is(look: Look, source: FakeSource) -> None:
    source.view = bag(status="finished", done=4, failed=2)
    assert tasks_in(look("logs", "-f", "--failed").stdout) == ["2", "4"]


def test_each_task_has_its_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    printed: list[str] = []
    monkeypatch.setattr("covey.frontend.terminal._write", printed.append)
    monkeypatch.setattr(Prefixed, "coloured", True)
    sink = Prefixed(as_json=False, raw=False, total=100)
    for task in (1, 2, 1):
        sink.write(task, f"1.{task}", 1, "10%\r100%\r\n")
    assert printed[0] == printed[2] != printed[1]
    assert printed[0].startswith("\x1b[3")
    assert printed[0].endswith("\x1b[0m 100%\n"), "what a terminal would show in the end"


# -- without doubling -----------------------------------------------------------------------------


@given(
    st.text("aé\n", max_size=30),
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=8),
)
def test_whatever_arrives_the_text_is_printed_once(text: str, cuts: list[tuple[int, int]]) -> None:
    seen = SeenTask()
    printed = seen.fresh("1.1", 1, TailPart(0, ""))
    for start, length in sorted(cuts):
        part = TailPart(len(text[:start].encode()), text[start : start + length])
        fresh = seen.fresh("1.1", 1, part)
        printed += fresh
    printed += seen.fresh("1.1", 1, TailPart(0, text))
    if "not seen" not in printed:
        assert printed == text


def test_what_was_missed_is_said() -> None:
    seen = SeenTask()
    assert seen.fresh("1.1", 1, TailPart(100, "a")) == "a", "it began before us"
    assert seen.fresh("1.1", 1, TailPart(1101, "b")) == "\n[... 1,000 bytes not seen ...]\nb"
    assert seen.fresh("1.1", 2, TailPart(0, "c")) == "c"
    assert seen.fresh("1.2", 1, TailPart(0, "d")) == "d"


def test_a_log_with_its_middle_left_out() -> None:
    text = "head\n\n[... 1000 bytes left out ...]\ntail\n"
    assert parts_of(text, 1010) == [TailPart(0, "head\n"), TailPart(1005, "tail\n")]
    assert parts_of(text, len(text)) == [TailPart(0, text)], "the task printed that itself"
    assert parts_of("", 0) == []


def test_bytes_that_are_no_text_count_once() -> None:
    seen = SeenTask()
    seen.fresh("1.1", 1, TailPart(0, "a\ufffdb"))
    assert seen.fresh("1.1", 1, TailPart(3, "c")) == "c"


def test_the_tail_of_what_was_there() -> None:
    pieces = [piece(1, 0, "a\nb\n"), piece(2, 0, "x\n"), piece(1, 4, "c\nd")]
    kept = [(one.task, one.start, one.text) for one in last_lines(pieces, 3)]
    assert kept == [(1, 2, "b\n"), (2, 0, "x\n"), (1, 4, "c\nd")]
