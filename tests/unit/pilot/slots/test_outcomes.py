"""Whose fault an end was."""

import errno
import signal

import pytest

from covey.pilot.slots import outcomes
from covey.pilot.slots.outcomes import EndOfTask


@pytest.mark.parametrize(
    ("status", "stopped", "codes", "verdict"),
    [
        (0, "", {0}, EndOfTask("ok", 0, 0, "")),
        (0, "", {1}, EndOfTask("failed", 0, 0, "exit code 0")),
        (256, "", {0, 1}, EndOfTask("ok", 1, 0, "")),
        (256, "", {0}, EndOfTask("failed", 1, 0, "exit code 1")),
        (0, "timeout", {0}, EndOfTask("timeout", 0, 0, "over its limit of 2.5 s")),
        (15, "cancelled", {0}, EndOfTask("cancelled", -1, 15, "cancelled")),
        (11, "", {0}, EndOfTask("failed", -1, 11, "killed by SIGSEGV")),
        (63, "", {0}, EndOfTask("failed", -1, 63, "killed by signal 63")),
        (9, "memory", {0}, EndOfTask("memory", -1, 9, "memory")),
        (None, "", {0}, EndOfTask("host", -1, 0, "its process disappeared")),
    ],
)
def test_ends(status: int | None, stopped: str, codes: set[int], verdict: EndOfTask) -> None:
    assert outcomes.judge(status, stopped, 2.5, codes) == verdict


def test_a_kill_from_outside_says_so() -> None:
    assert "not by covey" in outcomes.judge(signal.SIGKILL, "", 0, {0}).message


def test_what_could_not_start() -> None:
    host = outcomes.unstarted("k", ["x"], "", OSError(errno.ENOMEM, "no memory"))
    assert (host.kind, host.started) == ("host", 0.0)
    missing = outcomes.unstarted("k", ["x"], "", FileNotFoundError(errno.ENOENT, "none"))
    assert (missing.kind, missing.exit_code) == ("failed", 127)
    assert missing.stderr == b"covey: x: command not found\n"


def test_used_memory_is_never_shown_too_small() -> None:
    assert outcomes.over_memory(10, 10 * 1024 + 1) == "over its limit of 10 MB (used 11 MB)"
