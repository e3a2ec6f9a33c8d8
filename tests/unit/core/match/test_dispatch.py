"""Tasks with a longer declared time go first, where times differ and the bag does not say
otherwise."""

from msgspec.structs import replace

from covey.core.bags.lookahead import MOST_ORDERED
from covey.core.explain.bag_answers import of_bag, of_task
from covey.core.explain.steps import finish
from covey.core.record.events import RowsLoaded, SegmentAppended
from covey.core.record.model import BagId, BagSpec, Condition, Need, Rows, Rule, Segment
from covey.core.record.task_classes import find_needs
from covey.core.values.space import Axis, Product, Range, Values
from tests.unit.core.table import Hand, Table, end, spec


def timed(seconds: tuple[int, ...], **more: object) -> BagSpec:
    """One task for each; its time is the value of `t`."""
    bag = BagSpec(argv=("work",), space=Axis("t", Values(seconds)), need_from={"time": "{t}"})
    bag = replace(bag, **more)
    return replace(bag, task_needs=find_needs(bag, Segment(space=bag.space)))


def sent(hand: Hand, want: int) -> list[int]:
    return [one.task for one in hand.ask(want).tasks]


def test_longer_tasks_go_first_then_lower_numbers() -> None:
    table = Table()
    table.submit(timed((5, 60, 5, 300, 60, 300)))
    assert sent(table.enrol(6), 6) == [3, 5, 1, 4, 0, 2]


def test_one_after_the_other_too() -> None:
    table = Table()
    table.submit(timed((5, 60, 5, 300, 60, 300)))
    hand, order = table.enrol(1), []
    answer = hand.ask(1)
    while answer.tasks:
        order += [one.task for one in answer.tasks]
        if len(order) == 6:
            break
        answer = hand.ask(1, [end(answer)])
    assert order == [3, 5, 1, 4, 0, 2]


def test_a_bag_may_keep_the_given_order() -> None:
    table = Table()
    table.submit(timed((5, 60, 5, 300), order="given"))
    assert sent(table.enrol(4), 4) == [0, 1, 2, 3]


def test_rules_declare_times_too_and_no_time_goes_last() -> None:
    table = Table()
    rules = (Rule(when=(Condition(name="i", low=6),), need=Need(limit_seconds=60.0)),)
    table.submit(spec(8, rules=rules))
    assert sent(table.enrol(8), 8) == [6, 7, 0, 1, 2, 3, 4, 5]


def test_without_different_times_nothing_changes() -> None:
    table = Table()
    rules = (Rule(when=(Condition(name="i", low=2),), need=Need(cores=2, limit_seconds=9.0)),)
    bag = table.submit(spec(4, need=Need(limit_seconds=9.0), rules=rules))
    assert sent(table.enrol(8), 8) == [0, 1, 2, 3]
    assert (
        finish(
            of_bag(table.scheduler.state, table.now, table.scheduler.state.bags[BagId(bag)])
        ).order
        == ""
    )


def test_a_pilot_that_cannot_run_the_longest_gets_the_next() -> None:
    table = Table()
    bag = BagSpec(
        argv=("work",),
        space=Axis("n", Values((1, 4, 2))),
        need_from={"cores": "{n}", "time": "{n}00"},
    )
    table.submit(replace(bag, task_needs=find_needs(bag, Segment(space=bag.space))))
    assert sent(table.enrol(3), 3) == [2, 0]


def test_the_longest_are_looked_for_beyond_the_first_chunk() -> None:
    """The last of 30,000 tasks is the long one."""
    table = Table(chunk=1024)
    rules = (Rule(when=(Condition(name="i", low=29_999),), need=Need(limit_seconds=60.0)),)
    id_ = table.submit(spec(30_000, rules=rules))
    assert sent(table.enrol(2), 2) == [29_999, 0]
    bag = table.scheduler.state.bags[BagId(id_)]
    assert bag.chunks.mark == bag.total


def test_and_not_without_bounds() -> None:
    table = Table(chunk=1024)
    rules = (Rule(when=(Condition(name="i", low=999_999),), need=Need(limit_seconds=60.0)),)
    id_ = table.submit(spec(1_000_000, rules=rules))
    bag = table.scheduler.state.bags[BagId(id_)]
    assert MOST_ORDERED <= bag.chunks.mark < MOST_ORDERED + 4096
    assert sent(table.enrol(2), 2) == [0, 1]
    bounded = Table(chunk=8, largest_chunk=8, most_lookahead=3)
    id_ = bounded.submit(spec(1000, rules=rules))
    assert bounded.scheduler.state.bags[BagId(id_)].chunks.mark == 24


def test_bags_whose_order_is_given_look_no_further_than_before() -> None:
    table = Table(chunk=8, largest_chunk=8)
    rules = (Rule(when=(Condition(name="i", low=2),), need=Need(limit_seconds=60.0)),)
    id_ = table.submit(spec(1000, rules=rules, order="given"))
    assert table.scheduler.state.bags[BagId(id_)].chunks.mark == 8


def test_rows_are_ordered_when_they_are_read() -> None:
    table = Table(chunk=4, largest_chunk=4)
    rows = [[second] for second in (1, 2, 3, 9, 5, 9, 7, 8)]
    file = Rows(digest="ab" * 32, form="csv", names=("t",), count=8)
    bag = BagSpec(argv=("work",), rows=file, need_from={"time": "{t}"})
    needs = find_needs(bag, Segment(rows=file), rows)
    id_ = BagId(table.submit(replace(bag, task_needs=needs)))
    table.handle(RowsLoaded(id_, 0, rows[:4]))  # type: ignore[arg-type]
    table.handle(RowsLoaded(id_, 4, rows[4:]))  # type: ignore[arg-type]
    assert sent(table.enrol(8), 4) == [3, 5, 7, 6]


def test_appended_tasks_that_are_longer_go_before_those_that_wait() -> None:
    table = Table()
    id_ = BagId(table.submit(timed((5, 60), open=True)))
    segment = Segment(space=Axis("t", Values((300, 6))))
    needs = (Need(limit_seconds=300.0), Need(limit_seconds=6.0))
    table.handle(SegmentAppended(table.request(), id_, replace(segment, task_needs=needs)))
    assert sent(table.enrol(4), 4) == [2, 1, 3, 0]


def test_it_is_explained() -> None:
    table = Table()
    id_ = BagId(table.submit(timed((5, 60, 5, 300))))
    state, bag = table.scheduler.state, table.scheduler.state.bags[id_]
    assert finish(of_bag(state, table.now, bag)).order.startswith(
        "tasks with a longer declared time go fir"
    )
    told = of_task(state, table.now, bag, 2).summary
    expected = "it waits behind 2 tasks with a longer declared time and 1 task of the same kind"
    assert told == expected
    assert of_task(state, table.now, bag, 3).summary == "it waits for a host"


def test_a_thousand_classes_cost_little_for_each_task() -> None:
    """What is asked of each class is asked of those whose turn comes."""
    table = Table(chunk=4096, largest_chunk=4096)
    table.submit(
        _described(
            Product((Axis("t", Range("1", "1", 1000)), Axis("k", Range("1", "1", 3)))),
        )
    )
    hand = table.enrol(100)
    order = sent(hand, 100)
    assert (
        order == [task for k in range(999, 999 - 34, -1) for task in range(3 * k, 3 * k + 3)][:100]
    )


def _described(space: Product) -> BagSpec:
    bag = BagSpec(argv=("work",), space=space, need_from={"time": "{t}"})
    return replace(bag, task_needs=find_needs(bag, Segment(space=space)))
