"""Numbers that differ: how a world file says how long, how fast, how much.

90, 90s, 1.5m         always the same
10m..15m              anything between the two, equally likely
loguniform 5s..3h     likewise, of their logarithms: each order of magnitude is equally likely
exponential 1h        with this mean
lognormal 10m 0.5     with this median, and this deviation of the logarithm
"""

import math
import re
from random import Random

_NUMBER = re.compile(r"(\d+(?:\.\d+)?)\s*([smhd]?)")
_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_RANGE = re.compile(r"(?:(loguniform)\s+)?(.+?)\s*\.\.\s*(.+)")


class Draw:
    """`kind` is constant, uniform, loguniform, exponential or lognormal."""

    def __init__(self, kind: str, first: float, second: float = 0.0) -> None:
        self.kind = kind
        self.first = first
        self.second = second

    def draw(self, random: Random) -> float:
        match self.kind:
            case "constant":
                return self.first
            case "uniform":
                return random.uniform(self.first, self.second)
            case "loguniform":
                return math.exp(random.uniform(math.log(self.first), math.log(self.second)))
            case "exponential":
                return random.expovariate(1.0 / self.first) if self.first else 0.0
            case _:
                return random.lognormvariate(math.log(self.first), self.second)


def constant(value: float) -> Draw:
    return Draw("constant", value)


def seconds(given: object) -> float:
    """Of 90, 90s, 1.5m, 2h, 1d. Raises ValueError with words."""
    if isinstance(given, int | float) and not isinstance(given, bool) and given >= 0:
        return float(given)
    found = _NUMBER.fullmatch(given.strip()) if isinstance(given, str) else None
    if found is None:
        raise ValueError(f"{given!r} is no number or time such as 90, 30s, 10m, 2h, 1d")
    return float(found[1]) * _UNITS[found[2]]


def draw(given: object) -> Draw:
    """What a world file says. Raises ValueError with words."""
    if not isinstance(given, str):
        return constant(seconds(given))
    text = given.strip()
    span = _RANGE.fullmatch(text)
    if span is not None:
        found = Draw(span[1] or "uniform", seconds(span[2]), seconds(span[3]))
        if found.second < found.first or (span[1] and not found.first):
            raise ValueError(f"{given!r}: the first must be smaller, and of a loguniform above 0")
        return found
    kind, *words = text.split()
    if kind == "exponential" and len(words) == 1:
        return Draw(kind, seconds(words[0]))
    if kind == "lognormal" and len(words) == 2 and seconds(words[0]) > 0:
        return Draw(kind, seconds(words[0]), seconds(words[1]))
    if _NUMBER.fullmatch(text):
        return constant(seconds(text))
    raise ValueError(
        f"{given!r} is none of: 10m, 10m..15m, loguniform 5s..3h, exponential 1h, lognormal 10m 0.5"
    )
