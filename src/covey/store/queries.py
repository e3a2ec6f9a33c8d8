"""What a person may ask of the table of results.

`where` is a list of comparisons, all of which must hold:

    NAME OP VALUE       OP: = == != < <= > >= or ~ (contains)
    NAME in A,B,C

Numbers compare with numbers and text with text, so `alpha > 0.5` never finds text. Written without
quotes, 5 is equal to the number 5 and to the text 5; in quotes it is text. An empty value is equal
to none at all, and != is just the opposite of =.

Sorted by a column, numbers come before text, and what has no value comes last either way.
"""

import math
import re
from collections.abc import Sequence
from typing import Any, TypeAlias

from msgspec import Struct

from covey.core.errors import InvalidQuery
from covey.store.columns import FAILED, Column, Kind, find, scalar
from covey.wire import ResultQuery

PAGE = 1000  # rows, where nobody says

Number: TypeAlias = int | float

_COMPARISON = re.compile(
    r"\s*(?P<name>.*?)\s*(?:(?P<op>==|=|!=|<=|>=|<|>|~)|\s(?P<in>in)\s)(?P<value>.*)", re.DOTALL
)
_LARGEST = 2**63 - 1


class Literal(Struct, frozen=True):
    """A value that a person wrote; as a number too, if it may be one."""

    text: str
    number: Number | None


class Comparison(Struct, frozen=True):
    column: Column
    op: str  # = != < <= > >= ~
    literals: tuple[Literal, ...]  # several only for =


class Query(Struct, frozen=True):
    """A ResultQuery whose words were understood."""

    asked: ResultQuery
    failed_only: bool
    where: tuple[Comparison, ...]
    sort: Column | None
    descending: bool

    @property
    def page(self) -> int:
        return self.asked.limit if self.asked.limit > 0 else PAGE


def understand(query: ResultQuery, table: list[Column]) -> Query:
    """Raises InvalidQuery."""
    where = [_comparison(text, table) for text in query.where]
    failed = [one for one in where if _says_failed(one)]
    name = query.sort.removeprefix("-")
    return Query(
        asked=query,
        failed_only=query.failed_only or bool(failed),
        where=tuple(one for one in where if one not in failed),
        sort=find(table, name) if name else None,
        descending=query.sort.startswith("-"),
    )


def holds(comparison: Comparison, found: Any) -> bool:
    """Whether it holds of this value of its column."""
    value, op, literals = scalar(found), comparison.op, comparison.literals
    if op == "=":
        return any(_equals(value, literal) for literal in literals)
    if op == "!=":
        return not _equals(value, literals[0])
    if value is None:
        return False
    if op == "~":
        return literals[0].text in str(value)
    if isinstance(value, str):
        return literals[0].number is None and _ordered(op, value, literals[0].text)
    number = literals[0].number
    return number is not None and _ordered(op, value, number)


def sort_key(found: Any) -> tuple[int, Any]:
    value = scalar(found)
    return (1, value) if isinstance(value, str) else (0, value)


def _comparison(text: str, table: list[Column]) -> Comparison:
    match = _COMPARISON.fullmatch(text)
    if match is None or not match["name"]:
        raise InvalidQuery(
            f"'{text}' is not a comparison; write it like 'alpha >= 0.5', 'host = n1', "
            "'output ~ error' or 'state in done,failed'"
        )
    column = find(table, match["name"])
    value = match["value"].strip()
    if match["in"]:
        return Comparison(column, "=", tuple(_literal(part.strip()) for part in value.split(",")))
    op = "=" if match["op"] == "==" else match["op"]
    return Comparison(column, op, (_literal(value),))


def _literal(text: str) -> Literal:
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "'\"":
        return Literal(text[1:-1], None)
    for kind in (int, float):
        try:
            number = kind(text)
        except ValueError:
            continue
        if math.isfinite(number) and abs(number) <= _LARGEST:
            return Literal(text, number)
    return Literal(text, None)


def _says_failed(comparison: Comparison) -> bool:
    column = comparison.column
    ours = column.kind is Kind.OWN and column.key == "state"
    return ours and comparison.op == "=" and _texts(comparison.literals) == [FAILED]


def _texts(literals: Sequence[Literal]) -> list[str]:
    return [literal.text for literal in literals]


def _equals(value: str | Number | None, literal: Literal) -> bool:
    if value is None:
        return literal.text == ""
    return value == literal.text if isinstance(value, str) else value == literal.number


def _ordered(op: str, left: Any, right: Any) -> bool:
    if op == "<":
        return bool(left < right)
    if op == "<=":
        return bool(left <= right)
    return bool(left > right) if op == ">" else bool(left >= right)
