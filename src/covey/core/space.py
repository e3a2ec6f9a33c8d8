"""Parameter spaces: many tasks described in a few bytes, each computed when it is needed.

A space never lists its points. `size` is arithmetic, and point *i* is found by division, so ten
million tasks cost as much as ten. In a product the first axis varies slowest, as in nested loops
written in the same order.
"""

from collections.abc import Callable
from decimal import Decimal
from math import prod
from typing import TypeAlias

from msgspec import Struct

from covey.core.errors import InvalidBag

Scalar: TypeAlias = str | int | float

LARGEST_BAG = 2**32 - 1  # task numbers live in 32-bit bitmaps
MOST_DEPTH = 20  # of products in zips in products …


class Range(Struct, frozen=True, tag="range"):
    """`count` numbers from `start` by `step`, both decimal text so that 0.1 stays 0.1."""

    start: str
    step: str
    count: int


class Values(Struct, frozen=True, tag="values"):
    items: tuple[Scalar, ...]


class Axis(Struct, frozen=True, tag="axis"):
    name: str
    values: Range | Values


class Product(Struct, frozen=True, tag="product"):
    parts: tuple["Space", ...]


class Zip(Struct, frozen=True, tag="zip"):
    parts: tuple["Space", ...]


Space: TypeAlias = Axis | Product | Zip

ONE_TASK = Product(())


def size(space: Space) -> int:
    match space:
        case Axis(values=values):
            return values.count if isinstance(values, Range) else len(values.items)
        case Product(parts=parts):
            return prod(size(part) for part in parts)
        case Zip(parts=parts):
            return min((size(part) for part in parts), default=0)


def names(space: Space) -> list[str]:
    if isinstance(space, Axis):
        return [space.name]
    return [name for part in space.parts for name in names(part)]


def check(space: Space, *, may_be_empty: bool = False) -> None:
    """Raise InvalidBag unless every point of the space can be computed."""
    _check_depth(space)
    _check_part(space)
    seen: dict[str, None] = {}
    for name in names(space):
        if not (name.isidentifier() and name.isascii()):
            raise InvalidBag(f"parameter name {name!r} must look like a variable name, in ASCII")
        if name in seen:
            raise InvalidBag(f"parameter {name!r} is given twice")
        seen[name] = None
    total = size(space)
    if total < 1 and not may_be_empty:
        raise InvalidBag("the parameters describe no task at all")
    if total > LARGEST_BAG:
        raise InvalidBag(f"{total:,} tasks are more than a bag can hold ({LARGEST_BAG:,})")


def _check_depth(space: Space) -> None:
    """Before anything else: all the rest is recursive."""
    level = [space]
    for _ in range(MOST_DEPTH):
        level = [part for one in level if not isinstance(one, Axis) for part in one.parts]
        if not level:
            return
    raise InvalidBag(f"parameters are nested more than {MOST_DEPTH} levels deep")


def _check_part(space: Space) -> None:
    match space:
        case Axis(name=name, values=Range() as values):
            try:
                finite = Decimal(values.start).is_finite() and Decimal(values.step).is_finite()
            except ArithmeticError:
                finite = False
            if not finite or values.count < 0:
                raise InvalidBag(
                    f"parameter {name!r}: {values.start}..(step {values.step}) "
                    "is not a range of numbers"
                )
        case Zip(parts=parts):
            sizes = [size(part) for part in parts]
            if len(set(sizes)) > 1:
                told = ", ".join(
                    f"{'×'.join(names(p)) or '()'} has {n}"
                    for p, n in zip(parts, sizes, strict=True)
                )
                raise InvalidBag(f"zipped parameters must have equal lengths: {told}")
            for part in parts:
                _check_part(part)
        case Product(parts=parts):
            for part in parts:
                _check_part(part)
        case Axis():
            pass


Point: TypeAlias = Callable[[int], list[Scalar]]


def indexer(space: Space) -> Point:
    """A function from task number to the task's values, in the order of `names`."""
    match space:
        case Axis(values=values):
            if isinstance(values, Range):
                number = _numbers(values)
                return lambda index: [number(index)]
            items = values.items
            return lambda index: [items[index]]
        case Zip(parts=parts):
            points = [indexer(part) for part in parts]
            return lambda index: [value for point in points for value in point(index)]
        case Product(parts=parts):
            return _product(parts)


def _product(parts: tuple[Space, ...]) -> Point:
    radices = [(indexer(part), size(part)) for part in parts]
    if len(radices) == 1:
        return radices[0][0]
    backwards = radices[::-1]

    def point(index: int) -> list[Scalar]:
        reversed_values: list[list[Scalar]] = []
        for one, radix in backwards:
            index, digit = divmod(index, radix)
            reversed_values.append(one(digit))
        return [value for values in reversed(reversed_values) for value in values]

    return point


def _numbers(values: Range) -> Callable[[int], Scalar]:
    start, step = Decimal(values.start), Decimal(values.step)
    if start == int(start) and step == int(step):
        first, stride = int(start), int(step)
        return lambda index: first + index * stride
    return lambda index: float(start + index * step)
