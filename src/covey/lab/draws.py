"""Numbers that differ: how a world file says how long, how fast, how much.

90, 90s, 1.5m         always the same
10m..15m              anything between the two, equally likely
loguniform 5s..3h     likewise, of their logarithms: each order of magnitude is equally likely
exponential 1h        with this mean
lognormal 10m 0.5     with this median, and this deviation of the logarithm
"""

import math
from random import Random

from covey.core.values import amounts, time_spans


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


seconds = amounts.Seconds().read  # of 90, 90s, 1.5m, 1h30m, 1d; raises BadAmount with words


def draw(given: object) -> Draw:
    """What a world file says. Raises ValueError with words."""
    if not isinstance(given, str):
        return constant(seconds(given))
    text = given.strip()
    low, dots, high = text.partition("..")
    if dots:
        logarithmic = low.startswith("loguniform ")
        low = low.removeprefix("loguniform ") if logarithmic else low
        kind = "loguniform" if logarithmic else "uniform"
        found = Draw(kind, seconds(low), seconds(high))
        if found.second < found.first or (logarithmic and not found.first):
            raise ValueError(f"{given!r}: the first must be smaller, and of a loguniform above 0")
        return found
    kind, *words = text.split()
    if kind == "exponential" and len(words) == 1:
        return Draw(kind, seconds(words[0]))
    if kind == "lognormal" and len(words) == 2 and seconds(words[0]) > 0:
        return Draw(kind, seconds(words[0]), seconds(words[1]))
    if time_spans.parse_seconds(text) is not None:
        return constant(seconds(text))
    raise ValueError(
        f"{given!r} is none of: 10m, 10m..15m, loguniform 5s..3h, exponential 1h, lognormal 10m 0.5"
    )
