"""The simulator bites: it finds every planted bug, and the right code passes the same world."""

import pytest

from covey.sim.report import failure
from covey.sim.world import run
from tests.simulation import site_bugs
from tests.simulation.bugs import BUGS, WORDS

WORLDS = 200
pytestmark = pytest.mark.timeout(600)  # some are rare


@pytest.mark.parametrize("name", BUGS)
def test_bug_is_found(name: str) -> None:
    for seed in range(WORLDS):
        with BUGS[name]():
            report = run(seed)
        if report.problem and WORDS.get(name, "") in report.problem:
            break
    else:
        pytest.fail(f"nothing wrong was seen in {WORLDS} worlds with this bug")
    print(f"{name}: {failure(report)}")
    right = run(seed)
    assert not right.problem, failure(right)


def test_there_are_enough() -> None:
    assert len(BUGS) >= 8
    assert {name for name in BUGS if hasattr(site_bugs, name)}
