"""Queries for the table of results: comparisons, all of which must hold
(`core.values.comparisons`), and an order. In a sorted column numbers come before texts; rows
without a value always come last.
"""

from typing import Any

from msgspec import Struct

from covey.core.values import comparisons
from covey.core.values.columns import FAILED, Column, ColumnKind, find, scalar
from covey.core.values.comparisons import Comparison
from covey.wire import ResultQuery

PAGE = 1000  # rows, if the query does not say


class Query(Struct, frozen=True):
    """A parsed ResultQuery."""

    asked: ResultQuery
    failed_only: bool
    where: tuple[Comparison, ...]
    sort: Column | None
    descending: bool
    last_row: int | None = None  # later rows may have columns that the table does not have

    @property
    def page(self) -> int:
        return self.asked.limit if self.asked.limit > 0 else PAGE


def understand(query: ResultQuery, table: list[Column]) -> Query:
    """Raises InvalidQuery."""
    where = comparisons.understand(query.where, table)
    failed = [test for test in where if _says_failed(test)]
    name = query.sort.removeprefix("-")
    return Query(
        asked=query,
        failed_only=query.failed_only or bool(failed),
        where=tuple(test for test in where if test not in failed),
        sort=find(table, name) if name else None,
        descending=query.sort.startswith("-"),
    )


def sort_key(found: Any) -> tuple[int, Any]:
    value = scalar(found)
    return (1, value) if isinstance(value, str) else (0, value)


def _says_failed(comparison: Comparison) -> bool:
    column = comparison.column
    ours = column.kind is ColumnKind.OWN and column.key == "state"
    return ours and comparison.op == "=" and comparison.texts == {FAILED}
