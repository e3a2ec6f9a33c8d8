"""Every operator with every kind of value gives what the reference gives."""

import datetime
import math
from typing import Any

import classad2
import pytest

from covey.classad import ERROR, UNDEFINED, AbsTime, Ad, RelTime
from covey.classad.evaluation import evaluate
from covey.classad.nodes import ListNode, Literal, Node, Operation

LEAST, MOST = -(2**63), 2**63 - 1
NEW_YEAR = 1577836800
# The reference takes a time written as a literal for a real number: here are only computed ones.

VALUES: list[tuple[str, Any]] = [
    ("undefined", UNDEFINED),
    ("error", ERROR),
    ("true", True),
    ("false", False),
    *[(str(number), number) for number in (0, 1, -1, 2, 7, -7, 63, 64, 65, -64, LEAST, MOST)],
    *[(str(number), number) for number in (2**62, 2**53 + 1, -(2**53) - 1, 10**15)],
    *[(repr(number), number) for number in (0.0, -0.0, 1.0, -2.5, 0.5, 64.0, 1e300, -1e300, 1e19)],
    (repr(2.0**53), 2.0**53),
    *[(f'"{text}"', text) for text in ("", "a", "A", "b", "ab", "1", "é", "É", "true")],
    ("{}", ListNode(())),
    ("{1}", ListNode((Literal(1),))),
    ("[]", Ad()),
    ("[a=1]", Ad({"a": 1})),
    (f"absTime({NEW_YEAR}, 0)", AbsTime(NEW_YEAR, 0)),
    (f"absTime({NEW_YEAR}, 3600)", AbsTime(NEW_YEAR, 3600)),
    ("absTime(86400, 0)", AbsTime(86400, 0)),
    *[(f"relTime({span})", RelTime(span)) for span in (3600.0, 0.0, -86401.5, 5.0, 3e9)],
]
COMPARING = ["<", "<=", ">", ">=", "==", "!=", "is", "isnt"]
BINARY = [*COMPARING, "+", "-", "*", "/", "%", "&", "|", "^", "<<", ">>", ">>>", "&&", "||", "?:"]


def reference(text: str) -> Any:
    """The reference's value, as ours."""
    try:
        value = classad2.ExprTree(text).eval()
    except classad2.ClassAdException:
        return ERROR
    if isinstance(value, classad2.Value):
        return ERROR if value == classad2.Value.Error else UNDEFINED
    if isinstance(value, datetime.datetime):
        return AbsTime(int(value.timestamp()))  # the zone is lost on the way to Python
    if isinstance(value, float) and classad2.ExprTree(f"isReltime({text})").eval() is True:
        return RelTime(value)
    return value


def same(ours: Any, theirs: Any) -> bool:
    if isinstance(theirs, list | classad2.ClassAd):
        return isinstance(ours, list | Ad)
    if type(ours) is not type(theirs):
        return False
    if isinstance(ours, float) and math.isnan(ours):
        return math.isnan(theirs)
    if isinstance(ours, AbsTime):
        return bool(ours.seconds == theirs.seconds)
    return repr(ours) == repr(theirs)


def node(value: Any) -> Node:
    return value if isinstance(value, Node) else Literal(value)


def differences(op: str, pattern: str, count: int) -> list[str]:
    found = []
    for left, first in VALUES:
        for right, second in VALUES if count > 1 else [("", None)]:
            operands = (node(first), node(second))[:count]
            ours = evaluate(Operation(op, operands), Ad())
            theirs = reference(pattern.format(left, right))
            if not same(ours, theirs):
                found.append(f"{pattern.format(left, right)}: {ours!r}, reference {theirs!r}")
    return found


@pytest.mark.parametrize("op", BINARY)
def test_binary_operators(op: str) -> None:
    assert differences(op, "({0}) " + op + " ({1})", 2) == []


@pytest.mark.parametrize("op", list("-+!~"))
def test_unary_operators(op: str) -> None:
    assert differences(op, op + "({0})", 1) == []


def test_subscripts() -> None:
    assert differences("[]", "({0})[{1}]", 2) == []


def test_choices() -> None:
    for chosen in ("1", "error"):
        found = []
        for text, value in VALUES:
            operands = (node(value), node(1 if chosen == "1" else ERROR), node("no"))
            ours = evaluate(Operation("?:", operands), Ad())
            if not same(ours, reference(f'({text}) ? {chosen} : "no"')):
                found.append(f"{text} ? {chosen}: {ours!r}")
        assert found == []
