"""How much memory or time tasks get when they run again: a factor (`x2`, `+50%`), or an amount
(`2GB`, `90m`)."""

import math
import re
from typing import NamedTuple

from covey.bagfile.kinds import Size, Time, Wrong
from covey.bagfile.sheet import Sheet

MOST_TIMES = 1000
_FACTOR = re.compile(r"\+(?P<percent>\d+(?:\.\d+)?)%|[x×](?P<times>\d+(?:\.\d+)?)")
_MEMORY = Size("m", "900 TB")
_TIME = Time(0.001)


class More(NamedTuple):
    times: float = 1.0
    amount: float = 0.0  # megabytes or seconds; 0: multiply by `times` instead


def read_memory(text: str) -> More:
    """Raises ValueError, with a message for people."""
    times = _times(text)
    if times is not None:
        return More(times)
    try:
        return More(amount=_MEMORY.read(Sheet(), (), text))
    except Wrong:
        raise ValueError(f"{text!r}: write +50% or x2, or an amount such as 2GB") from None


def read_time(text: str) -> More:
    """A number without a unit is refused, because 2 might mean x2. Raises ValueError, with a
    message for people."""
    times = _times(text)
    if times is not None:
        return More(times)
    try:
        if text.strip()[-1:].isdigit():
            raise Wrong
        return More(amount=_TIME.read(Sheet(), (), text))
    except Wrong:
        raise ValueError(f"{text!r}: write +50% or x2, or an amount such as 90s, 5m, 2h") from None


def _times(text: str) -> float | None:
    """1.5 for +50%, 2 for x2; None if the text is not such a factor, or it is out of range."""
    match = _FACTOR.fullmatch(text.strip())
    if match is None:
        return None
    percent, times = match["percent"], match["times"]
    factor = 1 + float(percent) / 100 if percent else float(times)
    return factor if 0 < factor <= MOST_TIMES and not math.isnan(factor) else None
