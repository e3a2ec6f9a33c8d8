"""The simulator bites: it finds every planted bug, and the right code passes the same world."""

import pytest

from tests.simulation.find import BUGS, WORLDS, first, site_bugs
from tests.simulation.found import FOUND
from tests.simulator.report import failure
from tests.simulator.world import run

pytestmark = pytest.mark.timeout(600)  # some are rare, if they are not where they were


@pytest.mark.parametrize("name", BUGS)
def test_bug_is_found(name: str) -> None:
    seed = first(name, FOUND.get(name, 0))
    assert seed is not None, f"nothing wrong was seen in {WORLDS} worlds with this bug"
    right = run(seed)
    assert not right.problem, failure(right)


def test_there_are_enough() -> None:
    assert len(BUGS) >= 8
    assert {name for name in BUGS if hasattr(site_bugs, name)}
