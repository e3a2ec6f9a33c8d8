"""Bags that were submitted together finish in the order of their ranks: GridBot's Figure 7, small,
with a real server and real pilots (`python -m bench ranks` is the larger one).

Tasks last long enough that a pilot is not sent a whole bag ahead: else two pilots have a bag each
at the same time, and which ends first is chance, which is much among so few bags."""

from collections.abc import Iterator

import pytest

from bench import ranks
from tests.faults.world import World, open_world

BAGS, TASKS = 12, 20
SECONDS = "0.05"


@pytest.fixture
def world() -> Iterator[World]:
    with open_world() as found:
        yield found


def test_the_best_ranked_finish_first(world: World) -> None:
    world.serve("--pilots", "2", "--slots", "2")
    client = world.client()
    try:
        _, found = ranks.contest(client, world.root / "gate", 1, BAGS, TASKS, 4, "sleep", SECONDS)
    finally:
        client.close()
    assert [one.rank for one in found] == list(range(BAGS, 0, -1))
    assert ranks.tau([one.wholly for one in found]) >= ranks.BOUND, found
