"""Estimates that are not absurd."""

from covey.core.bags.estimate import estimate, stragglers
from covey.core.explain.bag_answers import hindrance
from covey.core.record.events import JobEnded
from covey.core.record.model import BagId, Need
from covey.pilot.protocol.messages import Answer, End
from tests.unit.core.bags.test_bag_requests import enrol
from tests.unit.core.placing import local_site
from tests.unit.core.table import Table, replies, spec


def run(table: Table, slots: int, seconds: list[float]) -> None:
    """Tasks that take these times, one after another on each slot of one pilot."""
    pilot = enrol(table, slots)
    answers = replies(pilot.sync(slots), Answer)
    for wall in seconds:
        table.now += wall / slots
        task = answers[-1].tasks[0] if answers and answers[-1].tasks else None
        if task is None:
            return
        end = End(pilot.epoch, task.sequence, task.bag, task.task, "ok", 0, wall_seconds=wall)
        answers = replies(pilot.sync(slots, [end]), Answer)


def test_nothing_is_said_before_anything_is_known() -> None:
    table = Table(chunk=1000)
    bag = BagId(table.submit(spec(100)))
    state = table.scheduler.state
    assert estimate(state, state.bags[bag], table.now) is None


def test_equal_tasks_give_a_narrow_range_around_the_truth() -> None:
    table = Table(chunk=1000)
    bag = BagId(table.submit(spec(100)))
    run(table, 1, [10.0] * 20)
    state = table.scheduler.state
    found = estimate(state, state.bags[bag], table.now)
    assert found is not None
    assert found.low < 800 < found.high
    assert abs(found.likely - 800) < 1
    assert found.high - found.low < 200


def test_a_slot_that_is_free_for_a_moment_counts() -> None:
    table = Table(chunk=1000)
    bag = BagId(table.submit(spec(40)))
    pilot = enrol(table, 2)
    (answer,) = replies(pilot.sync(2), Answer)
    table.now += 5.0
    ended = [
        End(pilot.epoch, one.sequence, one.bag, one.task, "ok", 0, wall_seconds=5.0)
        for one in answer.tasks
    ]
    (answer,) = replies(pilot.sync(1, ended), Answer)
    assert len(answer.tasks) == 1
    state = table.scheduler.state
    found = estimate(state, state.bags[bag], table.now)
    assert found is not None
    assert abs(found.likely - 38 * 5.0 / 2) < 1
    bag_of_one = BagId(table.submit(spec(1)))
    state.bags[bag_of_one].classes[0].times.add(5.0)
    single = estimate(state, state.bags[bag_of_one], table.now)
    assert single is not None
    assert single.likely == 5.0  # one task cannot be shared out


def test_few_and_differing_tasks_give_a_wide_range() -> None:
    table = Table(chunk=1000)
    bag = BagId(table.submit(spec(100)))
    run(table, 1, [10.0] * 2)
    wide_table = Table(chunk=1000)
    wide = BagId(wide_table.submit(spec(100)))
    run(wide_table, 1, [1.0, 19.0, 3.0, 30.0])
    state, wide_state = table.scheduler.state, wide_table.scheduler.state
    few = estimate(state, state.bags[bag], table.now)
    differing = estimate(wide_state, wide_state.bags[wide], wide_table.now)
    assert few is not None
    assert differing is not None
    assert few.high > 1.3 * few.likely
    assert differing.high - differing.low > 0.5 * differing.likely


def test_a_task_that_takes_much_longer_than_others_is_named() -> None:
    table = Table(chunk=1000)
    bag = BagId(table.submit(spec(100)))
    run(table, 1, [10.0] * 8)
    state = table.scheduler.state
    assert not stragglers(state, state.bags[bag], table.now, 5)
    (late,) = stragglers(state, state.bags[bag], table.now + 100.0, 5)
    assert (late.attempt.task, late.typical_seconds) == (8, 10.0)


def test_a_bag_that_fits_nowhere_says_what_is_missing() -> None:
    table = Table()
    bag = BagId(table.submit(spec(4, need=Need(cores=8, memory_mb=500))))
    enrol(table, 2).sync(2)
    state = table.scheduler.state
    assert hindrance(state, state.bags[bag]) == (
        "no connected pilot has 8 cores, 500 MB of memory for a task"
    )


def test_a_bag_says_why_pilots_of_this_machine_do_not_get_to_work() -> None:
    table = Table(sites=(local_site(1, 1),))
    bag = BagId(table.submit(spec(4)))
    state = table.scheduler.state
    assert not hindrance(state, state.bags[bag]), "one is on its way"
    for _ in range(2):
        table.handle(JobEnded(next(iter(state.jobs)), "exit status 1 (no disk)"))
        table.later(2.0)
    told = hindrance(state, state.bags[bag])
    assert told == "pilots cannot start work on this machine: exit status 1 (no disk)"


def test_what_waits_behind_a_straggler_is_none() -> None:
    table = Table(chunk=1000)
    bag = BagId(table.submit(spec(100)))
    run(table, 1, [0.1] * 8)
    state = table.scheduler.state
    (pilot,) = state.pilots.values()
    assert len(stragglers(state, state.bags[bag], table.now + 100.0, 5)) == 1
    assert pilot.record.slots == 1


def test_the_last_task_that_is_late_is_expected_to_stay_late() -> None:
    table = Table(chunk=1000)
    bag = BagId(table.submit(spec(9)))
    run(table, 1, [10.0] * 8)
    state = table.scheduler.state
    found = estimate(state, state.bags[bag], table.now + 110.0)
    assert found is not None
    assert found.likely >= 50.0
    assert found.high >= 200.0
