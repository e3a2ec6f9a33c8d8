"""The columns of a bag's results, as people choose and see them.

Names and values are the same as in exported files (`covey.store.results.columns`; a test compares
the two). The order is: the task, its parameters, how it ended and what it used, the values that it
reported, and the last line that it printed. If two columns have the same name, ours gets the prefix
`covey_`, and a reported value gets `result_`.
"""

from collections.abc import Callable, Sequence
from difflib import get_close_matches
from itertools import zip_longest
from typing import NamedTuple

import click
from msgspec import structs

from covey.core.values.scalars import Reading, read
from covey.frontend import formats
from covey.frontend.tables import Column
from covey.pilot.slots.outcomes import signal_name
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


def _own(
    name: str,
    kind: str,
    value: Callable[[ResultRow], object],
    cell: Callable[[ResultRow], str] | None = None,
) -> Field:
    def plain(row: ResultRow) -> str:
        return formats.plain_value(value(row))

    return Field(name, value, cell or plain, kind != "text", kind, name)


def _exit_cell(row: ResultRow) -> str:
    """The exit status, or the signal: the signal has no column of its own on the screen."""
    if row.signal:
        return signal_name(row.signal)
    return "" if row.exit_code < 0 else str(row.exit_code)


TASK = _own("task", "whole", lambda row: row.task)
BEFORE_REPORTED = (
    _own("state", "text", formats.state),
    _own("exit", "whole", lambda row: row.exit_code if row.exit_code >= 0 else None, _exit_cell),
    _own("signal", "whole", lambda row: row.signal or None),
    _own(
        "seconds",
        "real",
        lambda row: round(row.wall_seconds, 6),
        lambda row: formats.duration(row.wall_seconds),
    ),
    _own(
        "cpu_seconds",
        "real",
        lambda row: round(row.cpu_seconds, 6),
        lambda row: formats.duration(row.cpu_seconds),
    ),
    _own(
        "memory_kb", "whole", lambda row: row.memory_kb, lambda row: formats.memory(row.memory_kb)
    ),
    _own("host", "text", lambda row: row.host),
    _own(
        "started", "real", lambda row: round(row.started, 3), lambda row: formats.clock(row.started)
    ),
    _own("ended", "real", lambda row: round(row.ended, 3), lambda row: formats.clock(row.ended)),
    _own("cause", "text", lambda row: row.cause),
)
BEHIND_REPORTED = (
    _own("files", "whole", lambda row: row.files),
    _own("output", "text", lambda row: row.output),
)
TIMES = ("started", "ended")  # seconds since 1970; shown as dates in frames and on the screen
ELASTIC = {"cause": 40, "output": 16}  # a terminal may cut these columns, but not below this width
UNSEEN = {"signal", "started", "ended"}  # not on the screen, unless somebody asks for them
TITLES = {"seconds": "time", "cpu_seconds": "cpu", "memory_kb": "memory"}  # cells have the units


def fields(bag: BagView) -> list[Field]:
    """Every column of a bag, in order. No two have the same name."""
    taken = set(bag.names)
    task = _free(TASK, "covey_", taken)
    before = [_free(field, "covey_", taken) for field in BEFORE_REPORTED]
    behind = [_free(field, "covey_", taken) for field in BEHIND_REPORTED]
    reported = [_free(_reported(name), "result_", taken) for name in bag.result_names]
    readings = zip_longest(bag.names, bag.readings, fillvalue=Reading.TYPED)
    parameters = [_parameter(name, place, how) for place, (name, how) in enumerate(readings)]
    return [task, *parameters, *before, *reported, *behind]


def _free(field: Field, prefix: str, taken: set[str]) -> Field:
    name = field.name
    while name in taken:
        name = prefix + name
    taken.add(name)
    return field._replace(name=name)


def _parameter(name: str, place: int, reading: str) -> Field:
    def value(row: ResultRow) -> object:
        return read(row.values[place], reading) if row.values else None

    def written(row: ResultRow) -> object:
        return row.values[place] if row.values else None

    def cell(row: ResultRow) -> str:
        return str(row.values[place]) if row.values else ""

    return Field(name, value, cell, right=True, written=written)


def _reported(name: str) -> Field:
    return Field(
        name,
        lambda row: row.result.get(name),
        lambda row: formats.plain_value(row.result.get(name)),
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
            close = get_close_matches(name, every, 1)
            hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(every)}"
            raise click.UsageError(f"bag {bag.id} has no column {name!r}; {hint}")
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
