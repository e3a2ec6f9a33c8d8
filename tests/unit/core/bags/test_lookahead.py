"""What fits nobody makes place for what is behind it, and comes back."""

import pytest

from covey.core.record.model import BagId, PolicySpec
from covey.pilot.protocol.messages import Answer
from tests.unit.core.table import Hand, Table, replies, spec


def gets(hand: Hand, want: int) -> list[int]:
    answers = [*replies(hand.sync(want), Answer), *replies(hand.sync(0), Answer)]
    return [one.task for answer in answers for one in answer.tasks]


def a_bag(table: Table, total: int = 64) -> int:
    """Only tasks from 48 on may run on `plain` hosts; the others want a tag."""
    policy = PolicySpec(requirements="Job.i >= 48 || Host.special =?= 1")
    return table.submit(spec(total, policy=policy))


def test_a_class_that_fits_nobody_does_not_hide_those_behind_it() -> None:
    table = Table(lease_seconds=1e9, chunk=8, largest_chunk=8, most_lookahead=2)
    bag = table.scheduler.state.bags[BagId(a_bag(table))]
    hand = table.enrol(4, host="plain")
    found = gets(hand, 4)
    assert found == []
    assert bag.chunks.mark == 16  # two chunks are looked at
    for _ in range(200):
        table.later(1.0)
        found += gets(hand, 4)
        if len(found) == 4:
            break
    assert found == [48, 49, 50, 51]
    assert len(bag.places.aside) >= 32


def test_what_made_place_comes_back_for_who_can_run_it() -> None:
    table = Table(lease_seconds=1e9, chunk=8, largest_chunk=8, most_lookahead=2)
    a_bag(table)
    hand = table.enrol(4, host="plain")
    for _ in range(200):
        table.later(1.0)
        gets(hand, 4)
    special = table.enrol(64, host="special", tags={"special": "1"})
    found: list[int] = []
    for _ in range(400):
        table.later(1.0)
        found += gets(special, 64)
    assert sorted(found) == [*range(48), *range(52, 64)]


@pytest.mark.parametrize(("batch", "expected"), [(True, "fast"), (False, "slow")])
def test_in_a_batch_the_best_hosts_come_first(batch: bool, expected: str) -> None:
    table = Table(lease_seconds=1e9, batch=batch)
    hosts = {}
    for host, speed in (("slow", "1"), ("middle", "2"), ("fast", "3")):
        hand = table.enrol(1, host=host, tags={"mhz": speed})
        hosts[hand.pilot] = host
        hand.sync(1)
    bag = table.submit(spec(1, policy=PolicySpec(rank="Host.mhz")))
    [attempt] = table.scheduler.state.bags[BagId(bag)].places.live[0]
    assert hosts[attempt.pilot] == expected
