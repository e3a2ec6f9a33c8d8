"""500 worlds in which everything breaks, and every promise holds.

A failure prints its seed; `python -m tests.simulator --seed N --trace` repeats it.
"""

from statistics import median

import pytest

from tests.simulator.plan import faults
from tests.simulator.report import failure
from tests.simulator.world import Report, run

WORLDS = 500
pytestmark = pytest.mark.timeout(600)
BLOCK = 25
MESSAGES = 5  # lost requests and answers, delayed, duplicated, broken connections


@pytest.mark.parametrize("first", range(0, WORLDS, BLOCK))
def test_promises_hold(first: int) -> None:
    reports = [run(seed) for seed in range(first, first + BLOCK)]
    failures = [failure(report) for report in reports if report.problem]
    assert not failures, "\n".join(failures)
    check_size(reports)


def check_size(reports: list[Report]) -> None:
    """If every block is large enough, so are all of them together."""
    assert median(report.tasks for report in reports) >= 300
    assert median(report.pilots for report in reports) >= 10
    assert median(sum(report.faults.values()) for report in reports) >= 5


@pytest.mark.parametrize("seed", [1, 7, 33])
def test_a_seed_is_a_world(seed: int) -> None:
    lines: list[str] = []
    first, second = run(seed), run(seed, lines.append)
    assert first == second
    assert len(lines) == first.events > 1000
    assert run(seed + 1).digest != first.digest


def test_everything_that_can_break_does() -> None:
    broken: dict[str, int] = {}
    for report in map(run, range(15)):
        broken |= report.faults | report.messages
    assert len(broken) == len(faults.KINDS) + len(faults.MISFORTUNES) + MESSAGES, broken
