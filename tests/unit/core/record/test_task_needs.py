"""What tasks need, where their parameters say so."""

import msgspec
import pytest
from msgspec.structs import replace

from covey.core.errors import InvalidBag
from covey.core.explain.bag_answers import of_task
from covey.core.record.actions import AppendSegment, SaveBag
from covey.core.record.events import BagSubmitted, PolicyRequested, RetryRequested, SegmentAppended
from covey.core.record.model import (
    BagId,
    BagRecord,
    BagSnapshot,
    BagSpec,
    ChunkRecord,
    Condition,
    More,
    Need,
    PolicySpec,
    Rows,
    Rule,
    Segment,
)
from covey.core.record.task_classes import find_needs
from covey.core.record.task_needs import MOST_CLASSES, BadNeed
from covey.core.values.space import Axis, Product, Range, Scalar, Space, Values, Zip, names
from covey.pilot.protocol.messages import MEMORY, Answer
from tests.unit.core.table import EMPTY, Table, end, only, refusal, spec, writes

CORES, MEMORIES, TIMES = ("1", "4", "4"), ("2 GB", "500 MB", "2 GB"), ("1h", "60", "1h")
TABLE = Zip(
    (Axis("n", Values(CORES)), Axis("mem", Values(MEMORIES)), Axis("t", Values(TIMES))),
)
FROM = {"cores": "{n}", "memory": "{mem}", "time": "{t}"}
NEEDS = (
    Need(cores=1, memory_mb=2048, limit_seconds=3600.0),
    Need(cores=4, memory_mb=500, limit_seconds=60.0),
    Need(cores=4, memory_mb=2048, limit_seconds=3600.0),
)


def bag_of(space: Space, need_from: dict[str, str], **more: object) -> BagSpec:
    return BagSpec(argv=("work",), space=space, need_from=need_from, **more)  # type: ignore[arg-type]


def described(bag: BagSpec) -> BagSpec:
    """As the server completes it."""
    return replace(bag, task_needs=find_needs(bag, Segment(space=bag.space)))


def of(bag: BagSpec) -> tuple[Need, ...]:
    return find_needs(bag, Segment(space=bag.space))


def of_rows(
    columns: dict[str, list[Scalar]], need_from: dict[str, str], space: Space | None = None
) -> tuple[Need, ...]:
    rows = [list(row) for row in zip(*columns.values(), strict=True)]
    file = Rows(digest="ab" * 32, form="csv", names=tuple(columns), count=len(rows))
    bag = replace(bag_of(space or Product(()), need_from), rows=file)
    return find_needs(bag, Segment(space=bag.space, rows=file), rows)


# -- which they are ------------------------------------------------------------------------------


def test_each_combination_of_resources_is_found_once() -> None:
    assert of(bag_of(TABLE, FROM)) == NEEDS


def test_amounts_are_read_as_in_a_bag_file() -> None:
    columns: dict[str, list[Scalar]] = {"n": [4.0], "m": ["1.5"], "t": ["36:00:00"], "g": [0]}
    need_from = {"cores": "{n}", "memory": "{m} GB", "time": "{t}", "gpus": "{g}", "disk": "9{g}M"}
    expected = Need(cores=4, memory_mb=1536, disk_mb=90, limit_seconds=129600.0)
    assert of_rows(columns, need_from) == (expected,)


@pytest.mark.parametrize(
    ("resource", "text", "value", "words"),
    [
        ("memory", "{x}", "2 GX", "row 2: memory: expected a size such as '500 MB' or '2 GB', not"),
        (
            "memory",
            "{x}",
            2000,
            "row 2: memory: a size needs its unit: '2000 MB' or '2000 GB'",
        ),
        ("memory", "{x}", "2000", "(for all tasks: memory = '{x} MB')"),
        ("disk", "{x} GB", "", "row 2: disk: expected a size"),
        ("memory", "{x}", "9" * 90 + "GB", "row 2: memory: expected a size"),
        ("time", "{x}h", "1." + "0" * 300, "row 2: time: '1.000"),
        ("time", "{x}", "x" * 10_000_000, "xx… is too long for an amount"),
        ("cores", "{x}", "0", "row 2: cores: expected a whole number from 1 to 100,000, not 0"),
        ("cores", "{x}", "2.5", "row 2: cores: expected a whole number from 1 to 100,000, not 2.5"),
        ("gpus", "{x}", "", "row 2: gpus: expected a whole number from 0 to 1,024, not ''"),
        ("time", "{x}", "soon", "row 2: time: expected a time: seconds, or 1h30m"),
        ("time", "{x}", -3, "row 2: time: expected a time: seconds"),
    ],
)
def test_a_bad_value_is_told_with_its_row(
    resource: str, text: str, value: Scalar, words: str
) -> None:
    each: dict[str, Scalar] = {"memory": "1 GB", "disk": "7", "cores": 1, "gpus": 0, "time": 60}
    with pytest.raises(BadNeed) as caught:
        of_rows({"x": [each[resource], value]}, {resource: text})
    assert words in str(caught.value)
    assert caught.value.resource == resource


def test_not_every_bad_row_is_told() -> None:
    with pytest.raises(BadNeed) as caught:
        of_rows({"x": ["bad"] * 1000}, {"time": "{x}"})
    told = str(caught.value)
    assert "row 1: " in told
    assert "row 3: " in told
    assert "row 4: " not in told
    assert told.endswith("; and more")


def test_a_bad_value_of_a_parameter_is_told_with_its_name() -> None:
    space = Product((Axis("seed", Range("1", "1", 10**9)), Axis("mem", Values(("1 GB", "x")))))
    with pytest.raises(BadNeed, match=r"^mem=x: memory: expected a size"):
        of(bag_of(space, {"memory": "{mem}"}))


def test_the_rest_of_a_product_is_not_enumerated() -> None:
    """Four billion tasks, of which resources depend on one axis."""
    seeds = Axis("seed", Range("1", "1", 10**9))
    space = Product((seeds, Axis("mem", Values(("1 GB", "2 GB", "1024 MB", "2 GB")))))
    assert [one.memory_mb for one in of(bag_of(space, {"memory": "{mem}"}))] == [1024, 2048]


def test_rows_are_not_read_for_resources_that_do_not_depend_on_them() -> None:
    file = Rows(digest="ab" * 32, form="csv", names=("case",), count=10**7)
    space = Axis("mem", Values(("1 GB", "2 GB")))
    bag = replace(bag_of(space, {"memory": "{mem}"}), rows=file)

    def unread() -> list[list[Scalar]]:
        raise AssertionError

    rows = iter(unread, None)
    found = find_needs(bag, Segment(space=space, rows=file), rows)  # type: ignore[arg-type]
    assert [one.memory_mb for one in found] == [1024, 2048]


def test_rows_and_parameters_are_combined() -> None:
    found = of_rows({"n": [1, 2, 1]}, {"cores": "{n}", "time": "{t}"}, Axis("t", Values((60, 5))))
    assert [(one.cores, one.limit_seconds) for one in found] == [(1, 60), (1, 5), (2, 60), (2, 5)]


@pytest.mark.parametrize(
    ("space", "words"),
    [
        (Axis("a", Range("1", "1", 2_000_000)), "depends on a, with 2,000,000 combinations"),
        (
            Product((Axis("a", Range("1", "1", 2000)), Axis("b", Range("1", "1", 2000)))),
            "depends on a, b, with 4,000,000 combinations of values; at most 1,000,000 can",
        ),
    ],
)
def test_too_many_combinations_of_values_are_refused(space: Space, words: str) -> None:
    text = "".join(f"{{{name}}}" for name in names(space))
    with pytest.raises(InvalidBag, match=words):
        of(bag_of(space, {"time": text}))


def test_the_more_parameters_matter_the_fewer_combinations_are_looked_at() -> None:
    """Hundreds of axes, and conditions on all of them: that is much work for each combination."""
    axes = [Axis(f"x{k}", Values((1,))) for k in range(290)]
    conditions = tuple(Condition(name=axis.name, low=0) for axis in axes)
    rules = (Rule(when=conditions, need=Need(), need_from={"time": "{t}"}),)
    space = Product((*axes, Axis("t", Range("1", "1", 20_000))))
    with pytest.raises(InvalidBag, match="with 20,000 combinations of values; at most 16,"):
        of(bag_of(space, {}, rules=rules))
    few = Product((*axes, Axis("t", Range("1", "1", 500))))
    assert len(of(bag_of(few, {}, rules=rules))) == 500


def test_bad_values_without_end_are_not_collected() -> None:
    space = Product((Axis("a", Range("1", "1", 1000)), Axis("b", Range("1", "1", 1000))))
    with pytest.raises(BadNeed) as caught:
        of(bag_of(space, {"cores": "{a} {b}"}))
    assert len(str(caught.value)) < 1000


def test_too_many_combinations_of_resources_are_refused_with_advice() -> None:
    found = of_rows({"t": list(range(1, MOST_CLASSES + 1))}, {"time": "{t}"})
    assert len(found) == MOST_CLASSES
    words = "more than 1,000 different values of time, .* round them up, for example memory to"
    with pytest.raises(InvalidBag, match=words):
        of_rows({"t": list(range(1, MOST_CLASSES + 2))}, {"time": "{t}"})
    columns: dict[str, list[Scalar]] = {"t": list(range(2000)), "n": [2] * 2000}
    with pytest.raises(InvalidBag, match="different combinations of cores and time"):
        of_rows(columns, {"time": "{t}", "cores": "{n}"})


@pytest.mark.parametrize(
    ("need_from", "words"),
    [
        ({"memory": "{x}"}, "there is no parameter x; parameters: n, mem, t"),
        ({"memory": "2 GB"}, "expected text with the name of a parameter in it"),
        ({"memory_mb": "{n}"}, "resources are cores, memory, disk, gpus, time; there is no 'mem"),
        ({"memory": "{n}" * 100}, "of at most 100 characters"),
    ],
)
def test_texts_that_make_no_sense_are_refused(need_from: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidBag, match=words):
        of(bag_of(TABLE, need_from))


def test_a_rule_comes_before_what_parameters_say() -> None:
    """Whatever else it does not say is as for all tasks. Values that it replaces are not read."""
    rules = (
        Rule(
            when=(Condition(name="mem", values=("all",)),),
            need=Need(memory_mb=9000),
            need_from={"time": "{t}"},
        ),
    )
    space = Zip((Axis("mem", Values(("1 GB", "all"))), Axis("t", Values((5, 6)))))
    found = of(bag_of(space, {"memory": "{mem}", "time": "{t}"}, rules=rules))
    assert [(one.memory_mb, one.limit_seconds) for one in found] == [(1024, 5.0), (9000, 6.0)]


# -- what becomes of them ----------------------------------------------------------------------


def test_pilots_are_told_what_each_task_needs() -> None:
    table = Table()
    table.submit(described(bag_of(TABLE, FROM, order="given")))
    answer = table.enrol(16).ask(16)
    [body] = answer.bodies
    told = [body.needs[one.need] for one in answer.tasks]
    assert [(one.cores, one.memory_mb, one.limit_seconds) for one in told] == [
        (1, 2048, 3600.0),
        (4, 500, 60.0),
        (4, 2048, 3600.0),
    ]


def test_a_bag_whose_needs_nobody_has_looked_at_is_refused() -> None:
    table = Table()
    actions = table.handle(BagSubmitted(table.request(), bag_of(TABLE, FROM)))
    assert "task_needs" in refusal(actions).detail


def test_only_pilots_that_are_large_enough_get_a_task() -> None:
    table = Table()
    table.submit(described(bag_of(TABLE, FROM)))
    assert [one.task for one in table.enrol(2).ask(4).tasks] == [0]
    assert [one.task for one in table.enrol(8).ask(8).tasks] == [2, 1]


def test_appended_tasks_may_need_something_new() -> None:
    table = Table()
    number = table.submit(described(bag_of(Axis("n", Values((1, 2))), {"cores": "{n}"}, open=True)))
    hand = table.enrol(16)
    assert [one.need for one in hand.ask(8).tasks] == [0, 1]
    bag = table.scheduler.state.bags[BagId(number)]
    segment = Segment(space=Axis("n", Values((2, 3))))
    segment = replace(segment, task_needs=find_needs(bag.spec, segment))
    table.handle(SegmentAppended(table.request(), BagId(number), segment))
    answer = hand.ask(16)
    [body] = answer.bodies  # it is told again, as the bag has a new class
    assert [body.needs[one.need].cores for one in answer.tasks] == [2, 3]
    assert [one.cores for one in body.needs] == [1, 2, 3]
    table.later(30.0)
    more = replace(segment, space=Axis("n", Values((3,))), task_needs=(Need(cores=3),))
    table.handle(SegmentAppended(table.request(), BagId(number), more))
    assert hand.ask(16).bodies == []  # nothing is new


def test_a_restarted_server_knows_the_classes_by_the_same_numbers() -> None:
    table = Table()
    bag = described(bag_of(Axis("n", Values((1, 2))), {"cores": "{n}"}, open=True))
    number = table.submit(bag)
    segment = Segment(space=Axis("n", Values((3, 1))), task_needs=(Need(cores=3), Need()))
    table.handle(SegmentAppended(table.request(), BagId(number), segment))
    [saved], [appended] = writes(table.actions, SaveBag), writes(table.actions, AppendSegment)
    record = replace(saved.bag, segments=(appended.segment,), total=4)
    chunk = ChunkRecord(first=0, stop=4, closed=False)
    snapshot = BagSnapshot(bag=record, chunks=(chunk,), open_done=(), failed=(), tries={})
    again = Table(snapshot=replace(EMPTY, epoch=2, bags=(snapshot,), next_bag=2))
    before = table.scheduler.state.bags[BagId(number)].body.needs
    bag_again = again.scheduler.state.bags[BagId(number)]
    assert bag_again.body.needs == before
    answer = again.enrol(16).ask(16)
    assert [answer.bodies[0].needs[one.need].cores for one in answer.tasks] == [1, 2, 3, 1]


def test_an_append_that_makes_too_many_classes_is_refused() -> None:
    table = Table()
    bag = described(bag_of(Axis("t", Range("1", "1", 900)), {"time": "{t}"}, open=True))
    number = table.submit(bag)
    segment = Segment(space=Axis("t", Range("801", "1", 201)))
    segment = replace(segment, task_needs=find_needs(bag, segment))
    actions = table.handle(SegmentAppended(table.request(), BagId(number), segment))
    assert "more than 1,000 different values of time" in refusal(actions).detail
    assert table.scheduler.state.bags[BagId(number)].total == 900


def test_a_retry_with_more_memory_begins_with_the_tasks_own() -> None:
    table = Table()
    number = table.submit(
        described(bag_of(TABLE, FROM, retries=1, grow_memory=2.0, order="given", breaker=0))
    )
    hand = table.enrol(16)
    answer = hand.ask(16)
    again = hand.ask(16, [end(answer, 1, MEMORY, 1), end(answer, 2, MEMORY, 1)])
    assert [(one.task, one.memory_mb) for one in again.tasks] == [(1, 1000), (2, 4096)]
    bag = table.scheduler.state.bags[BagId(number)]
    need = of_task(table.scheduler.state, table.now, bag, 1).need
    assert need is not None
    assert (need.cores, need.memory_mb, need.limit_seconds) == (4, 1000, 60.0)
    hand.sync(16, [end(again, 0, MEMORY, 1)])
    event = RetryRequested(table.request(), BagId(number), (1,), More(1.0, 2.0, 750))
    table.handle(event)
    [task] = hand.ask(16).tasks
    assert (task.task, task.memory_mb, task.limit_seconds) == (1, 750, 120.0)


def test_a_policy_may_look_at_parameters_too() -> None:
    """It splits the classes; when it looks at nothing any more, and tasks with new needs were
    appended meanwhile, everything still has its place."""
    table = Table()
    policy = PolicySpec(requirements="Job.n < 3")
    bag = described(bag_of(Axis("n", Values((1, 3))), {"cores": "{n}"}, open=True, policy=policy))
    id_ = BagId(table.submit(bag))
    hand = table.enrol(16)
    assert [one.task for one in hand.ask(16).tasks] == [0]
    segment = Segment(space=Axis("n", Values((2, 5))), task_needs=(Need(cores=2), Need(cores=5)))
    table.handle(SegmentAppended(table.request(), id_, segment))
    assert [(one.task, one.need) for one in hand.ask(16).tasks] == [(2, 2)]
    hand.sync(16)
    actions = table.handle(PolicyRequested(table.request(), id_, PolicySpec()))
    answer = only(actions, Answer)
    assert [(one.task, one.need) for one in answer.tasks] == [(1, 1), (3, 3)]


def test_bags_without_such_resources_are_as_before() -> None:
    rules = (Rule(when=(Condition(name="i", low=2),), need=Need(cores=2)),)
    table = Table()
    table.submit(spec(4, rules=rules))
    assert [one.need for one in table.enrol(8).ask(8).tasks] == [0, 0, 1, 1]


def test_a_record_of_a_varying_bag_survives_its_encoding() -> None:
    bag = described(bag_of(TABLE, FROM))
    assert msgspec.json.decode(msgspec.json.encode(bag), type=BagSpec) == bag
    record = BagRecord(id=BagId(1), spec=bag, total=3, created=0.0)
    assert record.spec.task_needs == NEEDS
