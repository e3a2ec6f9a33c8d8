"""Numbers of tasks: segments that are added, and rows that must be read before tasks go out."""

from msgspec.structs import replace

from covey.core.record.actions import (
    AppendSegment,
    CloseBag,
    LoadRows,
    SaveBagStatus,
    Submitted,
)
from covey.core.record.events import (
    BagSubmitted,
    CloseRequested,
    ResumeRequested,
    RowsFailed,
    RowsLoaded,
    SegmentAppended,
)
from covey.core.record.model import (
    BagId,
    BagSpec,
    BagStatus,
    Rows,
    Segment,
)
from covey.core.values.space import Axis, Product, Range
from covey.pilot.protocol.messages import Answer
from tests.unit.core.bags.test_bag_requests import DIGEST, asked, ended, enrol, tasks
from tests.unit.core.table import Table, end, only, refusal, replies, spec, writes


def test_an_open_bag_grows_and_ends_only_when_closed() -> None:
    table = Table()
    bag = BagId(table.submit(spec(1, open=True)))
    pilot = enrol(table, 4)
    first = pilot.ask(4)
    pilot.sync(4, [end(first)])
    pilot.sync(4)
    assert table.scheduler.state.bags[bag].status is BagStatus.RUNNING
    segment = Segment(space=Axis("i", Range("5", "1", 2)))
    actions = table.handle(SegmentAppended(table.request(), bag, segment, "k"))
    assert only(actions, Submitted).total == 3
    assert writes(actions, AppendSegment) == [AppendSegment(bag, segment, 3, "k")]
    again = only(table.handle(SegmentAppended(table.request(), bag, segment, "k")), Submitted)
    assert (again.total, again.known) == (3, True)
    got = tasks(replies(actions, Answer))
    assert [(task.task, task.values) for task in got] == [(1, [5]), (2, [6])]
    pilot.sync(4, [ended(pilot, task) for task in got])
    closing = table.handle(CloseRequested(table.request(), bag))
    assert writes(closing, CloseBag)
    assert [one.status for one in writes(closing, SaveBagStatus)] == [BagStatus.FINISHED]
    late = refusal(table.handle(SegmentAppended(table.request(), bag, segment, "l")))
    assert "closed" in late.detail


def test_a_segment_with_other_parameters_is_refused() -> None:
    table = Table()
    bag = BagId(table.submit(spec(1, open=True)))
    other = Segment(space=Axis("j", Range("0", "1", 2)))
    problem = refusal(table.handle(SegmentAppended(table.request(), bag, other)))
    assert "parameters i" in problem.detail


def rows_spec(count: int, inner: int = 1, **fields: object) -> BagSpec:
    rows = Rows(digest=DIGEST, form="csv", names=("a",), count=count)
    space = Axis("b", Range("0", "1", inner)) if inner > 1 else Product(())
    return BagSpec(argv=("x", "{a}"), rows=rows, space=space, **fields)  # type: ignore[arg-type]


def loads(actions: list[object]) -> list[LoadRows]:
    return [action for action in actions if isinstance(action, LoadRows)]


def test_rows_go_out_once_they_are_read() -> None:
    table = Table(chunk=4)
    actions = table.handle(BagSubmitted(table.request(), rows_spec(3, inner=2)))
    (load,) = loads(list(actions))
    assert (load.chunk, load.first, load.stop) == (0, 0, 2), "four tasks have two rows"
    pilot = enrol(table, 8)
    assert not asked(pilot, 8)
    event = RowsLoaded(load.bag, load.chunk, [["p"], ["q"]])
    got = tasks(replies(table.handle(event), Answer))
    assert [task.values for task in got] == [["p", 0], ["p", 1], ["q", 0], ["q", 1]]


def test_few_long_rows_are_read_at_a_time() -> None:
    table = Table(chunk=1024)
    spec = rows_spec(10_000)
    assert spec.rows is not None
    long = replace(spec, rows=replace(spec.rows, row_bytes=1 << 20))
    (load,) = loads(list(table.handle(BagSubmitted(table.request(), long))))
    assert 1 <= load.stop - load.first <= 4


def test_rows_that_cannot_be_read_pause_the_bag_until_it_is_resumed() -> None:
    table = Table()
    actions = table.handle(BagSubmitted(table.request(), rows_spec(3)))
    (load,) = loads(list(actions))
    paused = table.handle(RowsFailed(load.bag, load.chunk, "no such file"))
    (status,) = writes(paused, SaveBagStatus)
    assert status.status is BagStatus.PAUSED
    assert "no such file" in status.reason
    resumed = table.handle(ResumeRequested(table.request(), load.bag))
    assert loads(list(resumed)) == [load]
