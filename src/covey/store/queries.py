"""What a person may ask of the table of results.

`where` is a list of comparisons, all of which must hold:

    NAME OP VALUE       OP: = == != < <= > >= or ~ (contains)
    NAME in A,B,C

Numbers compare with numbers and text with text, so `alpha > 0.5` never finds text. Written without
quotes, 5 is equal to the number 5 and to the text 5; in quotes it is text. An empty value is equal
to none at all, and != is just the opposite of =.

There is no other word in it, and an empty table says nothing about a question that was not
understood: a value that reads like more of the question is refused, unless it is in quotes.

Sorted by a column, numbers come before text, and what has no value comes last either way.
"""

import math
import re
from collections.abc import Sequence
from typing import Any, TypeAlias

from msgspec import Struct

from covey.core.errors import InvalidQuery
from covey.store.columns import FAILED, TEXTS, Column, Kind, find, scalar
from covey.wire import ResultQuery

PAGE = 1000  # rows, where nobody says

Number: TypeAlias = int | float

_COMPARISON = re.compile(
    r"\s*(?P<name>.*?)\s*(?:(?P<op>==|=|!=|<=|>=|<|>|~)|\s(?P<in>in)\s)(?P<value>.*)", re.DOTALL
)
_ORDERED = ("<", "<=", ">", ">=")
_OPERATOR = r"(?:[=!<>]=|[=<>~])"
_JOINT = r"(?:\s(?:and|or)\s|&&|\|\||[,;])"
_MORE = re.compile(rf"{_JOINT}|{_OPERATOR}", re.IGNORECASE)
_MORE_THAN_TEXT = re.compile(rf"&&|\|\||\s{_OPERATOR}\s")
_OPERATOR_FIRST = re.compile(rf"{_OPERATOR}(?:[-+.\d\s]|$)")


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
        raise _no_comparison(text)
    column = find(table, match["name"])
    value = match["value"].strip()
    op = "in" if match["in"] else "=" if match["op"] == "==" else match["op"]
    _check_value(text, op, value, table)
    if op == "in":
        return Comparison(column, "=", tuple(_literal(part.strip()) for part in value.split(",")))
    literal = _literal(value)
    if op in _ORDERED and column.kind is Kind.OWN:
        _check_kind(text, column, literal)
    return Comparison(column, op, (literal,))


def _no_comparison(text: str) -> InvalidQuery:
    return InvalidQuery(
        f"'{text}' is not a comparison; write it like 'alpha >= 0.5', 'host = n1', "
        "'output ~ error' or 'state in done,failed'"
    )


def _check_value(text: str, op: str, value: str, table: list[Column]) -> None:
    """Raises InvalidQuery for what can only be a mistake. Text may be anything, but nobody looks
    for what is more than 'm, n' without quotes."""
    if op != "in" and _is_quoted(value):
        wrong = re.search(rf"{value[0]}\s*{_JOINT}", value[1:-1])
    elif (op in _ORDERED and not value) or (op != "~" and _OPERATOR_FIRST.match(value)):
        raise _no_comparison(text)
    elif op in _ORDERED:
        wrong = _MORE.search(value)
    else:
        names = "|".join(re.escape(column.name) for column in table)
        another = rf"{_JOINT}\s*(?:{names})\s*(?:{_OPERATOR}|\sin\s)"
        wrong = re.search(another, value, re.IGNORECASE)
        if op in ("=", "!="):
            wrong = wrong or _MORE_THAN_TEXT.search(value)
    if wrong:
        raise InvalidQuery(
            f"'{text}': '{value}' is not one value. Several tests are a list, "
            "where=['y > 1', 'x < 4'], or several --where, and all must hold; text that reads like "
            "a test goes in quotes, as in 'cause = \"a < b\"'"
        )
    if op in _ORDERED and any(value == column.name for column in table):
        raise InvalidQuery(f"'{text}': a column is compared with a value, not with another column")


def _check_kind(text: str, column: Column, literal: Literal) -> None:
    """Of our own columns it is known what is in them. Raises InvalidQuery."""
    if column.key in TEXTS and literal.number is not None:
        raise InvalidQuery(
            f"'{text}': {column.name} is text, and never more or less than a number; "
            f"in quotes {literal.text} is text, too"
        )
    if column.key not in TEXTS and literal.number is None:
        raise InvalidQuery(f"'{text}': {column.name} is a number, '{literal.text}' is none")


def _literal(text: str) -> Literal:
    return Literal(text[1:-1], None) if _is_quoted(text) else Literal(text, _number(text))


def _is_quoted(text: str) -> bool:
    return len(text) >= 2 and text[0] == text[-1] and text[0] in "'\""


def _number(text: str) -> Number | None:
    for kind in (int, float):
        try:
            number = kind(text)
            if math.isfinite(number):
                return number
        except (ValueError, OverflowError):
            continue
    return None


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
