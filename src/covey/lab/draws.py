"""Random numbers in a world file: times, speeds, amounts.

90, 90s, 1.5m         always this value
10m..15m              uniform between the two
loguniform 5s..3h     the logarithm is uniform: each order of magnitude is equally likely
exponential 1h        exponential, with this mean
lognormal 10m 0.5     lognormal, with this median and this deviation of the logarithm
[12, 30, 1m]          one of these values, each equally likely: measured ones, say
"""

import math
from collections.abc import Iterable
from random import Random

from covey.core.values import amounts, time_spans


class Draw:
    """`kind` is constant, uniform, loguniform, exponential, lognormal or values."""

    def __init__(
        self, kind: str, first: float, second: float = 0.0, values: tuple[float, ...] = ()
    ) -> None:
        self.kind = kind
        self.first = first  # of values: the smallest
        self.second = second
        self.values = values

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
            case "values":
                return random.choice(self.values)
            case _:
                return random.lognormvariate(math.log(self.first), self.second)


def constant(value: float) -> Draw:
    return Draw("constant", value)


def one_of(values: Iterable[float]) -> Draw:
    found = tuple(values)
    return Draw("values", min(found), values=found)


seconds = amounts.Seconds().read  # of 90, 90s, 1.5m, 1h30m, 1d; raises BadAmount with words


def draw(value: object) -> Draw:
    """The draw that a value of a world file describes. Raises ValueError, with a message for
    people."""
    if isinstance(value, list):
        if not value:
            raise ValueError("an empty list has no value to draw")
        return one_of(seconds(each) for each in value)
    if not isinstance(value, str):
        return constant(seconds(value))
    text = value.strip()
    low, dots, high = text.partition("..")
    if dots:
        logarithmic = low.startswith("loguniform ")
        low = low.removeprefix("loguniform ") if logarithmic else low
        kind = "loguniform" if logarithmic else "uniform"
        between = Draw(kind, seconds(low), seconds(high))
        if between.second < between.first or (logarithmic and not between.first):
            raise ValueError(
                f"{value!r}: the first number must be smaller; for loguniform it must be above 0"
            )
        return between
    kind, *words = text.split()
    if kind == "exponential" and len(words) == 1:
        return Draw(kind, seconds(words[0]))
    if kind == "lognormal" and len(words) == 2 and seconds(words[0]) > 0:
        return Draw(kind, seconds(words[0]), seconds(words[1]))
    if time_spans.parse_seconds(text) is not None:
        return constant(seconds(text))
    raise ValueError(
        f"{value!r}: write a number or time such as 10m, 10m..15m, loguniform 5s..3h, "
        "exponential 1h or lognormal 10m 0.5"
    )
