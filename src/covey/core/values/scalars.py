"""When text is a number. One rule for command lines, bag files and tables.

A value keeps its spelling: a command gets 0.10 if 0.10 was written. It is compared, sorted and
typed by the number that it spells (`by_value`): 0.10 is the number 0.1, 1e-3 is 0.001, +5 is 5.

Some columns hold names that only look like numbers. So a whole column of parameters is text if one
of its values begins like a number but is not a number (`looks_like_number`): leading zeros (007),
dates (2024-05-01), times (12:30), versions (1.2.3), sizes (10GB), hashes (3a7f). Words such as
`default` do not make a column text: its numbers are numbers, and the words are text.

The rule is the same wherever a parameter was written, also for text in quotes. Values that a task
reports are read as they are: there, text in quotes is text.
"""

import re
from collections.abc import Iterable
from enum import StrEnum

from covey.core.values.space import Scalar

_LARGEST = 2**63
_LONGEST = 400  # characters of a number
_NUMBER = re.compile(
    r"[+-]?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?", re.ASCII
)
_BEGINS_LIKE_NUMBER = re.compile(r"[+-]?\.?[0-9]", re.ASCII)


class Reading(StrEnum):
    """How the values of a column are read."""

    VALUE = "value"  # text that spells a number is that number
    TYPED = "typed"  # text is text, and a number is a number
    TEXT = "text"  # every value is text


def read(value: Scalar, reading: str) -> Scalar:
    """A value as it is compared, sorted and typed."""
    if reading == Reading.VALUE:
        return by_value(value)
    return str(value) if reading == Reading.TEXT else value


def scalar(text: str) -> Scalar:
    """The number that the text spells, if that number is written in exactly this way; else the
    text. So no spelling is changed."""
    if not text or text[0] not in "-0123456789":
        return text
    try:
        number = float(text) if "." in text or "e" in text else int(text)
    except ValueError:
        return text
    return number if abs(number) < _LARGEST and str(number) == text else text


def by_value(value: Scalar) -> Scalar:
    """The number that a text spells, else the value itself."""
    if not isinstance(value, str) or not _spells_number(value):
        return value
    if value.lstrip("+-").isdigit():
        whole = int(value)
        return whole if abs(whole) < _LARGEST else value
    number = float(value)
    return number if abs(number) != float("inf") else value


def looks_like_number(value: Scalar) -> bool:
    """Whether it begins like a number but is not a number: 007, 2024-05-01, 1.2.3."""
    if not isinstance(value, str) or _BEGINS_LIKE_NUMBER.match(value) is None:
        return False
    return not _spells_number(value)


def is_text_column(values: Iterable[Scalar]) -> bool:
    """Whether a column with these values is text, even where a value could be a number."""
    return any(map(looks_like_number, values))


def _spells_number(text: str) -> bool:
    return len(text) <= _LONGEST and _NUMBER.fullmatch(text) is not None
