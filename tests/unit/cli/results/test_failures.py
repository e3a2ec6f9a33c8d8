"""Failures by cause, and what is said about them at the end of a run."""

import json
import shlex
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.cli.results.failures import SHORTEST_CAUSE, quoted, short_cause
from tests.unit.cli.builders import bag, row
from tests.unit.cli.source import FakeSource, Look, group


def test_failures(look: Look, source: FakeSource) -> None:
    source.groups[0] = group(count=9, hosts=["n1", "n2", "n3", "n4"], host_count=12)
    assert look("failures").stdout.splitlines() == [
        "bag 3 fits: 2 of 10 tasks failed",
        "",
        "9 tasks: exit 1: ValueError: bad",
        "    on n1, n2, n3 and 9 more; for example task 2 (x=2):",
        "    | Traceback",
        "    | ValueError: bad",
        "    again: covey retry 3 --cause 'exit 1: ValueError: bad'",
        "",
        "1 task: SIGKILL",
        "    on node1; for example task 4 (x=4):",
        "    (it printed nothing)",
        "    again: covey retry 3 --cause SIGKILL",
        "",
    ]
    assert [one["cause"] for one in json.loads(look("failures", "--json").stdout)] == [
        "exit 1: ValueError: bad",
        "SIGKILL",
    ]


def test_only_the_end_of_a_log_is_shown(look: Look, source: FakeSource) -> None:
    source.groups = [group(log="\n".join(map(str, range(100))) + "\n\n")]
    shown = [line for line in look("failures").stdout.splitlines() if "|" in line]
    assert shown == [f"    | {number}" for number in range(95, 100)]


def test_there_may_be_more_causes_or_none(look: Look, source: FakeSource) -> None:
    ran = look("failures", "--limit", "1")
    assert "there are more causes; see them with --limit 10" in ran.stderr
    assert "SIGKILL" not in ran.stdout
    source.view = bag(done=10)
    assert look("failures").stderr == "covey: bag 3 has no failed tasks\n"
    assert json.loads(look("failures", "--json").stdout) == []


def test_a_lack_of_memory_or_time_has_a_remedy(look: Look, source: FakeSource) -> None:
    source.groups = [
        group(cause="memory limit", outcome="memory"),
        group(cause="time limit", outcome="timeout"),
    ]
    ran = look("failures")
    assert "again: covey retry 3 --cause 'memory limit' --memory x2" in ran.stdout
    assert "again: covey retry 3 --cause 'time limit' --time x2" in ran.stdout
    assert "covey: some ran out of time; with more: covey retry 3 --failed --time x2" in ran.stderr
    source.rows[2] = row(2, outcome="memory", message="over its limit of 5 MB (used 7 MB)")
    told = look("failures").stdout
    assert "1 task: memory limit: over its limit of 5 MB (used 7 MB)\n" in told


def test_watch_ends_with_the_causes(look: Look, source: FakeSource) -> None:
    source.view = bag(status="finished", total=6, done=4, failed=2, ended=1065.0)
    ran = look("watch", status=1)
    assert ran.stdout == "bag 3 finished: 4 tasks done, 2 failed in 1 m 05 s\n"
    assert ran.stderr.splitlines() == [
        "  task 2 (x=2) on node1: exit 1: ValueError: bad",
        "  task 4 (x=4) on node1: SIGKILL",
        "covey: see: covey failures 3   again: covey retry 3 --failed",
    ]
    assert json.loads(look("watch", "--json", status=1).stdout)["failed"] == 2


def test_watch_tells_the_first_causes(look: Look, source: FakeSource) -> None:
    source.view = bag(status="finished", total=100, failed=100, ended=1001.0)
    source.groups = [group(count=50, cause="exit N: x", log="said: y\n"), *([group(count=10)] * 5)]
    told = look("watch", status=1).stderr.splitlines()
    assert told[:2] == ["  50 tasks, such as task 2 (x=2) on node1: exit N: x", "    | said: y"]
    assert told[4] == "  … and 30 more, with other causes"


def test_a_missing_file_gets_a_hint(look: Look, source: FakeSource) -> None:
    source.groups = [group(log="cat: x.txt: No such file or directory\n")]
    source.view = bag(status="finished", total=1, failed=1, ended=1001.0)
    assert "--chdir ." in look("watch", status=1).stderr


def test_a_cancelled_bag_is_no_success(look: Look, source: FakeSource) -> None:
    source.view = bag(status="cancelled", done=4, ended=1001.0)
    assert "6 not run" in look("watch", status=1).stdout


@given(st.text(min_size=1).filter(str.isprintable))
def test_a_quoted_cause_is_one_word_of_a_shell(text: str) -> None:
    assert shlex.split(quoted(text)) == [text]


@pytest.mark.parametrize("text", ["\x1b[31mit's \\ é\x7f", "tab\tand\nline", "\x9b1\u202e"])
def test_a_quoted_cause_moves_no_cursor(text: str) -> None:
    assert quoted(text).isprintable()
    env = {"LC_ALL": "C.UTF-8"}
    ran = subprocess.run(
        ["bash", "-c", f"printf %s {quoted(text)}"], capture_output=True, check=True, env=env
    )
    assert ran.stdout.decode() == text


def test_quotes_are_those_that_are_easiest_to_read() -> None:
    assert quoted("no file 'a.txt'") == "\"no file 'a.txt'\""
    assert quoted("exit 1: $x") == "'exit 1: $x'"


@given(st.lists(st.text("ab :", min_size=1, max_size=100), min_size=1, unique=True))
def test_a_shortened_cause_means_one_cause(causes: list[str]) -> None:
    for cause in causes:
        short = short_cause(cause, causes)
        assert cause.startswith(short)
        if short != cause:
            assert len(short) >= SHORTEST_CAUSE
            assert [other for other in causes if other.startswith(short)] == [cause]


def test_a_person_reads_the_numbers_that_a_cause_leaves_out(look: Look, source: FakeSource) -> None:
    source.view = bag(status="finished", total=4, failed=4, ended=1001.0)
    source.rows = [
        row(2, outcome="output", message="its 1 file has 1.9 MB"),
        row(4, outcome="failed", exit_code=1, message="exit code 1"),
    ]
    output = group(cause="output: its N file has N MB", outcome="output", log="")
    raised = group(cause="exit 1: no a.txt at N", count=3, example=4, log="no /tmp/a.txt at 17\n")
    source.groups = [output, raised]
    assert look("watch", status=1).stderr.splitlines()[:2] == [
        "  task 2 (x=2) on node1: output: its 1 file has 1.9 MB",
        "  3 tasks, such as task 4 (x=4) on node1: exit 1: no /tmp/a.txt at 17",
    ]
    told = look("failures").stdout.splitlines()
    assert "1 task: output: its 1 file has 1.9 MB" in told
    assert "    again: covey retry 3 --cause 'output: its N file has N MB'" in told
    assert told[7:10] == [
        "3 tasks: exit 1: no a.txt at N",
        "    on node1; for example task 4 (x=4):",
        "    exit 1: no /tmp/a.txt at 17",
    ]
