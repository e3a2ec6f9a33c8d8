"""From task numbers to values, over all segments of a bag.

Values of a segment without rows are computed. Rows of files are looked up among those that were
loaded for the open chunks: core does no I/O, so the rows of a chunk come as an event before its
tasks go out.
"""

from bisect import bisect_right

from msgspec import Struct

from covey.core.errors import InvalidBag
from covey.core.record.model import Rows, Segment
from covey.core.values.scalars import Reading, is_text_column
from covey.core.values.space import (
    LARGEST_BAG,
    TOO_MANY_TASKS,
    Axis,
    Point,
    Range,
    Scalar,
    Space,
    check,
    indexer,
    names,
    size,
    width,
)

MOST_NAMES = 10_000  # of parameters; files of rows may have many columns


class NumberRange(Struct, frozen=True):
    """Tasks first … stop-1; `inner` of them share a row, if there are rows."""

    first: int
    stop: int
    inner: int
    rows: Rows | None
    point: Point

    def row_of(self, task: int) -> int:
        return (task - self.first) // self.inner


class Loaded(Struct, frozen=True):
    """Rows of a chunk, from row `first` on."""

    first: int
    rows: list[list[Scalar]]


class Numbering:
    def __init__(self) -> None:
        self.readings: list[str] = []  # by parameter: how its values are read
        self.parts: list[NumberRange] = []
        self.loaded: dict[int, Loaded] = {}  # by the first task of the chunk
        self.width = 1  # the most characters, about, that the values of one task take
        self.plain: Point | None = (
            None  # the values of all tasks, if there is one part without rows
        )
        self._firsts: list[int] = []
        self._released: dict[int, int] = {}  # first of a part -> tasks whose values are not needed

    @classmethod
    def unknown(cls, total: int) -> "Numbering":
        """A numbering of tasks whose values cannot be computed."""
        numbering = cls()
        if total:
            numbering.parts.append(NumberRange(0, total, 1, None, _forgotten))
            numbering._firsts.append(0)
        return numbering

    @property
    def total(self) -> int:
        return self.parts[-1].stop if self.parts else 0

    def append(self, segment: Segment) -> None:
        first, inner = self.total, size(segment.space)
        stop = first + tasks_in(segment)
        self.parts.append(NumberRange(first, stop, inner, segment.rows, indexer(segment.space)))
        self._firsts.append(first)
        self.width = max(self.width, width_of(segment))
        computed = len(self.parts) == 1 and segment.rows is None
        self.plain = self.parts[0].point if computed else None

    def release(self, first: int, stop: int) -> None:
        """No task from `first` to before `stop` goes out again. Forget the values of a part when
        this holds for all of its tasks: a bag to which tasks are appended for weeks keeps only the
        parts in use."""
        place = bisect_right(self._firsts, first) - 1
        part = self.parts[place]
        count = self._released.pop(part.first, 0) + stop - first
        if count < part.stop - part.first:
            self._released[part.first] = count
            return
        low, high = place, place + 1
        if low > 0 and self.parts[low - 1].point is _forgotten:
            low -= 1
        if high < len(self.parts) and self.parts[high].point is _forgotten:
            high += 1
        whole = NumberRange(self.parts[low].first, self.parts[high - 1].stop, 1, None, _forgotten)
        self.parts[low:high] = [whole]
        self._firsts[low:high] = [whole.first]
        self.plain = None

    def part(self, task: int) -> NumberRange:
        return self.parts[bisect_right(self._firsts, task) - 1]

    def values(self, task: int, chunk: int) -> list[Scalar]:
        """The values of a task in that chunk, whose rows must have been loaded."""
        part = self.part(task)
        if part.rows is None:
            return part.point(task - part.first)
        local = task - part.first
        loaded = self.loaded[chunk]
        row = loaded.rows[local // part.inner - loaded.first]
        return row + part.point(local % part.inner)


def _forgotten(index: int) -> list[Scalar]:
    raise KeyError(index)


def tasks_in(segment: Segment) -> int:
    rows = 1 if segment.rows is None else segment.rows.count
    return rows * size(segment.space)


def width_of(segment: Segment) -> int:
    """How many characters the values of one of its tasks have, about and at most."""
    return (segment.rows.row_bytes if segment.rows is not None else 0) + width(segment.space)


def names_in(segment: Segment) -> list[str]:
    return [*(segment.rows.names if segment.rows is not None else ()), *names(segment.space)]


def readings_in(segment: Segment) -> list[str]:
    """How each parameter's values are read, in the order of their names. The first segment of a bag
    decides for all of it, so that a column never changes."""
    return [*_readings_of_rows(segment.rows), *_readings_of(segment.space)]


def _readings_of_rows(rows: Rows | None) -> list[str]:
    if rows is None:
        return []
    return [Reading.TEXT if name in rows.text_names else Reading.VALUE for name in rows.names]


def _readings_of(space: Space) -> list[str]:
    if not isinstance(space, Axis):
        return [reading for part in space.parts for reading in _readings_of(part)]
    values = space.values
    is_text = not isinstance(values, Range) and is_text_column(values.items)
    return [Reading.TEXT if is_text else Reading.VALUE]


def check_segment(segment: Segment, *, may_be_empty: bool = False, before: int = 0) -> None:
    """Raise InvalidBag unless every task of it can be computed."""
    check(segment.space, may_be_empty=may_be_empty)
    if len(names_in(segment)) > MOST_NAMES:
        raise InvalidBag(f"a bag has at most {MOST_NAMES:,} parameters")
    seen: dict[str, None] = {}
    for name in names_in(segment):
        if name in seen:
            raise InvalidBag(f"parameter {name!r} is given twice")
        seen[name] = None
    rows = segment.rows
    if rows is not None and rows.count < 1:
        raise InvalidBag("the file of parameters has no rows")
    if rows is not None and rows.count > LARGEST_BAG:
        raise InvalidBag(TOO_MANY_TASKS)
    total = before + tasks_in(segment)
    if total > LARGEST_BAG:
        raise InvalidBag(TOO_MANY_TASKS)
