"""The table of results: the columns of a bag, and their names.

The columns are the task, its parameters, covey's own columns, and the values that tasks reported.
Names must not clash, and a script that reads a column must not break when tasks begin to report
more. So a parameter always keeps its name. If it is also the name of covey's own column, that one
is called `covey_NAME`; a reported value with the name of another column is called `result_NAME`.
"""

from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

from covey.core.values.columns import DONE, FAILED, Column, ColumnKind
from covey.core.values.scalars import Reading, read
from covey.pilot.protocol.messages import OK
from covey.wire import ResultRow


class OwnColumn(NamedTuple):
    """One of covey's own columns. `value` reads it from a result, `sql` from a row of `ends`.
    People see the value rounded to `digits`; sorting and files use the exact value. If many rows
    share a text, pages of an export have its number, from the column `number`."""

    kind: str  # whole, real or text
    value: Callable[[ResultRow], Any]
    sql: str
    digits: int | None = None
    number: str = ""


# All of covey's own columns, in order: `task` comes before the parameters, the others after them.
OWN: dict[str, OwnColumn] = {
    "task": OwnColumn("whole", lambda row: row.task, "task"),
    "state": OwnColumn(
        "text",
        lambda row: DONE if row.outcome == OK else FAILED,
        f"CASE outcome WHEN 0 THEN '{DONE}' ELSE '{FAILED}' END",
    ),
    "exit": OwnColumn(
        "whole",
        lambda row: row.exit_code if row.exit_code >= 0 else None,
        "CASE WHEN exit_code >= 0 THEN exit_code END",
    ),
    "signal": OwnColumn("whole", lambda row: row.signal or None, "nullif(signal, 0)"),
    "seconds": OwnColumn("real", lambda row: row.wall_seconds, "(ended - started)", 6),
    "cpu_seconds": OwnColumn("real", lambda row: row.cpu_seconds, "cpu_seconds", 6),
    "memory_kb": OwnColumn("whole", lambda row: row.memory_kb, "memory_kb"),
    "host": OwnColumn(
        "text",
        lambda row: row.host,
        "(SELECT name FROM hosts WHERE id = ends.host)",
        number="host",
    ),
    "started": OwnColumn("real", lambda row: row.started, "started", 3),
    "ended": OwnColumn("real", lambda row: row.ended, "ended", 3),
    "cause": OwnColumn(
        "text",
        lambda row: row.cause,
        "coalesce((SELECT text FROM causes WHERE id = ends.cause), '')",
        number="cause",
    ),
    "files": OwnColumn("whole", lambda row: row.files, "files"),
    "output": OwnColumn("text", lambda row: row.output, "coalesce(last_line, '')"),
}
BEHIND_REPORTED = ("files", "output")
BEFORE_REPORTED = tuple(key for key in OWN if key not in ("task", *BEHIND_REPORTED))


def columns(
    parameters: list[str], reported: list[str], readings: Sequence[str] = ()
) -> list[Column]:
    """`readings` of the parameters; without them, values keep their types."""
    taken = set(parameters)

    def own(key: str) -> Column:
        reading = Reading.TEXT if OWN[key].kind == "text" else Reading.TYPED
        return Column(_free(key, "covey_", taken), ColumnKind.OWN, key, reading=reading)

    first = own("task")
    before, behind = list(map(own, BEFORE_REPORTED)), list(map(own, BEHIND_REPORTED))
    inner = [
        Column(name, ColumnKind.PARAMETER, name, place, reading)
        for place, (name, reading) in enumerate(
            zip_longest(parameters, readings, fillvalue=Reading.TYPED)
        )
    ]
    values = [Column(_free(key, "result_", taken), ColumnKind.REPORTED, key) for key in reported]
    return [first, *inner, *before, *values, *behind]


def own_value(key: str) -> Callable[[ResultRow], Any]:
    """Reads one of covey's own columns, as people see it."""
    value, digits = OWN[key].value, OWN[key].digits
    return value if digits is None else lambda row: round(value(row), digits)


_OWN_VALUES = {key: own_value(key) for key in OWN}


def sort_value(column: Column, row: ResultRow) -> Any:
    """The value by which rows are sorted, if they are sorted by this column."""
    if column.kind is ColumnKind.OWN:
        return OWN[column.key].value(row)
    return value(column, row)


def value(column: Column, row: ResultRow) -> Any:
    """The value in this column of a result, as it is compared."""
    if column.kind is not ColumnKind.PARAMETER:
        return spelling(column, row)
    return read(row.values[column.place], column.reading) if row.values else None


def spelling(column: Column, row: ResultRow) -> Any:
    """The value in this column of a result, as it was written."""
    if column.kind is ColumnKind.OWN:
        return _OWN_VALUES[column.key](row)
    if column.kind is ColumnKind.PARAMETER:
        return row.values[column.place] if row.values else None
    return row.result.get(column.key)


def _free(key: str, prefix: str, taken: set[str]) -> str:
    name = key
    while name in taken:
        name = prefix + name
    taken.add(name)
    return name


def names_in(result: dict[str, Any], known: dict[str, None], most: int) -> list[str]:
    """The names of reported values that are not in `known`; adds them to it, up to `most`."""
    new = [name for name in result if name not in known][: most - len(known)]
    known.update(dict.fromkeys(new))
    return new
