"""What operators do with values, as in the reference: every operator takes every kind of value, and
undefined and error are values too.

Each function takes its operands and the context, which counts the cost of long strings. The logical
operators come in halves, so that code can decide in between whether to evaluate the second operand:
see `yes` and `no`.
"""

import operator
from typing import Any, Callable, Dict

from covey.classad.times import truncated
from covey.classad.values import (
    ERROR,
    UNDEFINED,
    AbsTime,
    Context,
    RelTime,
    Special,
    Value,
    folded,
    wrapped,
)

Binary = Callable[[Value, Value, Context], Value]
NUMBERS = frozenset([int, float])
COUNTS = frozenset([int, float, bool])
SIMPLE = frozenset([int, float, bool, str, AbsTime, RelTime])
INFINITY = float("inf")
MOST = (1 << 63) - 1


def odd(a: Value, b: Value) -> Value:
    """The result of a strict operator for values that it does not accept."""
    if a is ERROR or b is ERROR:
        return ERROR
    return UNDEFINED if a is UNDEFINED or b is UNDEFINED else ERROR


def comparison(test: Callable[[Any, Any], bool]) -> Binary:
    def compare(a: Value, b: Value, context: Context) -> Value:
        first, second = a.__class__, b.__class__
        if first is second:
            if first in COUNTS:
                return test(a, b)
            if first is str:
                context.spend(len(a) + len(b) >> 6)
                return test(folded(a), folded(b))
            if first is AbsTime or first is RelTime:
                return test(a.seconds, b.seconds)
        elif first in COUNTS and second in COUNTS:
            if first is float or second is float:
                return test(float(a), float(b))
            return test(a, b)
        return odd(a, b)

    return compare


def identical(a: Value, b: Value, context: Context) -> Value:
    if a.__class__ is not b.__class__:
        return False
    if a.__class__ in SIMPLE:
        return bool(a == b)
    return a is b if a.__class__ is Special else ERROR


def different(a: Value, b: Value, context: Context) -> Value:
    same = identical(a, b, context)
    return same if same is ERROR else not same


def arithmetic(
    op: str, whole: Callable[[Any, Any], Any], real: Callable[[Any, Any], Any]
) -> Binary:
    def calculate(a: Value, b: Value, context: Context) -> Value:
        first, second = a.__class__, b.__class__
        if first in COUNTS and second in COUNTS:
            if first is float or second is float:
                result = real(float(a), float(b))
                return ERROR if result == INFINITY else result
            result = whole(a, b)
            return result if result is ERROR or -MOST < result < MOST else wrapped(result)
        return timely(op, a, b)

    return calculate


def quotient(a: int, b: int) -> Value:
    if not b:
        return ERROR
    result = abs(a) // abs(b)
    return min(result, MOST) if (a < 0) == (b < 0) else -result


def remainder(a: int, b: int) -> Value:
    if not b:
        return ERROR
    return abs(a) % abs(b) if a >= 0 else -(abs(a) % abs(b))


def real_quotient(a: float, b: float) -> float:
    if b:
        return a / b
    if a == 0 or a != a:
        return float("nan")
    return INFINITY if (a > 0) == (str(b)[0] != "-") else -INFINITY


def timely(op: str, a: Value, b: Value) -> Value:
    """Sums and differences of times, and multiples of spans."""
    kinds, sign = (a.__class__, b.__class__), -1 if op == "-" else 1
    if op in "+-":
        if kinds == (AbsTime, RelTime):
            return AbsTime(a.seconds + sign * truncated(b.seconds, 32), a.offset)
        if kinds == (RelTime, AbsTime) and op == "+":
            return AbsTime(b.seconds + truncated(a.seconds, 32), b.offset)
        if kinds == (RelTime, RelTime):
            return RelTime(a.seconds + sign * b.seconds)
        if kinds == (AbsTime, AbsTime) and op == "-":
            return RelTime(float(a.seconds - b.seconds))
    elif kinds[0] is RelTime and kinds[1] in NUMBERS and op in "*/":
        return RelTime(a.seconds * b if op == "*" else real_quotient(a.seconds, float(b)))
    elif kinds[1] is RelTime and kinds[0] in NUMBERS and op == "*":
        return RelTime(a * b.seconds)
    return odd(a, b)


def bitwise(change: Callable[[int, int], int]) -> Binary:
    def combine(a: Value, b: Value, context: Context) -> Value:
        return change(a, b) if a.__class__ is b.__class__ is int else odd(a, b)

    return combine


def shift_right(a: int, b: int) -> int:
    return a >> (b & 63) if a >= 0 else a >> min(max(b, 0), 64)


def shift_unsigned(a: int, b: int) -> int:
    return a >> (b & 63) if a >= 0 else (a >> 1 & MOST) >> (b - 1 & 63)


def negative(a: Value, context: Context) -> Value:
    if a.__class__ is int:
        return wrapped(-a)
    if a.__class__ is RelTime:
        return RelTime(-a.seconds)
    return -a if a.__class__ is float else odd(a, a)


def positive(a: Value, context: Context) -> Value:
    return a if a.__class__ in NUMBERS or a.__class__ is RelTime else odd(a, a)


def inverted(a: Value, context: Context) -> Value:
    return ~a if a.__class__ is int else odd(a, a)


def opposite(a: Value, context: Context) -> Value:
    if a.__class__ is not bool:
        a = truth(a)
    return a if a.__class__ is Special else not a


def truth(a: Value) -> Value:
    """True, False, UNDEFINED or ERROR: a number is true unless it is 0; other kinds are errors."""
    if a.__class__ is bool or a.__class__ is Special:
        return a
    return a != 0 if a.__class__ in NUMBERS else ERROR


def yes(a: Value, context: Context) -> bool:
    """Whether `a` is true. If not, `context.no` says whether it is false; `context.kept` has it."""
    if a is True:
        return True
    context.kept = a = truth(a)
    context.no = a is False
    return a is True


def no(a: Value, context: Context) -> bool:
    """Whether `a` is false; `context.kept` has it if not."""
    context.kept = a = a if a.__class__ is bool else truth(a)
    return a is False


def both(a: Value, b: Value) -> Value:
    """`a && b`, where `a` is a result of `truth` and not false."""
    b = b if b.__class__ is bool else truth(b)
    return b if a is True or b is ERROR else a if a is ERROR or b is True else b


def either(a: Value, b: Value) -> Value:
    """`a || b`, where `a` is a result of `truth` and not true."""
    b = b if b.__class__ is bool else truth(b)
    return b if a is False or b is ERROR else a if a is ERROR or b is False else b


def defined(a: Value, context: Context) -> bool:
    """Whether `a` is not undefined; `context.kept` has it."""
    context.kept = a
    return a is not UNDEFINED


BINARY: Dict[str, Binary] = {
    "<": comparison(operator.lt),
    "<=": comparison(operator.le),
    ">": comparison(operator.gt),
    ">=": comparison(operator.ge),
    "==": comparison(operator.eq),
    "!=": comparison(operator.ne),
    "is": identical,
    "isnt": different,
    "=?=": identical,
    "=!=": different,
    "+": arithmetic("+", operator.add, operator.add),
    "-": arithmetic("-", operator.sub, operator.sub),
    "*": arithmetic("*", operator.mul, operator.mul),
    "/": arithmetic("/", quotient, real_quotient),
    "%": arithmetic("%", remainder, lambda a, b: INFINITY),
    "&": bitwise(operator.and_),
    "|": bitwise(operator.or_),
    "^": bitwise(operator.xor),
    "<<": bitwise(lambda a, b: wrapped(a << (b & 63))),
    ">>": bitwise(shift_right),
    ">>>": bitwise(shift_unsigned),
    "&&": lambda a, b, context: False if no(a, context) else both(context.kept, b),
    "||": lambda a, b, context: True if yes(a, context) else either(context.kept, b),
}
UNARY = {"-": negative, "+": positive, "!": opposite, "~": inverted}


def operate(op: str, a: Value, b: Value, context: Context) -> Value:
    """The value of `a op b`."""
    return BINARY[op](a, b, context)
