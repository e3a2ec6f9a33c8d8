"""Queries for results, in SQL.

In the order of tasks or rows, an index finds the start of each page. If rows are sorted by a
column, only their numbers are sorted, and the rest is fetched a page at a time.

SQLite takes reported values out of their JSON, while other Python threads run. For a parameter with
few values, the values that match are computed first; then SQLite finds each task's value by a
division. Python computes all other parameters.

In comparisons, a unary plus keeps SQLite from turning text into numbers.
"""

import json
import re
import sqlite3
from array import array
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

from msgspec.structs import replace

from covey.core.values.columns import Column, ColumnKind, scalar
from covey.core.values.comparisons import Comparison, Literal, holds
from covey.core.values.scalars import Reading, read
from covey.core.values.space import Scalar
from covey.store.results import columns
from covey.store.results.queries import Query, sort_key
from covey.store.results.task_parameters import Leaf, Points
from covey.store.sqlite import rows

_PLAIN_NAME = re.compile(r"[A-Za-z0-9_ .:/+-]+")  # in JSON it needs no escapes
_LARGEST = 2**63

# covey's own columns as people see them, and as they are sorted.
SORTED = {key: own.sql for key, own in columns.OWN.items()}
SEEN = {
    key: own.sql if own.digits is None else f"round({own.sql}, {own.digits})"
    for key, own in columns.OWN.items()
}
EXPORTED = ", ".join([*(own.number or own.sql for own in columns.OWN.values()), "result"])


def register(connection: sqlite3.Connection, points: Callable[[], Points]) -> None:
    """`points` returns the parameters of the bag that is read."""

    def parameter(task: int, place: int, reading: str) -> str | int | float | None:
        value = points().value(task, place)
        return None if value is None else _storable(read(value, reading))

    def reported(result: str | None, name: str) -> str | int | float | None:
        return _storable(scalar((rows.reported(result) or {}).get(name))) if result else None

    connection.create_function("covey_parameter", 3, parameter, deterministic=True)
    connection.create_function("covey_reported", 2, reported, deterministic=True)


def page(
    connection: sqlite3.Connection,
    bag: int,
    points: Points,
    query: Query,
    what: str,
    after: int,
    limit: int,
) -> Iterator[tuple[Any, ...]]:
    """Columns `what` of counted results after `after`, in the order of tasks or rows. In the order
    of rows, only rows of the bag's lifetime are searched; failures are few, and are sorted."""
    condition, values = _conditions(query, points)
    order = "row" if query.asked.by_row else "task"
    if query.asked.by_row and not query.failed_only:
        first, last = _lifetime(connection, bag)
        source = "NOT INDEXED WHERE bag = ? AND counted = 1 AND row > ? AND row <= ?"
        bounds = [bag, max(after, first - 1), last]
    else:
        source = f"{_source(query)} AND {order} > ?"
        bounds = [bag, after]
    return connection.execute(
        f"SELECT {what} FROM ends {source}{condition} ORDER BY {order} LIMIT ? OFFSET ?",
        (*bounds, *values, limit, query.asked.offset if after == query.asked.after else 0),
    )


def sorted_rows(
    connection: sqlite3.Connection, bag: int, points: Points, query: Query, limit: int
) -> "array[int]":
    """The numbers of the matching rows, sorted by the query's column; -1: no limit."""
    assert query.sort is not None
    condition, values = _conditions(query, points)
    key, named = _sort_key(query.sort, points)
    way = "DESC" if query.descending else "ASC"
    found = connection.execute(
        f"SELECT row FROM ends {_source(query)}{condition} "
        f"ORDER BY {key} {way} NULLS LAST, task LIMIT ? OFFSET ?",
        (bag, *values, *named, limit, query.asked.offset),
    )
    return array("q", (row for (row,) in found))


def fetch(
    connection: sqlite3.Connection, bag: int, numbers: "array[int]", what: str
) -> list[tuple[Any, ...]]:
    """Columns `what` of these rows, in this order, if they still count."""
    found = {
        row[0]: row[1:]
        for row in connection.execute(
            f"SELECT row, {what} FROM ends NOT INDEXED WHERE row IN "
            "(SELECT value FROM json_each(?)) AND bag = ? AND counted = 1",
            (json.dumps(numbers.tolist()), bag),
        )
    }
    return [found[number] for number in numbers if number in found]


def cut(
    found: Iterator[tuple[Any, ...]], texts: tuple[int, ...], each: int, most: int
) -> tuple[list[tuple[Any, ...]], bool]:
    """The first rows, until they have `most` characters in these columns (and `each` per row).
    Returns True with them if they ended for that reason. 0: no limit."""
    page: list[tuple[Any, ...]] = []
    left = most
    for row in found:
        page.append(row)
        if most:
            left -= each
            for place in texts:
                if row[place]:
                    left -= len(row[place])
            if left <= 0:
                return page, True
    return page, False


def pages_of(numbers: "array[int]", size: int) -> "Iterator[array[int]]":
    for start in range(0, len(numbers), size):
        yield numbers[start : start + size]


def _source(query: Query) -> str:
    if query.failed_only:
        return "INDEXED BY failures WHERE bag = ? AND counted = 1 AND outcome <> 0"
    return "INDEXED BY counted WHERE bag = ? AND counted = 1"


def _lifetime(connection: sqlite3.Connection, bag: int) -> tuple[int, int]:
    query = "SELECT first_row, last_row FROM bags WHERE id = ?"
    first, last = connection.execute(query, (bag,)).fetchone()
    if last is None:
        (last,) = connection.execute("SELECT coalesce(max(row), 0) FROM ends").fetchone()
    return first, last


def _conditions(query: Query, points: Points) -> tuple[str, list[Any]]:
    text, values = "", []
    for comparison in query.where:
        column = comparison.column
        leaf = points.leaf(column.place) if column.kind is ColumnKind.PARAMETER else None
        condition, needed = _condition(comparison) if leaf is None else _one_of(leaf, comparison)
        text += f" AND {condition}"
        values += needed
    if query.last_row is not None:
        text += " AND row <= ?"
        values.append(query.last_row)
    return text, values


def _one_of(leaf: Leaf, comparison: Comparison) -> tuple[str, list[Any]]:
    """A condition: the task has one of the values that meet the comparison."""
    reading = comparison.column.reading
    fits = [
        place
        for place, value in enumerate(leaf.values())
        if holds(comparison, read(value, reading), value)
    ]
    return (
        f"task / {leaf.stride} % {leaf.count} IN (SELECT value FROM json_each(?))",
        [json.dumps(fits)],
    )


def _sort_key(column: Column, points: Points) -> tuple[str, list[Any]]:
    """If values grow with their places, rows are sorted by the places."""
    leaf = points.leaf(column.place) if column.kind is ColumnKind.PARAMETER else None
    if leaf is not None:
        keys = [sort_key(read(value, column.reading)) for value in leaf.values()]
        if all(a < b for a, b in pairwise(keys)):
            return f"task / {leaf.stride} % {leaf.count}", []
    return _expression(column, SORTED)


def _condition(comparison: Comparison) -> tuple[str, list[Any]]:
    """Text is larger than any number, and '' is the smallest text: this separates texts from
    numbers."""
    column, op, literals = comparison.column, comparison.op, comparison.literals
    value, named = _expression(column)
    first = literals[0]
    if op in ("=", "!="):
        equal, values = _is_one_of(value, named, [*_either(literals)])
        if column.kind is ColumnKind.PARAMETER and comparison.quoted:
            written, more = _is_one_of(*_written(column), sorted(comparison.quoted))
            equal, values = f"({equal} OR {written})", [*values, *more]
        return f"{equal} = {int(op == '=')}", values
    if op == "~":
        value, named = _written(column)
        return f"instr(CAST({value} AS TEXT), ?) > 0", [*named, first.text]
    if first.number is None:
        if op in (">", ">="):
            return f"{value} {op} ?", [*named, first.text]
        return f"({value} {op} ? AND {value} >= '')", [*named, first.text, *named]
    number = _storable(first.number)
    if op in ("<", "<="):
        return f"{value} {op} ?", [*named, number]
    return f"({value} {op} ? AND {value} < '')", [*named, number, *named]


def _is_one_of(value: str, named: list[Any], equal: list[Any]) -> tuple[str, list[Any]]:
    if "" in equal:
        value = f"coalesce({value}, '')"
    return f"coalesce({value} IN ({', '.join('?' * len(equal))}), 0)", [*named, *equal]


def _either(literals: tuple[Literal, ...]) -> Iterator[str | int | float | None]:
    """A condition for equality as a number or as a text."""
    for literal in literals:
        if literal.number is not None:
            yield _storable(literal.number)
        yield literal.text


def _written(column: Column) -> tuple[str, list[Any]]:
    """A column's values as they were written."""
    return _expression(replace(column, reading=Reading.TYPED))


def _expression(column: Column, own: dict[str, str] = SEEN) -> tuple[str, list[Any]]:
    """The SQL for a column's value, without a type affinity, and the values to bind."""
    if column.kind is ColumnKind.OWN:
        return f"+{own[column.key]}", []
    if column.kind is ColumnKind.PARAMETER:
        return "covey_parameter(task, ?, ?)", [column.place, str(column.reading)]
    if not _PLAIN_NAME.fullmatch(column.key):
        return "covey_reported(result, ?)", [column.key]
    path = f"'$.\"{column.key}\"'"
    return (
        f"CASE json_type(result, {path}) WHEN 'true' THEN 'true' WHEN 'false' THEN 'false' "
        f"ELSE json_extract(result, {path}) END",
        [],
    )


def _storable(value: Scalar | None) -> str | int | float | None:
    """SQLite has whole numbers up to 2**63."""
    if isinstance(value, int) and not -_LARGEST <= value < _LARGEST:
        return float(value)
    return value
