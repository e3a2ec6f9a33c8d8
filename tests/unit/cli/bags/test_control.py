"""What can be said to a bag, and what is not done."""

import json

import pytest

from tests.unit.cli.builders import bag
from tests.unit.cli.source import FakeSource, Look


def test_cancel(look: Look, source: FakeSource) -> None:
    assert look("cancel").stdout == "bag 3 cancelled: 4 tasks stopped or not run\n"
    source.view = bag(status="finished")
    assert "nothing to cancel" in look("cancel").stderr
    assert source.told == [("cancel", 3)]


def test_pause_and_resume(look: Look, source: FakeSource) -> None:
    assert "covey resume 3" in look("pause", "--reason", "no licences").stdout
    assert "not paused but running" in look("resume").stderr
    source.view = bag(status="paused")
    assert "paused already" in look("pause").stderr
    assert look("resume", "3").stdout == "bag 3 goes on\n"
    assert json.loads(look("resume", "--json").stdout) == {"bag": 3, "resumed": True}
    source.view = bag(status="finished")
    assert "nothing to pause" in look("pause").stderr
    assert json.loads(look("pause", "--json").stdout) == {"bag": 3, "paused": False}
    assert source.told == [("pause", 3, "no licences"), ("resume", 3), ("resume", 3)]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--failed"], ((), None, 1.0, 1.0)),
        (["--failed", "--memory", "+50%"], ((), None, 1.5, 1.0)),
        (
            ["--cause", "exit 1", "--cause", "SIG", "--time", "x2"],
            (("exit 1", "SIG"), None, 1.0, 2.0),
        ),
        (["--task", "4", "--task", "2", "--memory", "x1.5"], ((), [4, 2], 1.5, 1.0)),
    ],
)
def test_retry(look: Look, source: FakeSource, words: list[str], told: tuple[object]) -> None:
    assert look("retry", "3", *words).stdout == "bag 3: 2 failed tasks will run again\n"
    assert source.told == [("retry", 3, *told)]


@pytest.mark.parametrize("text", ["2", "50%", "+50", "x", "x0", "-50%", "xnan", "lots"])
def test_how_much_more_is_written_in_one_of_two_ways(look: Look, text: str) -> None:
    assert "write +50% or x2" in look("retry", "--failed", "--memory", text, status=2).stderr


def test_nothing_to_retry(look: Look, source: FakeSource) -> None:
    assert "no such failed tasks; see: covey failures 3" in (
        look("retry", "--cause", "nothing").stderr
    )
    assert json.loads(look("retry", "--cause", "nothing", "--watch", "--json").stdout) == {
        "bag": 3,
        "count": 0,
    }
    source.view = bag(done=10)
    assert "no failed tasks; nothing to retry" in look("retry", "--failed").stderr


def test_retry_and_watch(look: Look, source: FakeSource) -> None:
    source.view = bag(status="finished", failed=2, ended=1001.0)
    ran = look("retry", "--failed", "--watch", status=1)
    assert "2 failed tasks will run again" in ran.stdout
    assert "bag 3 finished" in ran.stdout


def test_purge_shows_and_asks(look: Look, source: FakeSource) -> None:
    source.view = bag(status="finished", ended=1000.0, name="fits")
    ran = look("purge", "3", "--logs", status=2)
    assert ran.stdout.splitlines()[1].endswith("what tasks printed")
    assert "--yes" in ran.stderr
    assert source.told == []
    assert look("purge", "3", "3", "--logs", "--yes").stdout.endswith(
        "removed from 1 bag: what tasks printed\n"
    )
    assert source.told == [("purge", 3, "logs")]


def test_a_person_may_say_no(
    look: Look, source: FakeSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    source.view = bag(status="finished", ended=1000.0)
    monkeypatch.setattr("covey.cli.bags.purge._can_ask", lambda: True)
    monkeypatch.setattr("click.confirm", lambda *words, **how: False)
    look("purge", "3", "--all")
    assert source.told == []
    monkeypatch.setattr("click.confirm", lambda *words, **how: True)
    look("purge", "3", "--all")
    assert source.told == [("purge", 3, "all")]


def test_purge_by_age(look: Look, source: FakeSource, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: 1000.0 + 30 * 86400)
    source.view = bag(status="finished", ended=2000.0)
    words = ["purge", "--files", "--yes", "--json", "--older-than"]
    assert json.loads(look(*words, "30d").stdout) == []
    assert json.loads(look(*words, "29d").stdout) == [{"bag": 3, "what": "files", "count": 1}]
    source.view = bag()
    assert "nothing to remove" in look("purge", "--older-than", "0d", "--all").stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["3"], "--logs, --files, or --all"),
        (["--logs"], "which bags?"),
        (["--logs", "--older-than", "soon"], "30d"),
    ],
)
def test_purge_must_be_told_exactly(look: Look, words: list[str], told: str) -> None:
    assert told in look("purge", *words, status=2).stderr


def test_a_running_bag_is_not_purged(look: Look, source: FakeSource) -> None:
    assert "covey cancel 3" in str(look("purge", "3", "--all", "--yes", status=1).exception)
    assert source.told == []
