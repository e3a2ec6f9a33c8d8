"""Bags with hundreds of classes: what is known of them, and what they cost."""

import sys
from types import FrameType

import pytest
from msgspec.structs import replace

from covey.core.bags.estimate import estimate, expected, stragglers
from covey.core.record.model import BagId, BagSpec, PolicySpec, Segment
from covey.core.record.task_classes import find_needs
from covey.core.sites import demand
from covey.core.state import Bag
from covey.core.values.space import Axis, Product, Range, Space, Zip
from covey.pilot.protocol.messages import End
from tests.unit.core.table import Hand, Table

RANKED = PolicySpec(rank="Job.i")
TIMES = Axis("t", Range("100", "10", 50))  # seconds that tasks may take: 100, 110, … 590


def varying(space: Space, **more: object) -> BagSpec:
    bag = BagSpec(argv=("work",), space=space, need_from={"time": "{t}"})
    bag = replace(bag, **more)
    return replace(bag, task_needs=find_needs(bag, Segment(space=space)))


def submitted(table: Table, bag: BagSpec) -> Bag:
    return table.scheduler.state.bags[BagId(table.submit(bag))]


def work(table: Table, hand: Hand, bag: Bag, tasks: int) -> None:
    """Each takes half of the time that it may take."""
    ended: list[End] = []
    for _ in range(tasks):
        [task] = hand.ask(1, ended).tasks
        took = bag.classes[bag.classes.by_number[task.need]].need.limit_seconds / 2
        table.now += took
        end = End(hand.epoch, task.sequence, task.bag, task.task, "ok", 0, wall_seconds=took)
        ended = [end]
    hand.sync(1, ended)


def test_tasks_of_other_classes_tell_how_long_a_task_takes() -> None:
    table = Table(lease_seconds=1e9)
    bag = submitted(table, varying(TIMES))
    shortest = bag.classes.by_number[0]
    assert expected(bag, shortest).count == 0
    work(table, table.enrol(1), bag, 10)  # the longest ones
    found = expected(bag, shortest)
    assert found.count == 10
    assert found.mean == pytest.approx(50.0)
    assert found.deviation == pytest.approx(0.0, abs=1e-6)


def test_a_class_that_was_measured_tells_itself() -> None:
    table = Table(lease_seconds=1e9)
    space = Product((Axis("t", Range("100", "100", 2)), Axis("k", Range("1", "1", 5))))
    bag = submitted(table, varying(space))
    hand = table.enrol(1)
    work(table, hand, bag, 5)
    bag.classes[bag.classes.by_number[0]].times.add(99.0)
    assert expected(bag, bag.classes.by_number[0]).mean == pytest.approx(50.0)
    for _ in range(2):
        bag.classes[bag.classes.by_number[0]].times.add(99.0)
    assert expected(bag, bag.classes.by_number[0]).mean == 99.0


def test_the_estimate_knows_that_short_tasks_are_left() -> None:
    """The longest of fifty tasks have ended, so that what is left takes less than their mean."""
    table = Table(lease_seconds=1e9)
    bag = submitted(table, varying(TIMES))
    work(table, table.enrol(1), bag, 25)
    left = sum(range(100, 350, 10)) / 2
    found = estimate(table.scheduler.state, bag, table.now)
    assert found is not None
    assert found.likely == pytest.approx(left, rel=0.1)


def test_a_late_task_is_seen_though_none_of_its_class_has_ended() -> None:
    table = Table(lease_seconds=1e9)
    bag = submitted(table, varying(TIMES))
    hand = table.enrol(1)
    work(table, hand, bag, 10)
    [task] = bag.places.live
    table.now += 5000.0
    [late] = stragglers(table.scheduler.state, bag, table.now, 5)
    assert late.attempt.task == task
    assert late.typical_seconds == pytest.approx(245.0)


def test_pilots_are_asked_for_by_magnitude() -> None:
    """A thousand needs are a few rows; what can hold a row can hold every task of it."""
    table = Table(chunk=1024)
    space = Zip((Axis("t", Range("1", "1", 1000)), Axis("m", Range("1000", "-1", 1000))))
    bag = submitted(table, varying(space, need_from={"time": "{t}", "memory": "{m} MB"}))
    rows = demand.rows(table.scheduler.state, table.now)
    assert len(rows) < 30
    assert sum(row.tasks for row in rows) == 1000
    for need in [one.need for one in bag.classes]:
        assert any(
            row.need.memory_mb >= need.memory_mb and row.need.limit_seconds >= need.limit_seconds
            for row in rows
        )


def test_few_needs_are_rows_of_their_own() -> None:
    table = Table(chunk=1024)
    submitted(table, varying(Axis("t", Range("100", "1", 32))))
    found = demand.rows(table.scheduler.state, table.now)
    assert sorted(row.need.limit_seconds for row in found) == list(range(100, 132))


def test_a_policy_that_looks_at_no_task_is_asked_once_for_all_classes() -> None:
    table = Table(chunk=1024)
    policy = PolicySpec(requirements="Host.Memory >= 0 || Host.Name != 1")
    plain = submitted(table, varying(Axis("t", Range("1", "1", 1)), policy=policy))
    many = submitted(table, varying(Axis("t", Range("1", "1", 900)), policy=policy, name="many"))
    assert len(table.enrol(100).ask(100).tasks) == 100
    assert 0 < many.cache.expense < 100
    assert plain.places.live


def calls_to_run(values: int) -> int:
    """Function calls that the scheduler needs for one more task, when half of a bag is done whose
    tasks all rank differently."""
    table = Table(lease_seconds=1e9)
    table.submit(BagSpec(argv=("work",), space=Axis("i", Range("1", "1", values)), policy=RANKED))
    hand = table.enrol(1)
    ended: list[End] = []
    for _ in range(values // 2):
        [task] = hand.ask(1, ended).tasks
        ended = [End(hand.epoch, task.sequence, task.bag, task.task, "ok", 0)]
    count = 0

    def counted(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(counted)
    try:
        hand.sync(1, ended)
    finally:
        sys.setprofile(None)
    return count


def test_a_rank_by_parameter_costs_in_proportion_to_its_values() -> None:
    few, many = calls_to_run(100), calls_to_run(400)
    assert many < 6 * few
