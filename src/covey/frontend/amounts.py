"""How much memory or time tasks get when they run again: a factor (`x2`, `+50%`), or an amount
(`2GB`, `90m`)."""

from typing import NamedTuple

from covey.core.values.amounts import Amount, BadAmount, Factor, Seconds, Size

_FACTOR = Factor(0.001, 1000)
_MEMORY = Size("m", "900 TB")
_TIME = Seconds(0.001, bare=False)  # a bare 2 could mean x2


class More(NamedTuple):
    times: float = 1.0
    amount: float = 0.0  # megabytes or seconds; 0: multiply by `times` instead


def read_memory(text: str) -> More:
    """Raises ValueError, with words."""
    return _read(text, _MEMORY, "2GB")


def read_time(text: str) -> More:
    """Raises ValueError, with words."""
    return _read(text, _TIME, "90s, 5m, 2h")


def _read(text: str, kind: Amount, examples: str) -> More:
    try:
        return More(_FACTOR.read(text))
    except BadAmount:
        pass
    try:
        return More(amount=kind.read(text))
    except BadAmount:
        raise ValueError(f"{text!r}: write +50% or x2, or an amount such as {examples}") from None
