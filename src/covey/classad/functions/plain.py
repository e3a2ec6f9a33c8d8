"""Functions over numbers, strings and lists."""

import math
import re
from operator import eq, ge, gt, le, lt
from typing import Any, Callable, List

from covey.classad.functions.convert import boolean_of, clipped, integer_of, lower, real_of, text_of
from covey.classad.functions.table import row
from covey.classad.operators import operate
from covey.classad.times import truncated
from covey.classad.values import ERROR, UNDEFINED, Context, Value, kind, wrapped

_DIGITS = frozenset("0123456789")
_RUN = re.compile("[0-9]*")
_UPPER = {code: code - 32 for code in range(97, 123)}
_COMPARISONS = ("<", "<=", "!=", "==", ">", ">=", "is", "isnt")
_NUMBERS = (bool, int, float)


def _rounded(how: Callable[[float], int], value: Value) -> Value:
    number = value if value.__class__ is int else real_of(value)
    if number.__class__ is float:
        number = truncated(how(number) if math.isfinite(number) else number)
    return number if number.__class__ is int else ERROR


def _power(base: float, exponent: float) -> float:
    """C's pow, which raises no exceptions."""
    try:
        return math.pow(base, exponent)
    except ValueError:
        if base:
            return math.nan  # the root of a negative number
    except OverflowError:
        pass
    return -math.inf if exponent % 2 == 1 and math.copysign(1, base) < 0 else math.inf


def _pow(context: Context, base: Value, exponent: Value) -> Value:
    left, right = real_of(base), real_of(exponent)
    if left.__class__ is not float or right.__class__ is not float:
        return ERROR
    whole = base.__class__ is int and exponent.__class__ is int and right >= 0
    return truncated(_power(left, right) + 0.5) if whole else _power(left, right)


def _quantize(context: Context, value: Value, base: Value) -> Value:
    """The next multiple of the second argument, or the first number of a list that is as large."""
    number, steps = real_of(value), base if isinstance(base, list) else [base]
    if number.__class__ is not float:
        return ERROR
    last: Value = 0.0
    step = 0.0
    for last in steps:
        step = real_of(last)
        if step.__class__ is not float:
            return ERROR
        if step >= number and steps is base:
            return last
    if last.__class__ is int and value.__class__ is int and last:
        total = wrapped(value + last - 1)
        quotient = abs(total) // abs(last)
        return wrapped(last * (quotient if (total < 0) == (last < 0) else -quotient))
    if abs(step) <= 1e-8:
        return value
    number /= step
    return (-(-number // 1) if math.isfinite(number) else number) * step


def _random(context: Context, most: Value = 1.0) -> Value:
    most = clipped(most) if most.__class__ is int else most
    if most.__class__ not in (int, float) or not most > 0:
        return ERROR
    return most.__class__(context.random() * most)


def _is(name: str, context: Context, value: Value) -> bool:
    return kind(value) == name


def _size(context: Context, value: Value) -> Value:
    return len(value) if kind(value) in ("list", "string", "classad") else ERROR


def _member(op: str, context: Context, item: Value, within: Value) -> Value:
    if within is UNDEFINED or (item is UNDEFINED and op == "=="):
        return UNDEFINED
    unfit = kind(item) in ("list", "classad") or (item is ERROR and op == "==")
    if not isinstance(within, list) or unfit:
        return ERROR
    return any(operate(op, member, item, context) is True for member in within)


def _folded(op: str, context: Context, values: List[Value]) -> Value:
    """Sum (+), mean (/), least or greatest of the numbers; undefined values are left out."""
    numbers = [value for value in values if value is not UNDEFINED]
    if any(number.__class__ not in _NUMBERS for number in numbers):
        return ERROR
    if not numbers:
        return 0 if op in "+/" else UNDEFINED
    result = numbers[0]
    for number in numbers[1:]:
        if op in "+/":
            result = operate("+", result, number, context)
        else:  # both become numbers of one kind before they are compared
            common = float if float in (number.__class__, result.__class__) else int
            result = common(number if operate(op, number, result, context) is True else result)
    return operate("/", result, float(len(numbers)), context) if op == "/" else result


def _compare(every: bool, context: Context, op: Value, within: Value, other: Value) -> Value:
    if op is UNDEFINED or (op in _COMPARISONS and within is UNDEFINED):
        return UNDEFINED
    if op not in _COMPARISONS or not isinstance(within, list):
        return ERROR
    for member in within:
        holds = operate(op, member, other, context)
        if holds is not every:
            return False if holds is UNDEFINED else holds
    return every


def _strcat(context: Context, *values: Value) -> Value:
    texts = [text_of(context, value) for value in values]
    odd = next((text for text in texts if text.__class__ is not str), None)
    return "".join(texts) if odd is None else odd


def _join(context: Context, *values: Value) -> Value:
    """The first argument as separator between the others, or between the elements of the last."""
    if len(values) in (1, 2) and isinstance(values[-1], list):
        values = (*("", *values)[-2:-1], *values[-1])
    texts = [text_of(context, value) for value in values]
    if any(text is ERROR for text in texts):
        return ERROR
    parts = [text for text in texts[1:] if text is not UNDEFINED]
    if not parts and any(text is UNDEFINED for text in texts):
        return UNDEFINED
    while parts and not parts[0]:
        del parts[0]  # no separator before the first text that is not empty
    separator = "" if not texts or texts[0] is UNDEFINED else texts[0]
    context.spend(len(separator) * len(parts) >> 5)
    return separator.join(parts)


def _substr(context: Context, text: str, start: int, *length: int) -> Value:
    start = clipped(start)
    start = max(0, start + len(text)) if start < 0 else start
    size = clipped(length[0]) if length else len(text)
    return text[start : max(0, size + len(text)) if size < 0 else start + size]


def natural(left: str, right: str) -> int:
    """Compares two strings with runs of digits as numbers (strverscmp of C libraries)."""
    same, most = 0, min(len(left), len(right))
    while same < most:  # find the length of the common beginning
        middle = (same + most + 1) // 2
        if left[same:middle] == right[same:middle]:
            same = middle
        else:
            most = middle - 1
    one, other = left[same : same + 1], right[same : same + 1]
    difference = ord(one or "\0") - ord(other or "\0")
    first = len(left[:same].rstrip("0123456789"))
    if not difference or (first == same and not (one in _DIGITS and other in _DIGITS)):
        return difference
    runs = [_RUN.match(text, first).group() for text in (left, right)]  # type: ignore[union-attr]
    zeros = [len(run) - len(run.lstrip("0") or run[-1:]) for run in runs]
    if zeros[0] != zeros[1]:
        return zeros[1] - zeros[0]
    return (0 if zeros[0] else len(runs[0]) - len(runs[1])) or difference


def order(left: str, right: str) -> int:
    return (left > right) - (left < right)


def _with(how: Callable[..., Value], *first: Any) -> Callable[..., Value]:
    """`how` with its first arguments bound, before context and values."""
    return lambda *values: how(*first, *values)


for _kind in ("Undefined", "Error", "Boolean", "Integer", "Real", "String", "List", "ClassAd"):
    row("is" + _kind, "v", _with(_is, _kind.lower()))
row("isAbsTime", "v", _with(_is, "abstime"))
row("isRelTime", "v", _with(_is, "reltime"))
row("int", "v", lambda c, value: integer_of(value))
row("real", "v", lambda c, value: real_of(value))
row("string", "T", lambda c, text: text)
row("bool", "v", lambda c, value: boolean_of(value))
row("floor", "v", lambda c, value: _rounded(math.floor, value))
row("ceil ceiling", "v", lambda c, value: _rounded(math.ceil, value))
row("round", "v", lambda c, value: _rounded(round, value))
row("pow", "vv", _pow)
row("quantize", "vv", _quantize)
row("random", "|v", _random, pure=False)
row("size", "V", _size)
row("member", "vv", _with(_member, "=="))
row("identicalMember", "vv", _with(_member, "is"))
for _name, _op in (("sum", "+"), ("avg", "/"), ("min", "<"), ("max", ">")):
    row(_name, "L", _with(_folded, _op))
row("anyCompare", "vvv", _with(_compare, False))
row("allCompare", "vvv", _with(_compare, True))
row("strcat", "*", _strcat)
row("join", "*", _join)
row("toUpper", "T", lambda c, text: text.translate(_UPPER))
row("toLower", "T", lambda c, text: lower(text))
row("substr", "SI|I", _substr)
row("strcmp", "TT", lambda c, a, b: order(a, b))
row("stricmp", "TT", lambda c, a, b: order(lower(a), lower(b)))
row("versioncmp", "TT", lambda c, a, b: natural(a, b))
for _name, _test in (("LE", le), ("LT", lt), ("GE", ge), ("GT", gt), ("EQ", eq)):
    row("version" + _name, "TT", lambda c, a, b, test=_test: test(natural(a, b), 0))
row("version_in_range", "tTT", lambda c, a, b, top: natural(b, a) <= 0 <= natural(top, a))
