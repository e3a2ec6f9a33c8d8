"""Whose fault an end was."""

import errno
import signal

import pytest

from covey.pilot import judge
from covey.pilot.judge import Verdict


@pytest.mark.parametrize(
    ("status", "stopped", "codes", "verdict"),
    [
        (0, "", {0}, Verdict("ok", 0, 0, "")),
        (0, "", {1}, Verdict("failed", 0, 0, "exit code 0")),
        (256, "", {0, 1}, Verdict("ok", 1, 0, "")),
        (256, "", {0}, Verdict("failed", 1, 0, "exit code 1")),
        (0, "timeout", {0}, Verdict("timeout", 0, 0, "over its limit of 2.5 s")),
        (15, "cancelled", {0}, Verdict("cancelled", -1, 15, "cancelled")),
        (11, "", {0}, Verdict("failed", -1, 11, "killed by SIGSEGV")),
        (63, "", {0}, Verdict("failed", -1, 63, "killed by signal 63")),
        (9, "memory", {0}, Verdict("memory", -1, 9, "memory")),
        (None, "", {0}, Verdict("host", -1, 0, "its process disappeared")),
    ],
)
def test_ends(status: int | None, stopped: str, codes: set[int], verdict: Verdict) -> None:
    assert judge.judge(status, stopped, 2.5, codes) == verdict


def test_a_kill_from_outside_says_so() -> None:
    assert "not by covey" in judge.judge(signal.SIGKILL, "", 0, {0}).message


def test_what_could_not_start() -> None:
    host = judge.unstarted("k", ["x"], "", OSError(errno.ENOMEM, "no memory"))
    assert (host.kind, host.started) == ("host", 0.0)
    missing = judge.unstarted("k", ["x"], "", FileNotFoundError(errno.ENOENT, "none"))
    assert (missing.kind, missing.exit_code) == ("failed", 127)
    assert missing.stderr == b"covey: x: command not found\n"


def test_used_memory_is_never_shown_too_small() -> None:
    assert judge.over_memory(10, 10 * 1024 + 1) == "over its limit of 10 MB (used 11 MB)"
