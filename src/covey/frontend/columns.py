"""The columns of a bag's results, as people choose and see them.

`covey.store.results.columns` declares which they are and what is in them; here is how they look on
a screen.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import click
from msgspec import structs

from covey.core.values.columns import HEADINGS, ColumnKind
from covey.core.values.columns import Column as ResultColumn
from covey.core.values.scalars import read
from covey.core.values.suggestions import did_you_mean
from covey.frontend import formats
from covey.frontend.tables import Column
from covey.pilot.slots.outcomes import signal_name
from covey.store.results.columns import OWN, columns, own_value
from covey.wire import BagView, ResultRow


class Field(NamedTuple):
    """A column: its value in a file, and its cell in a table for people."""

    name: str
    value: Callable[[ResultRow], object]
    cell: Callable[[ResultRow], str]
    right: bool = False  # numbers align on the right
    kind: str = ""  # type of its values in Parquet; empty if unknown
    own: str = ""  # covey's own name of it; empty for parameters and reported values
    written: Callable[[ResultRow], object] | None = None  # the value in CSV, if it differs


def _exit_cell(row: ResultRow) -> str:
    """The exit status, or the signal: the signal has no column of its own on the screen."""
    if row.signal:
        return signal_name(row.signal)
    return "" if row.exit_code < 0 else str(row.exit_code)


# What a person reads in our own columns, if not their value.
CELLS: dict[str, Callable[[ResultRow], str]] = {
    "exit": _exit_cell,
    "seconds": lambda row: formats.duration(row.wall_seconds),
    "cpu_seconds": lambda row: formats.duration(row.cpu_seconds),
    "memory_kb": lambda row: formats.memory(row.memory_kb),
    "started": lambda row: formats.clock(row.started),
    "ended": lambda row: formats.clock(row.ended),
}
TIMES = ("started", "ended")  # seconds since 1970; moments in frames and on the screen
ELASTIC = {"cause": 40, "output": 16}  # the shortest useful width if the terminal is narrow
UNSEEN = {"signal", "started", "ended"}  # on the screen, unless asked for
TITLES = {name: heading for heading, name in HEADINGS.items()}  # units are in the cells


def fields(bag: BagView) -> list[Field]:
    """Every column of a bag, in order; no two have the same name."""
    return [*map(_field, columns(bag.names, bag.result_names, bag.readings))]


def _field(column: ResultColumn) -> Field:
    match column.kind:
        case ColumnKind.OWN:
            return _own(column)
        case ColumnKind.PARAMETER:
            return _parameter(column.name, column.place, column.reading)
        case ColumnKind.REPORTED:
            return _reported(column.name, column.key)


def _own(column: ResultColumn) -> Field:
    value, kind = own_value(column.key), OWN[column.key].kind

    def plain(row: ResultRow) -> str:
        return formats.plain_value(value(row))

    cell = CELLS.get(column.key, plain)
    return Field(column.name, value, cell, kind != "text", kind, column.key)


def _parameter(name: str, place: int, reading: str) -> Field:
    def value(row: ResultRow) -> object:
        return read(row.values[place], reading) if row.values else None

    def written(row: ResultRow) -> object:
        return row.values[place] if row.values else None

    def cell(row: ResultRow) -> str:
        return str(row.values[place]) if row.values else ""

    return Field(name, value, cell, right=True, written=written)


def _reported(name: str, key: str) -> Field:
    return Field(
        name,
        lambda row: row.result.get(key),
        lambda row: formats.plain_value(row.result.get(key)),
        right=True,
    )


def with_names(bag: BagView, rows: Sequence[ResultRow]) -> BagView:
    """The bag, with the names of all values that these rows report. Values of calls are left out,
    because they are pickled."""
    if bag.calls:
        return bag
    names = dict.fromkeys(bag.result_names)
    for row in rows:
        names.update(dict.fromkeys(row.result))
    return structs.replace(bag, result_names=list(names))


def choose(bag: BagView, wanted: str) -> list[Field]:
    """The columns of a list such as `seed,energy`. Raises UsageError for an unknown column."""
    every = {field.name: field for field in fields(bag)}
    chosen: list[Field] = []
    headings = {heading: name for name, heading in TITLES.items()}
    for name in (part.strip() for part in wanted.split(",")):
        name = name if name in every else headings.get(name, name)
        if name not in every:
            hint = did_you_mean(name, every, f"; there are {', '.join(every)}")
            raise click.UsageError(f"bag {bag.id} has no column {name!r}{hint}")
        chosen.append(every[name])
    return chosen


def seen(bag: BagView) -> list[Field]:
    """The columns that a table shows by default: none that is always empty, and long ones last."""
    unseen = set(UNSEEN)
    if not bag.failed and not bag.ignored_results:
        unseen.add("cause")
    if not bag.outputs:
        unseen.add("files")
    if bag.result_names:  # the last line that a task printed usually has the same values
        unseen.add("output")
    every = [field for field in fields(bag) if field.own not in unseen]
    last = [field for own in ELASTIC for field in every if field.own == own]
    return [field for field in every if field.own not in ELASTIC] + last


def titles(chosen: Sequence[Field]) -> list[Column]:
    return [Column(TITLES.get(field.own, field.name), field.right) for field in chosen]
