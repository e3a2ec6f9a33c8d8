"""How much memory or time tasks get when they run again: so many times as much (`x2`, `+50%`), or
an amount (`2GB`, `90m`)."""

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
    """So many times as much or, if it is not 0, this amount: megabytes, or seconds."""

    times: float = 1.0
    amount: float = 0.0


def read_memory(text: str) -> More:
    """Raises ValueError, with words."""
    times = _times(text)
    if times is not None:
        return More(times)
    try:
        return More(amount=_MEMORY.read(Sheet(), (), text))
    except Wrong:
        raise ValueError(f"{text!r}: write +50% or x2, or an amount such as 2GB") from None


def read_time(text: str) -> More:
    """Raises ValueError, with words. A number needs its unit: nobody knows whether 2 means x2."""
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
    """1.5 for +50%, 2 for x2; None if it is written otherwise, or out of range."""
    match = _FACTOR.fullmatch(text.strip())
    if match is None:
        return None
    percent, times = match["percent"], match["times"]
    factor = 1 + float(percent) / 100 if percent else float(times)
    return factor if 0 < factor <= MOST_TIMES and not math.isnan(factor) else None
