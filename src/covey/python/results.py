"""The results of a bag, as records, and as a data frame if pandas is installed.

The columns are those of `covey results` and of its files: the task, its parameters, how it ended
and what it used, the values that it reported, the last line that it printed.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, overload

from covey.core.errors import CoveyError
from covey.frontend import columns as table
from covey.frontend import formats
from covey.frontend.tables import fit
from covey.python import frame_columns
from covey.python.listing import CELL_WIDTH, MOST_SHOWN, html_table, text_table
from covey.wire import BagView, FailureGroup, ResultRow

if TYPE_CHECKING:
    import pandas as pd

LOG_LINES = 5


class Result(Mapping[str, Any]):
    """The result of one task: `result["energy"]` is a column, `result.reported` has the values that
    the task reported."""

    def __init__(self, bag: BagView, row: ResultRow, fields: Mapping[str, table.Field]) -> None:
        self.row = row  # everything in the record
        self._names = bag.names
        self._fields = fields

    @property
    def task(self) -> int:
        return self.row.task

    @property
    def ok(self) -> bool:
        return self.row.outcome == "ok"

    @property
    def parameters(self) -> dict[str, str | int | float]:
        return dict(zip(self._names, self.row.values, strict=False))

    @property
    def reported(self) -> dict[str, Any]:
        """The values that the task printed as a line of JSON, or wrote to $COVEY_RESULT."""
        return dict(self.row.result)

    @property
    def seconds(self) -> float:
        return self.row.wall_seconds

    def __getitem__(self, column: str) -> Any:
        return _field(self._fields, column).value(self.row)

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def __repr__(self) -> str:
        title = formats.task_title(self._names, self.row.task, self.row.values)
        values = ", ".join(f"{name}={value!r}" for name, value in self.row.result.items())
        return f"<Result of {title}: {formats.explained(self.row)}{values and '; ' + values}>"


class Results(Sequence[Result]):
    """The results of a bag at the time of the question."""

    def __init__(self, bag: BagView, rows: Sequence[ResultRow]) -> None:
        self._bag = table.with_names(bag, rows)
        self._rows = rows
        self._fields = {field.name: field for field in table.fields(self._bag)}

    @property
    def columns(self) -> list[str]:
        return list(self._fields)

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, index: int) -> Result: ...

    @overload
    def __getitem__(self, index: slice) -> "Results": ...

    def __getitem__(self, index: int | slice) -> "Result | Results":
        if isinstance(index, slice):
            return Results(self._bag, self._rows[index])
        return Result(self._bag, self._rows[index], self._fields)

    def records(self) -> list[dict[str, Any]]:
        """One plain dictionary for each result."""
        return [dict(result) for result in self]

    def column(self, name: str) -> list[Any]:
        """The values of one column. Raises KeyError if there is no such column."""
        field = _field(self._fields, name)
        return [field.value(row) for row in self._rows]

    def frame(self) -> "pd.DataFrame":
        """A pandas data frame with a row for each result. Each column has one type. Raises
        CoveyError if pandas is not installed."""
        try:
            import pandas as pd
        except ImportError:
            raise CoveyError(
                "pandas is not installed here: pip install pandas. Without pandas, use "
                "results.records() or results.column(NAME)"
            ) from None
        series = {name: self._series(pd, field) for name, field in self._fields.items()}
        return pd.DataFrame(series)

    def _series(self, pd: Any, field: table.Field) -> Any:
        values = [field.value(row) for row in self._rows]
        if field.own in table.TIMES:
            return pd.to_datetime(values, unit="s", utc=True)
        if field.own:
            return frame_columns.typed(pd, values) if field.kind == "whole" else values
        written = field.written or field.value
        return frame_columns.typed(pd, values, [written(row) for row in self._rows])

    @cached_property
    def _shown(self) -> list[table.Field]:
        return table.seen(self._bag)

    def _cells(self) -> list[list[str]]:
        return [
            [fit(field.cell(row), CELL_WIDTH) for field in self._shown]
            for row in self._rows[:MOST_SHOWN]
        ]

    def _titles(self) -> list[str]:
        return [column.title for column in table.titles(self._shown)]

    def __repr__(self) -> str:
        return text_table(self._titles(), self._cells(), len(self))

    def _repr_html_(self) -> str:
        return html_table(self._titles(), self._cells(), len(self))


def _field(fields: Mapping[str, table.Field], name: str) -> table.Field:
    if name not in fields:
        raise KeyError(f"no column {name!r}; there are {', '.join(fields)}")
    return fields[name]


class Failures(Sequence[FailureGroup]):
    """Why tasks failed: the causes, most frequent first, each with an example."""

    def __init__(self, bag: BagView, groups: Sequence[FailureGroup]) -> None:
        self._bag = bag
        self._groups = groups

    def __len__(self) -> int:
        return len(self._groups)

    @overload
    def __getitem__(self, index: int) -> FailureGroup: ...

    @overload
    def __getitem__(self, index: slice) -> "Failures": ...

    def __getitem__(self, index: int | slice) -> "FailureGroup | Failures":
        if isinstance(index, slice):
            return Failures(self._bag, self._groups[index])
        return self._groups[index]

    def __repr__(self) -> str:
        if not self._groups:
            return f"bag {self._bag.id} has no failed tasks"
        return "\n".join(line for group in self._groups for line in _group_lines(group))

    def _repr_html_(self) -> str:
        titles = ["tasks", "cause", "hosts", "for example", "it printed last"]
        cells = [
            [
                f"{group.count:,}",
                group.cause,
                formats.some(group.hosts, group.host_count),
                f"task {group.example}",
                "\n".join(formats.last_lines(group.log, LOG_LINES)),
            ]
            for group in self._groups
        ]
        return html_table(titles, cells, len(self))


def _group_lines(group: FailureGroup) -> list[str]:
    hosts = formats.some(group.hosts, group.host_count) or "no host"
    return [
        f"{formats.count(group.count, 'task')}: {group.cause}",
        f"    on {hosts}; for example task {group.example}",
        *(f"    | {line}" for line in formats.last_lines(group.log, LOG_LINES)),
    ]
