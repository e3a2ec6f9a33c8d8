"""The table of results: which columns a bag has, and what they are called.

The task, its parameters, what we know of how it ended, then the values that tasks reported. Names
must not clash, and a script that reads a column must not break when tasks begin to report more: a
parameter keeps its name, ours gives way to it as `covey_NAME`, and a reported value gives way to
both as `result_NAME`.
"""

from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

from covey.core.values.columns import DONE, FAILED, Column, ColumnKind
from covey.core.values.scalars import Reading, read
from covey.pilot.protocol.messages import OK
from covey.wire import ResultRow


class OwnColumn(NamedTuple):
    """A column of ours. `value` is what a row has in it, and `sql` the same of a row of `ends`.
    People see both rounded to `digits`; sorting and files take them as they are. A page of an
    export has the `number` of a text that many rows share, where there is one."""

    kind: str  # whole, real or text
    value: Callable[[ResultRow], Any]
    sql: str
    digits: int | None = None
    number: str = ""


# Every column of ours, in its order: the task comes before the parameters, the others behind them.
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
    """`readings` are those of the parameters; without them, values are what they are."""
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
    """What is in one of our columns, as people see it."""
    value, digits = OWN[key].value, OWN[key].digits
    return value if digits is None else lambda row: round(value(row), digits)


_OWN_VALUES = {key: own_value(key) for key in OWN}


def sort_value(column: Column, row: ResultRow) -> Any:
    """By what rows are sorted that are sorted by this column."""
    if column.kind is ColumnKind.OWN:
        return OWN[column.key].value(row)
    return value(column, row)


def value(column: Column, row: ResultRow) -> Any:
    """What is in this column of a result, as it is compared."""
    if column.kind is not ColumnKind.PARAMETER:
        return spelling(column, row)
    return read(row.values[column.place], column.reading) if row.values else None


def spelling(column: Column, row: ResultRow) -> Any:
    """What is in this column of a result, as it was written."""
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
    """Names of reported values that are new; they are known from now on."""
    new = [name for name in result if name not in known][: most - len(known)]
    known.update(dict.fromkeys(new))
    return new
