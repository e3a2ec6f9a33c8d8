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
from covey.store.columns import DONE, FAILED, TEXTS, Column, Kind, find, scalar
from covey.wire import ResultQuery

PAGE = 1000  # rows, where nobody says

Number: TypeAlias = int | float

_COMPARISON = re.compile(
    r"\s*(?P<name>.*?)\s*(?:(?P<op>==|=|!=|<=|>=|<|>|~)|\s(?P<in>in)\s)(?P<value>.*)", re.DOTALL
)
_PART = re.compile(r"""\s*("[^"]*"\s*|'[^']*'\s*|[^,]*),""")
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
    parts = _PART.findall(f"{value},") if op == "in" else [value]
    literals = tuple(_literal(part.strip()) for part in parts)
    found = Comparison(column, "=" if op == "in" else op, literals)
    if column.kind is Kind.OWN:
        _check_own(text, found)
    return found


def _no_comparison(text: str) -> InvalidQuery:
    return InvalidQuery(
        f"'{text}' is not a comparison; write it like 'alpha >= 0.5', 'host = n1', "
        "'output ~ error' or 'state in done,failed'"
    )


def _check_value(text: str, op: str, value: str, table: list[Column]) -> None:
    """Raises InvalidQuery for what can only be a mistake. Text may be anything, but nobody looks
    for what is more than 'm, n' without quotes."""
    if op == "in" and value[:1] + value[-1:] in ("[]", "()", "{}"):
        raise InvalidQuery(f"'{text}': write it without brackets, like 'state in done,failed'")
    if op != "in" and _is_quoted(value):
        wrong = re.search(rf"{value[0]}\s*{_JOINT}", value[1:-1], re.IGNORECASE)
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
            "where=['y > 1', 'x < 4'], or several --where, and all must hold; one of several "
            "values is 'y in 1,2'; text that reads like a test goes in quotes: 'cause = \"a < b\"'"
        )
    if op in _ORDERED and any(value == column.name for column in table):
        raise InvalidQuery(f"'{text}': a column is compared with a value, not with another column")


def _check_own(text: str, comparison: Comparison) -> None:
    """Of our own columns it is known what is in them. Raises InvalidQuery."""
    column, literals = comparison.column, comparison.literals
    if comparison.op in _ORDERED:
        is_text, is_number = column.key in TEXTS, literals[0].number is not None
        if is_text and is_number:
            raise InvalidQuery(
                f"'{text}': {column.name} is text, and never more or less than a number; "
                f"in quotes {literals[0].text} is text, too"
            )
        if not is_text and not is_number:
            raise InvalidQuery(f"'{text}': {column.name} is a number, '{literals[0].text}' is none")
    elif column.key == "state" and comparison.op != "~":
        for literal in literals:
            if literal.text not in (DONE, FAILED):
                raise InvalidQuery(f"'{text}': a result is {DONE} or {FAILED}")


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
