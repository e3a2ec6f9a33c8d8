"""A few tasks of a bag, to try them first: the first ones, or those whose parameters meet
comparisons, as in `covey results --where`.

A comparison is about one parameter. So each parameter is filtered alone, and the remaining values
are combined again: it does not matter how many tasks there are. A range that is cut at its ends
stays a range; other selections become lists. Both reading and listing are limited.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from typing import TypeVar

from msgspec.structs import replace

from covey.bagfile.draft.draft import Draft, Taken
from covey.bagfile.draft.rowsfile import count_rows, read_rows, text_columns
from covey.bagfile.format.parts import RowsFile
from covey.core.errors import InvalidBag, InvalidQuery
from covey.core.record.model import Segment
from covey.core.record.task_numbers import readings_in
from covey.core.values.columns import Column, ColumnKind
from covey.core.values.comparisons import Comparison, Number, holds, understand
from covey.core.values.scalars import Reading, read
from covey.core.values.space import (
    LARGEST_BAG,
    Axis,
    Product,
    Range,
    Scalar,
    Space,
    Values,
    Zip,
    indexer,
    names,
    size,
)

MOST_LOOKED = 1_000_000  # values of a parameter, or rows of a file, that are read
MOST_LISTED = 100_000  # tasks, values of a parameter or rows that are selected

T = TypeVar("T")
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


def select(draft: Draft, first: int | None, where: Sequence[str], dashes: str = "") -> Draft:
    """The same bag with fewer tasks, in the same order. Raises InvalidBag if no task is left, or if
    too much would have to be read or listed; `dashes` go before the names of options."""
    try:
        return _select(draft, first, where)
    except _BadOption as error:
        raise InvalidBag(f"{dashes}{error}") from None


class _BadOption(InvalidBag):
    """The message begins with the name of the option, `first` or `where`."""


def _select(draft: Draft, first: int | None, where: Sequence[str]) -> Draft:
    if first is None and not where:
        return draft
    if first is not None and first < 1:
        raise _BadOption(f"first: expected 1 task or more, not {first}")
    tests = _tests(draft, where)
    space = _filtered(draft.spec.space, tests, first)
    file = draft.rows
    if file is None:
        total, more, rows = size(draft.spec.space), False, 1
    elif first is None and not _of_rows(draft, tests):
        rows = count_rows(file, LARGEST_BAG)
        total, more = rows * size(draft.spec.space), False
    else:  # rows are taken out of the file
        count = count_rows(file, MOST_LOOKED + 1)
        total, more = min(count, MOST_LOOKED) * size(draft.spec.space), count > MOST_LOOKED
        space = Product((_listed_rows(draft, file, tests, first, size(space)), space))
        file, rows = None, 1
    if first is not None and size(space) > first:
        space = _first(space, first)
    taken = Taken(rows * size(space), total, more)
    if not taken.tasks:
        raise _BadOption(f"where: none of {taken.all_words} meets {' && '.join(where)}")
    return draft._replace(spec=replace(draft.spec, space=space), rows=file, taken=taken)


# -- comparisons ------------------------------------------------------------------------------


def _tests(draft: Draft, where: Sequence[str]) -> list[Comparison]:
    """Raises InvalidBag for an unknown parameter, and for a text that is not a comparison."""
    if where and not draft.names:
        raise _BadOption("where: the bag has no parameters to compare; it is a single task")
    own = readings_in(Segment(space=draft.spec.space))
    count = len(draft.names) - len(own)
    plain = [*([Reading.VALUE] * count), *own]
    try:
        tests = understand(where, _table(draft, plain))
        if draft.rows is None or not _of_rows(draft, tests):
            return tests
        texts = text_columns(draft.rows)
        readings = [Reading.TEXT if place in texts else each for place, each in enumerate(plain)]
        return understand(where, _table(draft, readings))
    except InvalidQuery as error:
        raise _BadOption(f"where: {error}") from None


def _table(draft: Draft, readings: Sequence[str]) -> list[Column]:
    return [
        Column(name, ColumnKind.PARAMETER, name, place, reading)
        for place, (name, reading) in enumerate(zip(draft.names, readings, strict=True))
    ]


def _row_names(draft: Draft) -> tuple[str, ...]:
    return draft.names[: len(draft.names) - len(names(draft.spec.space))]


def _of_rows(draft: Draft, tests: Sequence[Comparison]) -> bool:
    """Whether some of the comparisons are about columns of the file."""
    return any(test.column.place < len(_row_names(draft)) for test in tests)


def _meets(tests: Sequence[Comparison], named: Sequence[str]) -> Callable[[Sequence[Scalar]], bool]:
    """A function that says whether values of these names meet all tests."""
    placed = [(test, named.index(test.column.name)) for test in tests]

    def meets(values: Sequence[Scalar]) -> bool:
        return all(
            holds(test, read(values[place], test.column.reading), values[place])
            for test, place in placed
        )

    return meets


# -- selection --------------------------------------------------------------------------------


def _filtered(space: Space, tests: Sequence[Comparison], first: int | None) -> Space:
    """The points that meet the tests; with `first`, at least that many of them are enough."""
    if isinstance(space, Product):
        return Product(tuple(_filtered(part, tests, first) for part in space.parts))
    named = names(space)
    own = [test for test in tests if test.column.name in named]
    if not own:
        return space
    low, high = 0, size(space)
    if isinstance(space, Axis) and isinstance(space.values, Range):
        low, high = _bounds(space, own)
        if all(test.op in _MIRRORED for test in own):
            return Axis(space.name, _cut(space.values, low, high))
    point = indexer(space)
    points = (point(index) for index in range(low, high))
    what = f"values of {', '.join(named)}"
    return _listed(named, _taken(points, _meets(own, named), first, what))


def _bounds(axis: Axis, tests: Sequence[Comparison]) -> tuple[int, int]:
    """Outside of these places in a range of numbers, no value meets the tests."""
    assert isinstance(axis.values, Range)
    sign = -1 if Decimal(axis.values.step) < 0 else 1
    point = indexer(axis)

    def value(index: int) -> Number:
        number = point(index)[0]
        assert not isinstance(number, str)
        return sign * number

    places = range(axis.values.count)
    low, high = 0, len(places)
    for op, number in (limit for test in tests for limit in _limits(test)):
        if number is None:  # a text: no number equals it
            return 0, 0
        side = op if sign > 0 else _MIRRORED[op]
        find = bisect_left if side in ("<", ">=") else bisect_right
        place = find(places, sign * number, key=value)
        low, high = (low, min(high, place)) if side in ("<", "<=") else (max(low, place), high)
    return low, max(low, high)


def _limits(test: Comparison) -> list[tuple[str, Number | None]]:
    """Comparisons with numbers that a value must meet to pass the test."""
    if test.op in _MIRRORED:
        return [(test.op, test.literals[0].number)]
    if test.op != "=":
        return []
    if not test.numbers:
        return [("=", None)]
    return [(">=", min(test.numbers)), ("<=", max(test.numbers))]


def _cut(values: Range, low: int, high: int) -> Range:
    start = values.start if not low else str(Decimal(values.start) + low * Decimal(values.step))
    return Range(start, values.step, high - low)


def _listed_rows(
    draft: Draft, file: RowsFile, tests: Sequence[Comparison], first: int | None, inner: int
) -> Space:
    """Rows of the file that meet the tests. Each row is `inner` tasks; `first` tasks are enough."""
    named = _row_names(draft)
    own = [test for test in tests if test.column.name in named]
    wanted = None if first is None else -(-first // inner) if inner else 0
    rows = _taken(read_rows(file), _meets(own, named), wanted, f"rows in {file.written}")
    return _listed(named, rows)


def _taken(
    values: Iterable[T], meets: Callable[[T], bool], wanted: int | None, what: str
) -> list[T]:
    """The first `wanted` values that meet the tests, or all. Raises InvalidBag for too many."""
    taken: list[T] = []
    for looked, value in enumerate(values):
        if wanted is not None and len(taken) >= wanted:
            break
        if looked >= MOST_LOOKED:
            raise _BadOption(f"where: there are more than {MOST_LOOKED:,} {what}; no more are read")
        if meets(value):
            taken.append(value)
            _check_listed("where", len(taken))
    return taken


def _check_listed(option: str, count: int) -> None:
    if count > MOST_LISTED:
        raise _BadOption(
            f"{option}: this selects more than {MOST_LISTED:,} tasks, or values of a parameter; "
            "select fewer"
        )


def _first(space: Space, count: int) -> Space:
    while isinstance(space, Product) and len(space.parts) == 1:
        space = space.parts[0]
    if isinstance(space, Axis) and isinstance(space.values, Range):
        return Axis(space.name, _cut(space.values, 0, count))
    _check_listed("first", count)
    point = indexer(space)
    return _listed(names(space), [point(index) for index in range(count)])


def _listed(named: Sequence[str], points: Sequence[Sequence[Scalar]]) -> Space:
    columns = list(zip(*points, strict=True)) or [()] * len(named)
    axes = [Axis(name, Values(column)) for name, column in zip(named, columns, strict=True)]
    return axes[0] if len(axes) == 1 else Zip(tuple(axes))
