"""Recorded starts and ends of one slot agree with each other, though messages take their time."""

from collections.abc import Iterator
from itertools import pairwise

import pytest

from tests.faults.world import World, open_world


@pytest.fixture
def world() -> Iterator[World]:
    with open_world() as found:
        yield found


def test_tasks_of_one_slot_do_not_overlap(world: World) -> None:
    done = world.covey("run", "-p", "n=1..60", "--", "sleep", "0.02", COVEY_LOCAL_SLOTS="1")
    assert done.returncode == 0, done.stderr
    client = world.client()
    try:
        found = [row for task in range(60) for row in client.attempts(1, task)]
    finally:
        client.close()
    rows = sorted(found, key=lambda row: row.started)
    assert len(rows) == 60
    for row in rows:
        assert row.fetched <= row.started <= row.ended <= row.delivered + 0.001
    for one, other in pairwise(rows):
        assert other.started >= one.ended - 0.001
