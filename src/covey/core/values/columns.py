"""Columns of tables that people ask about: their names, and what is in them."""

from enum import Enum
from typing import Any

import msgspec
from msgspec import Struct

from covey.core.errors import InvalidQuery
from covey.core.values.scalars import Reading
from covey.core.values.suggestions import LONGEST, nearest

DONE = "done"
FAILED = "failed"
# What a person reads above these columns: their cells have units.
HEADINGS = {"time": "seconds", "cpu": "cpu_seconds", "memory": "memory_kb"}


class ColumnKind(Enum):
    OWN = 1
    PARAMETER = 2
    REPORTED = 3


class Column(Struct, frozen=True):
    """`key` says what is in it: our own name, the parameter's, or the reported value's."""

    name: str
    kind: ColumnKind
    key: str
    place: int = 0  # among the parameters
    reading: str = Reading.TYPED  # how its values are read


def find(table: list[Column], name: str) -> Column:
    """By its name, or by the heading that a table on the screen has for it. Raises InvalidQuery,
    with a suggestion."""
    for wanted in (name, HEADINGS.get(name, "")):
        for column in table:
            if column.name == wanted:
                return column
    names = [column.name for column in table]
    near = nearest(name, names, least=0.5)
    hint = f"; did you mean '{near}'?" if near else "."
    what = "parameter" if all(one.kind is ColumnKind.PARAMETER for one in table) else "column"
    listed = f"{what.capitalize()}s: {', '.join(names)}"
    raise InvalidQuery(f"there is no {what} '{name[:LONGEST]}'{hint} {listed}")


def scalar(value: Any) -> str | int | float | None:
    """A reported value as it is compared, sorted and written in a cell: true and false as text,
    what has parts as JSON."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | dict):
        return msgspec.json.encode(value).decode()
    assert value is None or isinstance(value, str | int | float)
    return value
