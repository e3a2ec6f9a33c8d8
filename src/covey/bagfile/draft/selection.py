"""A few tasks of a bag, to try them first: the first ones, or those whose parameters meet
comparisons, which are those of `covey results --where`.

A comparison is about one parameter. So parameters that are combined are looked at one by one, and
stay combined: it does not matter how many tasks they make. A range that is cut stays a range; what
is taken otherwise is listed. There is an end to what is looked at, and to what is listed.
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

MOST_LOOKED = 1_000_000  # values of a parameter, or rows of a file
MOST_LISTED = 100_000  # tasks, values of a parameter or rows

T = TypeVar("T")
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


def select(draft: Draft, first: int | None, where: Sequence[str], dashes: str = "") -> Draft:
    """The same bag with fewer tasks, in the same order. Raises InvalidBag if there are none, or
    if too much would have to be looked at or listed; `dashes` are before the names of options."""
    try:
        return _select(draft, first, where)
    except _Told as error:
        raise InvalidBag(f"{dashes}{error}") from None


class _Told(InvalidBag):
    """What is wrong with one of the two options, whose name comes first."""


def _select(draft: Draft, first: int | None, where: Sequence[str]) -> Draft:
    if first is None and not where:
        return draft
    if first is not None and first < 1:
        raise _Told(f"first: take 1 task or more, not {first}")
    tests = _tests(draft, where)
    space = _filtered(draft.spec.space, tests, first)
    file = draft.rows
    if file is None:
        total, more, rows = size(draft.spec.space), False, 1
    elif first is None and not _of_rows(draft, tests):
        rows = count_rows(file, LARGEST_BAG)
        total, more = rows * size(draft.spec.space), False
    else:  # rows are taken out of the file
        found = count_rows(file, MOST_LOOKED + 1)
        total, more = min(found, MOST_LOOKED) * size(draft.spec.space), found > MOST_LOOKED
        space = Product((_listed_rows(draft, file, tests, first, size(space)), space))
        file, rows = None, 1
    if first is not None and size(space) > first:
        space = _first(space, first)
    taken = Taken(rows * size(space), total, more)
    if not taken.tasks:
        raise _Told(f"where: none of {taken.all_words} meets {' && '.join(where)}")
    return draft._replace(spec=replace(draft.spec, space=space), rows=file, taken=taken)


# -- what is compared -------------------------------------------------------------------------


def _tests(draft: Draft, where: Sequence[str]) -> list[Comparison]:
    """Raises InvalidBag for a name that is no parameter, and for what is no comparison."""
    if where and not draft.names:
        raise _Told("where: the bag has no parameters, and one task")
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
        raise _Told(f"where: {error}") from None


def _table(draft: Draft, readings: Sequence[str]) -> list[Column]:
    return [
        Column(name, ColumnKind.PARAMETER, name, place, reading)
        for place, (name, reading) in enumerate(zip(draft.names, readings, strict=True))
    ]


def _row_names(draft: Draft) -> tuple[str, ...]:
    return draft.names[: len(draft.names) - len(names(draft.spec.space))]


def _of_rows(draft: Draft, tests: Sequence[Comparison]) -> bool:
    """Whether some of them are about columns of the file."""
    return any(one.column.place < len(_row_names(draft)) for one in tests)


def _meets(tests: Sequence[Comparison], named: Sequence[str]) -> Callable[[Sequence[Scalar]], bool]:
    """A function that says whether values of these names meet all tests."""
    placed = [(one, named.index(one.column.name)) for one in tests]

    def meets(values: Sequence[Scalar]) -> bool:
        return all(
            holds(one, read(values[place], one.column.reading), values[place])
            for one, place in placed
        )

    return meets


# -- what is taken ----------------------------------------------------------------------------


def _filtered(space: Space, tests: Sequence[Comparison], first: int | None) -> Space:
    """The points that meet the tests; with `first`, at least so many of them, if there are."""
    if isinstance(space, Product):
        return Product(tuple(_filtered(part, tests, first) for part in space.parts))
    named = names(space)
    own = [one for one in tests if one.column.name in named]
    if not own:
        return space
    low, high = 0, size(space)
    if isinstance(space, Axis) and isinstance(space.values, Range):
        low, high = _bounds(space, own)
        if all(one.op in _MIRRORED for one in own):
            return Axis(space.name, _cut(space.values, low, high))
    point = indexer(space)
    points = (point(index) for index in range(low, high))
    what = f"the values of {', '.join(named)}"
    return _listed(named, _taken(points, _meets(own, named), first, what))


def _bounds(axis: Axis, tests: Sequence[Comparison]) -> tuple[int, int]:
    """Outside of these places in a range of numbers, no value meets the tests."""
    assert isinstance(axis.values, Range)
    sign = -1 if Decimal(axis.values.step) < 0 else 1
    point = indexer(axis)

    def value(index: int) -> Number:
        found = point(index)[0]
        assert not isinstance(found, str)
        return sign * found

    places = range(axis.values.count)
    low, high = 0, len(places)
    for op, number in (limit for test in tests for limit in _limits(test)):
        if number is None:  # text, which no number is compared with
            return 0, 0
        side = op if sign > 0 else _MIRRORED[op]
        find = bisect_left if side in ("<", ">=") else bisect_right
        place = find(places, sign * number, key=value)
        low, high = (low, min(high, place)) if side in ("<", "<=") else (max(low, place), high)
    return low, max(low, high)


def _limits(test: Comparison) -> list[tuple[str, Number | None]]:
    """Between which numbers a value must lie to meet the test."""
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
    """Rows of the file, each of which is `inner` tasks: those of the first tasks, or all."""
    named = _row_names(draft)
    own = [one for one in tests if one.column.name in named]
    wanted = None if first is None else -(-first // inner) if inner else 0
    found = _taken(read_rows(file), _meets(own, named), wanted, f"rows of {file.told}")
    return _listed(named, found)


def _taken(
    found: Iterable[T], meets: Callable[[T], bool], wanted: int | None, what: str
) -> list[T]:
    """The first that are wanted, or all. Raises InvalidBag if there is no end to that."""
    taken: list[T] = []
    for looked, one in enumerate(found):
        if wanted is not None and len(taken) >= wanted:
            break
        if looked >= MOST_LOOKED:
            raise _Told(f"where: {what} are more than {MOST_LOOKED:,}, and no more are looked at")
        if meets(one):
            taken.append(one)
            _check_listed("where", len(taken))
    return taken


def _check_listed(option: str, count: int) -> None:
    if count > MOST_LISTED:
        raise _Told(
            f"{option}: more than {MOST_LISTED:,} tasks, or values of a parameter, cannot be taken "
            "out of the others"
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
