"""The parameters of a bag's tasks, in all its segments, for readers of results.

The values of one task are computed when they are needed. Those of many tasks are computed column by
column: a parameter of a space repeats with a fixed stride, so its column needs one division per
task. A `PointSource` has the rows of files.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from itertools import chain, pairwise
from typing import Protocol

from msgspec import Struct

from covey.core.record.model import Rows, Segment
from covey.core.record.task_numbers import tasks_in, width_of
from covey.core.values.space import (
    ONE_TASK,
    Axis,
    Point,
    Product,
    Scalar,
    Space,
    Values,
    indexer,
    size,
)

MOST_LISTED = 1000  # values of one parameter that are computed in advance


class PointSource(Protocol):
    """Reads rows of files."""

    def point(self, rows: Rows) -> Callable[[int], list[Scalar]]:
        """A function that returns the values of a row by its number."""
        ...


class Leaf(Struct, frozen=True):
    """A parameter of a space. Task i has its value number i // stride % count."""

    stride: int
    count: int
    value: Callable[[int], Scalar]

    def values(self) -> list[Scalar]:
        return [self.value(index) for index in range(self.count)]


class _Part(Struct, frozen=True):
    first: int
    stop: int
    inner: int  # tasks that share a row
    row: Callable[[int], list[Scalar]] | None
    width: int  # values in a row
    point: Point
    leaves: list[Leaf]


class Points:
    def __init__(self, segments: Sequence[Segment], tables: PointSource | None) -> None:
        self._parts: list[_Part] = []
        for segment in segments:
            self._append(segment, tables)
        self._firsts = [part.first for part in self._parts]
        # About the most characters that a task's values have; and those of all listed values.
        self.width = max((width_of(segment) for segment in segments), default=0)
        self.listed = sum(listed(segment.space) for segment in segments)

    def values(self, task: int) -> list[Scalar]:
        """In the order of the bag's names; empty if the bag has no such task."""
        if not 0 <= task < self._parts[-1].stop:
            return []
        part = self._parts[bisect_right(self._firsts, task) - 1]
        local = task - part.first
        if part.row is None:
            return part.point(local)
        return [*part.row(local // part.inner), *part.point(local % part.inner)]

    def value(self, task: int, place: int) -> Scalar | None:
        """The value at this place; None if the bag has no such task."""
        if not 0 <= task < self._parts[-1].stop:
            return None
        part = self._parts[bisect_right(self._firsts, task) - 1]
        local = task - part.first
        if part.row is not None and place < part.width:
            return part.row(local // part.inner)[place]
        leaf = part.leaves[place - part.width]
        return leaf.value(local // leaf.stride % leaf.count)

    def leaf(self, place: int) -> Leaf | None:
        """The rule for a parameter, if it has few values and one rule in the whole bag; else
        None."""
        if len(self._parts) != 1 or place < self._parts[0].width:
            return None
        leaf = self._parts[0].leaves[place - self._parts[0].width]
        return leaf if leaf.count <= MOST_LISTED else None

    def columns(self, tasks: Sequence[int]) -> list[Sequence[Scalar]]:
        """One sequence of values per name, for tasks in any order."""
        low, high = min(tasks), max(tasks)
        inside = [part for part in self._parts if part.first <= high and low < part.stop]
        if len(inside) == 1:
            return _columns(inside[0], tasks)
        if any(a > b for a, b in pairwise(tasks)):
            rows = [self.values(task) for task in tasks]
            return [list(column) for column in zip(*rows, strict=True)]
        cuts = [bisect_left(tasks, part.stop) for part in inside]
        pieces = [
            _columns(part, tasks[start:stop])
            for part, start, stop in zip(inside, [0, *cuts], cuts, strict=False)
            if start < stop
        ]
        return [list(chain.from_iterable(column)) for column in zip(*pieces, strict=True)]

    def _append(self, segment: Segment, tables: PointSource | None) -> None:
        first = self._parts[-1].stop if self._parts else 0
        rows = segment.rows
        if rows is not None and tables is None:
            raise AssertionError("a bag has rows, but there is no source of rows")
        self._parts.append(
            _Part(
                first=first,
                stop=first + tasks_in(segment),
                inner=size(segment.space),
                row=tables.point(rows) if rows is not None and tables is not None else None,
                width=0 if rows is None else len(rows.names),
                point=indexer(segment.space),
                leaves=_leaves(segment.space, 1),
            )
        )


def listed(space: Space) -> int:
    """About how many characters the listed values of a space have."""
    if not isinstance(space, Axis):
        return sum(map(listed, space.parts))
    if not isinstance(space.values, Values):
        return 0
    return sum(len(value) if isinstance(value, str) else 8 for value in space.values.items)


def _leaves(space: Space, stride: int) -> list[Leaf]:
    if isinstance(space, Axis):
        return [Leaf(stride, size(space), _getter(space))]
    by_part: list[list[Leaf]] = []
    for part in reversed(space.parts):
        by_part.append(_leaves(part, stride))
        if isinstance(space, Product):
            stride *= size(part)
    return [leaf for leaves in reversed(by_part) for leaf in leaves]


def _getter(axis: Axis) -> Callable[[int], Scalar]:
    if isinstance(axis.values, Values):
        return axis.values.items.__getitem__
    point = indexer(axis)
    if size(axis) <= MOST_LISTED:
        return [point(index)[0] for index in range(size(axis))].__getitem__
    return lambda index: point(index)[0]


def _columns(part: _Part, tasks: Sequence[int]) -> list[Sequence[Scalar]]:
    columns: list[Sequence[Scalar]] = []
    first, inner = part.first, part.inner
    if part.row is not None:
        row = part.row
        rows = [row((task - first) // inner) for task in tasks]
        columns += [[values[place] for values in rows] for place in range(part.width)]
    for leaf in part.leaves:
        stride, count, value = leaf.stride, leaf.count, leaf.value
        columns.append([value((task - first) // stride % count) for task in tasks])
    return columns


NO_PARAMETERS = Points([Segment(space=ONE_TASK)], None)  # for any task
