"""The simulator bites: it finds every planted bug, and the right code passes the same world."""

from functools import cache

import pytest

from tests.simulation.find import BUGS, WORLDS, first, site_bugs
from tests.simulation.found import FOUND
from tests.simulator.report import failure
from tests.simulator.world import run

pytestmark = pytest.mark.timeout(600)  # some are rare, if they are not where they were


@cache
def problem_of_right_code(seed: int) -> str:
    """Many bugs are seen in the same world: it is run once without them."""
    report = run(seed)
    return failure(report) if report.problem else ""


@pytest.mark.parametrize("name", BUGS)
def test_bug_is_found(name: str) -> None:
    seed = first(name, FOUND.get(name, 0))
    assert seed is not None, f"nothing wrong was seen in {WORLDS} worlds with this bug"
    assert not problem_of_right_code(seed)


def test_there_are_enough() -> None:
    assert len(BUGS) >= 8
    assert {name for name in BUGS if hasattr(site_bugs, name)}
