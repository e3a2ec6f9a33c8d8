"""One end that is off, among many that are not, is noticed, whatever is wrong with it."""

from typing import Any

import pytest

from covey.core.protocol.report_check import sync_problem
from covey.core.values.space import LARGEST_BAG
from covey.pilot.protocol.messages import LARGEST, MOST_RESULT, End, OutputFile, Sync

GOOD = End(1, 2, 3, 4, "ok", 0, 0, 0.1, 0.2, 0.3, 1000, 0.05)
NAMES = ("epoch", "sequence", "bag", "task")
NUMBERS = (
    *("exit_code", "signal", "queued_seconds", "wall_seconds", "cpu_seconds", "memory_kb"),
    *("age_seconds", "stdout_bytes", "stderr_bytes"),
)


def heard(**fields: Any) -> str:
    ends = [GOOD, GOOD._replace(**fields), GOOD]
    return sync_problem(Sync(1, 1, 1, 0, 2, ends), most_ends=3)


def test_good_ends_are_believed() -> None:
    assert heard() == ""
    assert heard(outcome="failed", exit_code=-1, age_seconds=-1.0, result="{}") == ""
    assert heard(task=LARGEST_BAG - 1, files=[OutputFile("a", 3, "ab" * 32)]) == ""
    assert sync_problem(Sync(1, 1, 1, 0, 2, []), most_ends=3) == ""


@pytest.mark.parametrize("name", [*NAMES, *NUMBERS])
def test_numbers_that_nobody_can_hold(name: str) -> None:
    assert "out of range" in heard(**{name: LARGEST + 1})
    assert "out of range" in heard(**{name: -LARGEST - 1})


@pytest.mark.parametrize("name", NAMES)
def test_numbers_that_no_attempt_ever_had(name: str) -> None:
    assert "out of range" in heard(**{name: -1})
    assert "out of range" in heard(task=LARGEST_BAG)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"outcome": "splendid"}, "not 'splendid'"),
        ({"outcome": "lost"}, "not 'lost'"),  # that is for the server to say
        ({"result": "x" * (MOST_RESULT + 1)}, "a result has more than"),
        ({"files": [OutputFile("a", -1)]}, "is malformed"),
        ({"files": [OutputFile("a", 1, "zz")]}, "is not a SHA-256 digest"),
    ],
)
def test_what_no_pilot_would_say(fields: dict[str, Any], words: str) -> None:
    assert words in heard(**fields)


def test_too_many() -> None:
    assert "at most 1 ends" in sync_problem(Sync(1, 1, 1, 0, 2, [GOOD, GOOD]), most_ends=1)
