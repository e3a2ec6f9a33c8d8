"""Comparisons that people write: of results in a table, and of the parameters of tasks.

    NAME OP VALUE       OP: = == != < <= > >= or ~ (contains)
    NAME in A,B,C
    COMPARISON && COMPARISON

Numbers compare with numbers and text with text, so `alpha > 0.5` never finds text. Parameters are
read by the rule of `values.scalars`: 0.10 and 1e-1 are the number 0.1. Without quotes, 5 equals the
number 5 and the text 5. In quotes it is text, and equals only a value that is spelled so; ~
compares spellings, too. An empty value equals a missing value, and != is the opposite of =.

There are no other operators. A value that looks like a part of the question is refused unless it is
in quotes: an empty table would not show that the question was misunderstood.

Everybody who may see results can send any text here, so the text is read once from left to right,
in linear time.
"""

import math
import re
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

from msgspec import Struct

from covey.core.errors import InvalidQuery
from covey.core.values.amounts import BadAmount, Seconds, Size
from covey.core.values.columns import DONE, FAILED, Column, ColumnKind, find, scalar
from covey.core.values.scalars import Reading

MOST_COMPARISONS = 100  # in one query
MOST_VALUES = 10_000  # that one query compares with; SQLite takes some 32,000
_SHOWN = 200  # characters of a query that an error message repeats

Number: TypeAlias = int | float

_ORDERED = ("<", "<=", ">", ">=")
_AMOUNTS: dict[str, Seconds | Size] = {
    "seconds": Seconds(),
    "cpu_seconds": Seconds(),
    "memory_kb": Size("k", "1000 TB"),
}
_OPERATOR = r"(?:[=!<>]=|[=<>~])"
_JOINT = r"(?:\s(?:and|or)\s|&&|\|\||[,;])"
_BETWEEN = re.compile(rf"{_OPERATOR}|\s(?P<in>in)\s")  # a name and a value
_AFTER_QUOTE = {
    "'": re.compile(rf"'\s*{_JOINT}", re.IGNORECASE),
    '"': re.compile(rf'"\s*{_JOINT}', re.IGNORECASE),
}
_JOINT_OR_OPERATOR = re.compile(rf"(?P<joint>{_JOINT})|{_OPERATOR}|\sin\s", re.IGNORECASE)
_MORE = re.compile(rf"{_JOINT}|{_OPERATOR}", re.IGNORECASE)
_MORE_THAN_TEXT = re.compile(rf"&&|\|\||\s{_OPERATOR}\s")
_QUOTED_OR_AND = re.compile(r"""(?:[=<>~,]|\sin\s)\s*(?:'[^']*'|"[^"]*")|&&""")
_OPERATOR_FIRST = re.compile(rf"{_OPERATOR}(?:[-+.\d\s]|$)")


class Literal(Struct, frozen=True):
    """A value that a person wrote; as a number too, if it may be one."""

    text: str
    number: Number | None


class Comparison(Struct, frozen=True):
    """`texts`, `quoted` and `numbers` are those of the literals, to find a value among many."""

    column: Column
    op: str  # = != < <= > >= ~
    literals: tuple[Literal, ...]  # several only for =
    texts: frozenset[str]
    quoted: frozenset[str]  # or no numbers
    numbers: frozenset[Number]


def understand(texts: Sequence[str], table: list[Column]) -> list[Comparison]:
    """The comparisons in these texts; all of them must hold. Raises InvalidQuery."""
    parts = [part for text in texts for part in _split(text)]
    if len(parts) > MOST_COMPARISONS:
        raise InvalidQuery(f"a query has at most {MOST_COMPARISONS} comparisons")
    comparisons = [_comparison(part, table) for part in parts]
    if sum(len(comparison.literals) for comparison in comparisons) > MOST_VALUES:
        raise InvalidQuery(f"a query compares with at most {MOST_VALUES:,} values")
    return comparisons


def holds(comparison: Comparison, found: Any, spelling: Any) -> bool:
    """Whether it holds for this value of its column, which was written as `spelling`."""
    value, op, literals = scalar(found), comparison.op, comparison.literals
    if op in ("=", "!="):
        equal = _equals(value, comparison)
        if isinstance(spelling, str):
            equal = equal or spelling in comparison.quoted
        return equal is (op == "=")
    if value is None:
        return False
    if op == "~":
        return literals[0].text in str(scalar(spelling))
    if isinstance(value, str):
        return literals[0].number is None and _ordered(op, value, literals[0].text)
    number = literals[0].number
    return number is not None and _ordered(op, value, number)


def _split(text: str) -> Iterator[str]:
    """The parts between &&, except && in quotes."""
    start = 0
    for match in _QUOTED_OR_AND.finditer(text):
        if match[0] == "&&":
            yield text[start : match.start()]
            start = match.end()
    yield text[start:]


def _comparison(text: str, table: list[Column]) -> Comparison:
    between = _BETWEEN.search(text)
    name = text[: between.start()].strip() if between else ""
    if between is None or not name:
        raise _no_comparison(text)
    column = find(table, name)
    value = text[between.end() :].strip()
    op = between["in"] or {"==": "="}.get(between[0], between[0])
    _check_value(text, op, value, table)
    parts = _parts(value) if op == "in" else [value]
    literals = tuple(map(_literal, parts))
    if column.kind is ColumnKind.OWN and op in _ORDERED:
        literals = (_with_unit(literals[0], column.key, value),)
    found = Comparison(
        column,
        "=" if op == "in" else op,
        literals,
        frozenset(literal.text for literal in literals),
        frozenset(literal.text for literal in literals if literal.number is None),
        frozenset(literal.number for literal in literals if literal.number is not None),
    )
    if column.kind is ColumnKind.OWN:
        _check_own(text, found)
    if column.reading == Reading.TEXT and op in _ORDERED and literals[0].number is not None:
        raise InvalidQuery(
            f"'{_shown(text)}': {column.name} is text, because some of its values only look like "
            f"numbers (007, 2024-05-01); compare it with text in quotes: {column.name} {op} "
            f"'{_shown(literals[0].text)}'"
        )
    return found


def _parts(value: str) -> Iterator[str]:
    """The parts between commas, except commas in quotes."""
    start = 0
    while start <= len(value):
        comma = _quoted_end(value, start)
        if comma < 0:
            comma = value.find(",", start)
        if comma < 0:
            comma = len(value)
        yield value[start:comma].strip()
        start = comma + 1


def _quoted_end(value: str, start: int) -> int:
    """Where the part that starts here ends, if the whole part is in quotes, else -1."""
    start = _not_space(value, start)
    quote = value[start : start + 1]
    close = value.find(quote, start + 1) if quote in ("'", '"') else -1
    if close < 0:
        return -1
    end = _not_space(value, close + 1)
    return end if value[end : end + 1] in ("", ",") else -1


def _not_space(text: str, start: int) -> int:
    while start < len(text) and text[start].isspace():
        start += 1
    return start


def _no_comparison(text: str) -> InvalidQuery:
    return InvalidQuery(
        f"'{_shown(text)}' is not a comparison; write it like 'alpha >= 0.5', 'host = n1', "
        "'output ~ error' or 'state in done,failed'"
    )


def _shown(text: str) -> str:
    """The beginning of the text, for a message."""
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _check_value(text: str, op: str, value: str, table: list[Column]) -> None:
    """Raises InvalidQuery for a value that can only be a mistake. Text may be anything; but without
    quotes, nobody means a text with operators or joints in it."""
    if op == "in" and value[:1] + value[-1:] in ("[]", "()", "{}"):
        words = "write it without brackets, like 'state in done,failed'"
        raise InvalidQuery(f"'{_shown(text)}': {words}")
    if op != "in" and _is_quoted(value):
        wrong = _AFTER_QUOTE[value[0]].search(value[1:-1]) is not None
    elif (op in _ORDERED and not value) or (op != "~" and _OPERATOR_FIRST.match(value)):
        raise _no_comparison(text)
    elif op in _ORDERED:
        wrong = _MORE.search(value) is not None
    else:
        wrong = _has_another(value, {column.name.lower() for column in table})
        if op in ("=", "!="):
            wrong = wrong or _MORE_THAN_TEXT.search(value) is not None
    if wrong:
        raise InvalidQuery(
            f"'{_shown(text)}': '{_shown(value)}' is not one value. Write several tests as a list, "
            "where=['y > 1', 'x < 4'], with several --where, or with && between them; all must "
            "hold. For one of several values write 'y in 1,2'. Text that looks like a test needs "
            "quotes: 'cause = \"a < b\"'"
        )
    if op in _ORDERED and any(value == column.name for column in table):
        words = "a column is compared with a value, not with another column"
        raise InvalidQuery(f"'{_shown(text)}': {words}")


def _has_another(value: str, names: set[str]) -> bool:
    """Whether a value goes on like 'x and NAME = y' or 'x, NAME = y'."""
    joint_end = -1
    for match in _JOINT_OR_OPERATOR.finditer(value):
        if match["joint"]:
            joint_end = match.end()
        elif joint_end >= 0:
            if value[joint_end : match.start()].strip().lower() in names:
                return True
            joint_end = -1
    return False


def _check_own(text: str, comparison: Comparison) -> None:
    """Check a comparison with one of our own columns, whose types are known. Raises
    InvalidQuery."""
    column, literals = comparison.column, comparison.literals
    if comparison.op in _ORDERED:
        is_text, is_number = column.reading == Reading.TEXT, literals[0].number is not None
        if is_text and is_number:
            raise InvalidQuery(
                f"'{_shown(text)}': {column.name} is text, and cannot be compared with a "
                f"number; write '{_shown(literals[0].text)}' in quotes to compare text"
            )
        if not is_text and not is_number:
            words = f"{column.name} is a number, '{_shown(literals[0].text)}' is not"
            raise InvalidQuery(f"'{_shown(text)}': {words}")
    elif column.key == "state" and comparison.op != "~":
        for literal in literals:
            if literal.text not in (DONE, FAILED):
                raise InvalidQuery(f"'{_shown(text)}': the state of a result is {DONE} or {FAILED}")


def _with_unit(literal: Literal, key: str, written: str) -> Literal:
    """Amounts may have units, as tables show them: memory_kb > 2GB, seconds > 5m."""
    if literal.number is not None or _is_quoted(written) or key not in _AMOUNTS:
        return literal
    try:
        return Literal(literal.text, _AMOUNTS[key].read_text(written))
    except BadAmount:
        return literal


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


def _equals(value: str | Number | None, comparison: Comparison) -> bool:
    """Whether it equals one of the literals."""
    if value is None:
        return "" in comparison.texts
    return value in (comparison.texts if isinstance(value, str) else comparison.numbers)


def _ordered(op: str, left: Any, right: Any) -> bool:
    if op == "<":
        return bool(left < right)
    if op == "<=":
        return bool(left <= right)
    return bool(left > right) if op == ">" else bool(left >= right)
