"""Conversions between kinds of values, by the rules of the reference."""

import math
import re
from typing import Any

from covey.classad.ads import Ad
from covey.classad.nodes import Literal, Node
from covey.classad.times import format_absolute, format_relative, truncated
from covey.classad.unparse import unparse
from covey.classad.values import ERROR, UNDEFINED, AbsTime, Context, RelTime, Value

_NUMBER = re.compile(  # as C's strtod reads a number
    r"[+-]?(?:0x(?=\.?[0-9a-f])[0-9a-f]*(?:\.[0-9a-f]*)?(?:p[+-]?\d+)?"
    r"|(?=\.?\d)\d*(?:\.\d*)?(?:e[+-]?\d+)?|inf|nan)",
    re.ASCII | re.IGNORECASE,
)
_LOWER = {code: code + 32 for code in range(65, 91)}


def odd(value: Value) -> Value:
    """The usual result for a value of the wrong kind."""
    return UNDEFINED if value is UNDEFINED else ERROR


def lower(text: str) -> str:
    """Only ASCII letters in lower case, as in all comparisons of the language."""
    return text.translate(_LOWER)


def number_in(text: str) -> Value:
    """The number at the beginning of the text, else ERROR."""
    match = _NUMBER.match(text.lstrip(" \t\n\v\f\r"))
    if not match:
        return ERROR
    digits = match.group()
    try:
        return float.fromhex(digits) if "x" in digits.lower() else float(digits)
    except OverflowError:
        return math.copysign(math.inf, -(digits[0] == "-"))


def clipped(number: int) -> int:
    """The lowest 32 bits, as in a C int."""
    return ((number + (1 << 31)) & 0xFFFFFFFF) - (1 << 31)


def real_of(value: Value) -> Value:
    """A float, or UNDEFINED or ERROR."""
    kind = value.__class__
    if kind is str:
        return number_in(value)
    if kind is AbsTime or kind is RelTime:
        value = truncated(value.seconds, 32) if kind is RelTime else value.seconds
    elif kind not in (int, float, bool):
        return odd(value)
    return float(value)


def integer_of(value: Value) -> Value:
    """An int, or UNDEFINED or ERROR."""
    if value.__class__ is int:
        return value
    real = real_of(value)
    return truncated(real) if real.__class__ is float else real


def boolean_of(value: Value) -> Value:
    if value.__class__ is str:
        return {"true": True, "false": False}.get(lower(value), UNDEFINED)
    if isinstance(value, AbsTime):
        return ERROR
    real = real_of(value)
    return real != 0 if real.__class__ is float else real


def text_of(context: Context, value: Value) -> Value:
    """A string, or UNDEFINED or ERROR."""
    if value.__class__ is str or value is UNDEFINED or value is ERROR:
        return value
    if isinstance(value, AbsTime):
        return format_absolute(value)
    if isinstance(value, RelTime):
        return format_relative(truncated(value.seconds, 32))
    return written(context, value)


def written(context: Context, value: Value) -> str:
    """The reference's text of a value; its cost is counted before it is made."""
    _pay(context, value)
    return unparse(value, True)


def _pay(context: Context, value: Value) -> None:
    value = value.value if isinstance(value, Literal) else value
    sized = isinstance(value, (str, list, Ad))
    context.spend(4 + (len(value) >> 4 * isinstance(value, str) if sized else 0))
    inside: Any = ()
    if isinstance(value, (list, Node)):
        inside = value.children if isinstance(value, Node) else getattr(value, "nodes", value)
    for item in inside:
        _pay(context, item)
