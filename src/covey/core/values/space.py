"""Parameter spaces: many tasks described in a few bytes, each computed when it is needed.

A space never lists its points. `size` is arithmetic, and point *i* is found by division, so ten
million tasks cost as much as ten. In a product the first axis varies slowest, as in nested loops
written in the same order.
"""

import re
import sys
from collections.abc import Callable
from decimal import Decimal
from typing import TypeAlias

from msgspec import Struct

from covey.core.errors import InvalidBag

Scalar: TypeAlias = str | int | float

LARGEST_BAG = 2**32 - 1  # task numbers live in 32-bit bitmaps
MOST_DEPTH = 20  # of products in zips in products …
MOST_PARTS = 1000  # axes, products and zips in one space: each task's values are made from all
MOST_DIGITS = 60  # characters of a number in a range
MOST_EXPONENT = 400  # of a number in a range, as it is written
SMALLEST_NUMBER = -(2**63)
LARGEST_NUMBER = 2**63 - 1  # of whole numbers: what the record, and most programs, can hold
LONGEST_NAME = 200  # characters of a parameter's name
SHOWN_PARTS = 10  # of a zip, in a message
LONGEST_SHOWN = 100  # characters of a submission that a message repeats

TOO_MANY_TASKS = f"a bag can have at most {LARGEST_BAG:,} tasks"

_LARGEST_FLOAT = sys.float_info.max
_LARGEST_REAL = Decimal(_LARGEST_FLOAT)
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE]([+-]?[0-9]{1,4}))?")


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
    """The number of points; one more than the largest bag has if there are more: the exact number
    may have thousands of digits."""
    match space:
        case Axis(values=values):
            return values.count if isinstance(values, Range) else len(values.items)
        case Product(parts=parts):
            total = 1
            for part in parts:
                total = min(total * size(part), LARGEST_BAG + 1)
            return total
        case Zip(parts=parts):
            return min((size(part) for part in parts), default=0)


def width(space: Space) -> int:
    """The most characters, about, that the values of one point have: a long value of the bag is
    repeated in each of its tasks."""
    if not isinstance(space, Axis):
        return sum(map(width, space.parts))
    if isinstance(space.values, Range):
        return MOST_DIGITS
    texts = (len(value) for value in space.values.items if isinstance(value, str))
    return max(MOST_DIGITS, max(texts, default=0))


def names(space: Space) -> list[str]:
    if isinstance(space, Axis):
        return [space.name]
    return [name for part in space.parts for name in names(part)]


def check(space: Space, *, may_be_empty: bool = False) -> None:
    """Raise InvalidBag unless every point of the space can be computed."""
    _check_shape(space)
    _check_part(space)
    seen: dict[str, None] = {}
    for name in names(space):
        check_name(name)
        if name in seen:
            raise InvalidBag(f"parameter {name!r} is given twice")
        seen[name] = None
    total = size(space)
    if total < 1 and not may_be_empty:
        raise InvalidBag("the parameters describe no task")
    if total > LARGEST_BAG:
        raise InvalidBag(TOO_MANY_TASKS)


def check_name(name: str) -> None:
    if not (name.isidentifier() and name.isascii()) or len(name) > LONGEST_NAME:
        raise InvalidBag(
            f"parameter name {shown(name)!r} must look like a variable name, in ASCII, with at "
            f"most {LONGEST_NAME} characters"
        )


def _check_shape(space: Space) -> None:
    """Check size and depth first: all other functions are recursive, or look at every part."""
    level, count = [space], 1
    for _ in range(MOST_DEPTH):
        level = [part for one in level if not isinstance(one, Axis) for part in one.parts]
        count += len(level)
        if count > MOST_PARTS:
            raise InvalidBag(f"parameters have more than {MOST_PARTS:,} parts")
        if not level:
            return
    raise InvalidBag(f"parameters are nested more than {MOST_DEPTH} levels deep")


def _check_part(space: Space) -> None:
    match space:
        case Axis(name=name, values=Range() as values):
            _check_range(name, values)
        case Axis(name=name, values=Values(items)):
            for value in items:
                if value.__class__ is not str or not value.isascii():  # most are, and may be many
                    check_scalar(name, value)
        case Zip(parts=parts):
            for part in parts:
                _check_part(part)
            sizes = [size(part) for part in parts]
            if len(set(sizes)) > 1:
                told = ", ".join(
                    f"{shown('×'.join(names(p))) or '()'} has {n:,}"
                    for p, n in zip(parts[:SHOWN_PARTS], sizes, strict=False)
                )
                raise InvalidBag(f"zipped parameters must have equal lengths: {told}")
        case Product(parts=parts):
            for part in parts:
                _check_part(part)
        case Axis():
            pass


def _check_range(name: str, values: Range) -> None:
    if not 0 <= values.count <= LARGEST_BAG:
        raise InvalidBag(
            f"parameter {shown(name)!r}: a range has 0 to {LARGEST_BAG:,} numbers, not "
            f"{_shown_number(values.count)}"
        )
    for text in (values.start, values.step):
        read = _NUMBER.fullmatch(text) if len(text) <= MOST_DIGITS else None
        if read is None or abs(int(read[4] or 0)) > MOST_EXPONENT:
            raise InvalidBag(
                f"parameter {shown(name)!r}: {shown(text)!r} is not a number: in a range write a "
                f"decimal number of at most {MOST_DIGITS} characters, with an exponent of at most "
                f"{MOST_EXPONENT}"
            )
    start, step = Decimal(values.start), Decimal(values.step)
    last = start + max(0, values.count - 1) * step
    whole = start == start.to_integral_value() and step == step.to_integral_value()
    for number in (start, last, step):
        if whole and not SMALLEST_NUMBER <= number <= LARGEST_NUMBER:
            raise InvalidBag(
                f"parameter {shown(name)!r}: {number:.6g} in its range is too large: whole numbers "
                f"have at most 64 bits"
            )
        if abs(number) > _LARGEST_REAL:
            raise InvalidBag(f"parameter {shown(name)!r}: {number:.6g} in its range is too large")


def check_scalar(name: str, value: Scalar) -> None:
    """Raise InvalidBag unless the record, pilots and policies can hold this value."""
    if isinstance(value, int) and not SMALLEST_NUMBER <= value <= LARGEST_NUMBER:
        raise InvalidBag(
            f"parameter {shown(name)!r}: {_shown_number(value)} is too large: whole numbers have "
            "at most 64 bits; write it as text, in quotes"
        )
    if isinstance(value, float) and not -_LARGEST_FLOAT <= value <= _LARGEST_FLOAT:
        raise InvalidBag(f"parameter {shown(name)!r}: {value} is not a finite number")
    if isinstance(value, str) and not is_text(value):
        raise InvalidBag(f"parameter {shown(name)!r}: {shown(value)!a} is not Unicode text")


def is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def shown(text: str) -> str:
    """The beginning of the text, for a message."""
    return text if len(text) <= LONGEST_SHOWN else text[:LONGEST_SHOWN] + "…"


def _shown_number(number: int) -> str:
    """The number, for a message. Python cannot write numbers with thousands of digits."""
    return f"{number:,}" if abs(number) < 10**30 else f"a number of {number.bit_length():,} bits"


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
