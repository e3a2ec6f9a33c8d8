"""Whatever the parameters are: a column of values is the values, one task after another."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.core.record.model import Rows, Segment
from covey.core.record.task_numbers import tasks_in
from covey.core.values.space import (
    Axis,
    Point,
    Product,
    Range,
    Scalar,
    Space,
    Values,
    Zip,
    indexer,
    size,
)
from covey.store.results.task_parameters import Points

CELLS: list[list[Scalar]] = [["r0", 0], ["r1", 1.5], ["r2", "x"]]


class Tables:
    def point(self, rows: Rows) -> Point:
        return CELLS.__getitem__


RANGES = st.builds(
    Range, st.sampled_from(["0", "-3", "0.5"]), st.sampled_from(["1", "0.1"]), st.integers(1, 5)
)
ITEMS: st.SearchStrategy[Scalar] = st.sampled_from([1, 2.5, "a", "b"])
LISTS = st.lists(ITEMS, min_size=1, max_size=4).map(lambda items: Values(tuple(items)))
AXES = st.builds(Axis, st.just("n"), RANGES | LISTS)


def zipped(part: Space) -> Space:
    return Zip((part, Axis("z", Range("10", "10", size(part)))))


SPACES = st.recursive(
    AXES,
    lambda parts: st.lists(parts, max_size=3).map(tuple).map(Product) | parts.map(zipped),
    max_leaves=6,
)
SEGMENTS = st.builds(
    lambda space, rows: Segment(
        space=space,
        rows=Rows(digest="d", form="csv", names=("r", "s"), count=3) if rows else None,
    ),
    SPACES,
    st.booleans(),
)


def direct(segment: Segment, local: int) -> list[Scalar]:
    """As the definition says."""
    inner = size(segment.space)
    row = CELLS[local // inner] if segment.rows is not None else []
    return [*row, *indexer(segment.space)(local % inner)]


@given(SEGMENTS, st.integers(1, 3))
def test_columns_are_values(segment: Segment, repeats: int) -> None:
    points = Points([segment] * repeats, Tables())
    each = tasks_in(segment)
    tasks = list(range(each * repeats))
    expected = [direct(segment, task % each) for task in tasks]
    assert [points.values(task) for task in tasks] == expected
    width = len(expected[0])
    assert [[points.value(task, place) for place in range(width)] for task in tasks] == expected
    for order in (tasks, tasks[::-1], tasks[1::2] or tasks):
        columns = points.columns(order)
        assert len(columns) == width
        rows = [list(row) for row in zip(*columns, strict=True)] if width else [[]] * len(order)
        assert rows == [expected[task] for task in order]


def test_what_is_no_task_has_no_values() -> None:
    points = Points([Segment(space=Axis("x", Range("0", "1", 3)))], None)
    assert points.values(-1) == points.values(3) == []
    assert points.value(3, 0) is None


def test_rows_need_somebody_who_keeps_them() -> None:
    rows = Rows(digest="d", form="csv", names=("r",), count=1)
    with pytest.raises(AssertionError):
        Points([Segment(rows=rows)], None)
