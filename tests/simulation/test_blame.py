"""One of 50 hosts fails everything at once: of 10,000 tasks hardly any are ever sent there.

Not a matter of luck with a few seeds: each length of tasks has another race between the host that
fails and what is learnt from the others.
"""

import math
from random import Random

import pytest

from covey.core.record.model import BagSpec, Settings
from covey.core.values.space import Axis, Range
from tests.simulator.plan.workload import BagPlan, Plan
from tests.simulator.world import World

TASKS, HOSTS, SLOTS = 10_000, 50, 16
MOST = 0.005  # of the tasks
BLACK = "pilot-7"
pytestmark = pytest.mark.timeout(600)


class Patient(World):
    def _patience_seconds(self) -> float:
        return 1e6


def plan(seconds: float) -> Plan:
    spec = BagSpec(
        argv=("work", "0"),
        space=Axis("i", Range("0", "1", TASKS)),
        name="bag 0",
        owner="owner-0",
        key="key-0",
        retries=5,
    )
    bag = BagPlan(
        number=0,
        spec=spec,
        more=(),
        tasks=TASKS,
        at=5.0,
        seconds=(0.9 * seconds, 1.1 * seconds),
        flaky=0.0,
        broken=0.0,
        stuck=0.0,
    )
    return Plan(
        seed=1,
        settings=Settings(poll_seconds=60.0, lease_seconds=180.0, idle_seconds=1e5),
        bags=(bag,),
        hand_pilots=tuple((0.1 * number, SLOTS) for number in range(HOSTS)),
        calm_at=0.0,
    )


@pytest.mark.parametrize("seconds", [1.0, 60.0, 600.0])
def test_a_black_hole_gets_hardly_any_tasks(seconds: float) -> None:
    world = Patient(1, plan=plan(seconds))
    world.misfortunes.befall(BLACK, "black hole", math.inf, Random(1))
    report = world.run()
    assert not report.problem
    ledger = world.ledger
    sent = {task for task, all_ in ledger.sent.items() for one in all_ if one.life.name == BLACK}
    print(f"{seconds:.0f} s: {len(sent)} of {TASKS:,} tasks were sent there")
    assert 0 < len(sent) < MOST * TASKS
    assert [notes.status for notes in ledger.bags.values()] == ["finished"]
    assert report.starts >= TASKS
