"""The columns of a bag's results as people choose and see them.

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
    """A column: what a file holds, and what a person reads."""

    name: str
    value: Callable[[ResultRow], object]
    cell: Callable[[ResultRow], str]
    right: bool = False  # numbers align on the right
    kind: str = ""  # of its values (see the export to Parquet), where it is known
    own: str = ""  # which of ours it is, if it is one
    written: Callable[[ResultRow], object] | None = None  # in CSV, if not its value


def _exit_cell(row: ResultRow) -> str:
    """The exit status, or the signal, which has no column of its own on the screen."""
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
ELASTIC = {"cause": 40, "output": 16}  # may be cut where a terminal ends, but so much is useful
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
    """Also with the names of values that were reported since the bag was looked at. Those of calls
    are pickled: nobody can read them in a table."""
    if bag.calls:
        return bag
    known = dict.fromkeys(bag.result_names)
    for row in rows:
        known.update(dict.fromkeys(row.result))
    return structs.replace(bag, result_names=list(known))


def choose(bag: BagView, wanted: str) -> list[Field]:
    """Those named in a list such as `seed,energy`. Raises UsageError for one that is not there."""
    known = {field.name: field for field in fields(bag)}
    chosen: list[Field] = []
    headings = {heading: name for name, heading in TITLES.items()}
    for name in (part.strip() for part in wanted.split(",")):
        name = name if name in known else headings.get(name, name)
        if name not in known:
            hint = did_you_mean(name, known, f"; there are {', '.join(known)}")
            raise click.UsageError(f"bag {bag.id} has no column {name!r}{hint}")
        chosen.append(known[name])
    return chosen


def seen(bag: BagView) -> list[Field]:
    """What a person wants to see without asking: no column that says nothing, and what may be
    long comes last."""
    unseen = set(UNSEEN)
    if not bag.failed and not bag.ignored_results:
        unseen.add("cause")
    if not bag.outputs:
        unseen.add("files")
    if bag.result_names:  # what was printed last is most often where these come from
        unseen.add("output")
    every = [field for field in fields(bag) if field.own not in unseen]
    last = [field for own in ELASTIC for field in every if field.own == own]
    return [field for field in every if field.own not in ELASTIC] + last


def titles(chosen: Sequence[Field]) -> list[Column]:
    return [Column(TITLES.get(field.own, field.name), field.right) for field in chosen]
