"""Values as both sides describe them, so that they can be compared: type first, then value."""

import math
from typing import Any

Shape = list[Any]
# libm of the wheel and libm of Python may differ in the last places of these.
INEXACT = 4e-15


def same(ours: Shape, theirs: Shape, inexact: bool = False) -> bool:
    if ours[0] != theirs[0]:
        return False
    if ours[0] in ("real", "reltime"):
        return _same_number(float.fromhex(ours[1]), float.fromhex(theirs[1]), inexact)
    if ours[0] == "list" and len(ours) == len(theirs) == 3:
        pairs = zip(ours[2], theirs[2], strict=False)
        return ours[1] == theirs[1] and all(same(one, other, inexact) for one, other in pairs)
    if ours[0] == "classad" and ours != theirs:
        if len(ours[1]) != len(theirs[1]) or not all(isinstance(x, list) for x in ours[1]):
            return False
        return all(
            one[0] == other[0] and same(one[1], other[1], inexact)
            for one, other in zip(ours[1], theirs[1], strict=True)
        )
    return ours == theirs


def _same_number(one: float, other: float, inexact: bool) -> bool:
    if math.isnan(one) or math.isnan(other):
        return math.isnan(one) and math.isnan(other)
    if one == other:
        return math.copysign(1, one) == math.copysign(1, other)
    return inexact and math.isclose(one, other, rel_tol=INEXACT)


def show(shape: Shape) -> str:
    """Short, for a person."""
    if shape[0] in ("real", "reltime"):
        return f"{shape[0]} {float.fromhex(shape[1])!r}"
    if shape[0] == "list" and len(shape) == 3:
        return "{" + ", ".join(map(show, shape[2])) + "}"
    if shape[0] == "classad":
        if not all(isinstance(pair, list) for pair in shape[1]):
            return "[" + "; ".join(f"{name} = …" for name in shape[1]) + "]"
        return "[" + "; ".join(f"{name} = {show(value)}" for name, value in shape[1]) + "]"
    return " ".join([shape[0], *(repr(part) for part in shape[1:])])
