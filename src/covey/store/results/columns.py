"""The table of results: which columns a bag has, and what they are called.

The task, its parameters, what we know of how it ended, then the values that tasks reported. Names
must not clash, and a script that reads a column must not break when tasks begin to report more: a
parameter keeps its name, ours gives way to it as `covey_NAME`, and a reported value gives way to
both as `result_NAME`.
"""

from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import Any

from covey.core.values.columns import DONE, FAILED, Column, ColumnKind
from covey.core.values.scalars import Reading, read
from covey.pilot.protocol.messages import OK
from covey.wire import ResultRow

BEFORE_REPORTED = (
    "state",
    "exit",
    "signal",
    "seconds",
    "cpu_seconds",
    "memory_kb",
    "host",
    "started",
    "ended",
    "cause",
)
BEHIND_REPORTED = ("files", "output")


def columns(
    parameters: list[str], reported: list[str], readings: Sequence[str] = ()
) -> list[Column]:
    """`readings` are those of the parameters; without them, values are what they are."""
    taken = set(parameters)

    def own(key: str) -> Column:
        return Column(_free(key, "covey_", taken), ColumnKind.OWN, key)

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


OWN_VALUES: dict[str, Callable[[ResultRow], Any]] = {
    "task": lambda row: row.task,
    "state": lambda row: DONE if row.outcome == OK else FAILED,
    "exit": lambda row: row.exit_code if row.exit_code >= 0 else None,
    "signal": lambda row: row.signal or None,
    "seconds": lambda row: round(row.wall_seconds, 6),
    "cpu_seconds": lambda row: round(row.cpu_seconds, 6),
    "memory_kb": lambda row: row.memory_kb,
    "host": lambda row: row.host,
    "started": lambda row: round(row.started, 3),
    "ended": lambda row: round(row.ended, 3),
    "cause": lambda row: row.cause,
    "files": lambda row: row.files,
    "output": lambda row: row.output,
}

# By what they are sorted, if not that.
_SORTED: dict[str, Callable[[ResultRow], Any]] = {
    "seconds": lambda row: row.wall_seconds,
    "cpu_seconds": lambda row: row.cpu_seconds,
    "started": lambda row: row.started,
    "ended": lambda row: row.ended,
}


def sort_value(column: Column, row: ResultRow) -> Any:
    """By what rows are sorted that are sorted by this column."""
    if column.kind is ColumnKind.OWN and column.key in _SORTED:
        return _SORTED[column.key](row)
    return value(column, row)


def value(column: Column, row: ResultRow) -> Any:
    """What is in this column of a result, as it is compared."""
    if column.kind is not ColumnKind.PARAMETER:
        return spelling(column, row)
    return read(row.values[column.place], column.reading) if row.values else None


def spelling(column: Column, row: ResultRow) -> Any:
    """What is in this column of a result, as it was written."""
    if column.kind is ColumnKind.OWN:
        return OWN_VALUES[column.key](row)
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
