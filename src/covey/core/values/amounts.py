"""Reads amounts that people write: whole numbers, sizes with a unit, time spans, factors.

One rule for bag files, settings, worlds, command lines, and parameters from which resources come.
A size needs its unit; a time without a unit is seconds.
"""

import math
import re
from typing import Any, Protocol

from covey.core.values import time_spans
from covey.core.values.scalars import by_value

SIZES = {"k": 1, "m": 1 << 10, "g": 1 << 20, "t": 1 << 30}  # in kB
MOST_SECONDS = 10**9

_SIZE = re.compile(r"([0-9]{1,20}(?:\.[0-9]{1,20})?)\s*([kmgt])(?:i?b)?", re.IGNORECASE | re.ASCII)
_SIZE_PATTERN = r"^\s*[0-9]{1,20}(\.[0-9]{1,20})?\s*[kKmMgGtT]([iI]?[bB])?\s*$"
_FACTOR = re.compile(r"(?:[x×*]\s*(\d+(?:\.\d+)?)|\+\s*(\d+(?:\.\d+)?)\s*%)")
_LONGEST_SHOWN = 60


class BadAmount(ValueError):
    """The value cannot be read as an amount; the text says what was expected."""


class Amount(Protocol):
    """How one kind of amount is read (both ways raise BadAmount), and its JSON Schema."""

    def read(self, value: object) -> float:
        """A value of a bag file."""
        ...

    def read_text(self, text: str) -> float:
        """Text, such as the value of a parameter. The number that it spells counts, so 4.0 is the
        whole number 4."""
        ...

    def schema(self) -> dict[str, Any]: ...


class Whole:
    """A whole number between bounds."""

    def __init__(self, low: int, high: int) -> None:
        self.low, self.high = low, high

    def read(self, value: object) -> int:
        expected = f"expected a whole number from {self.low:,} to {self.high:,}"
        if not isinstance(value, int) or isinstance(value, bool):
            raise BadAmount(f"{expected}, not {show(value)}")
        if not self.low <= value <= self.high:
            raise BadAmount(f"{expected}, not {value:,}")
        return value

    def read_text(self, text: str) -> int:
        value = by_value(text.strip())
        whole = isinstance(value, float) and value.is_integer() and abs(value) < 2**53
        return self.read(int(value) if whole else value)

    def schema(self) -> dict[str, Any]:
        return {"type": "integer", "minimum": self.low, "maximum": self.high}


class Seconds:
    """A time span, in seconds."""

    def __init__(self, low: float = 0.0, high: float = MOST_SECONDS, *, bare: bool = True) -> None:
        self.low, self.high = low, high
        self._bare = bare  # text without a unit is a number of seconds

    def read(self, value: object) -> float:
        expected = f"expected a time: seconds, or {time_spans.EXAMPLES}"
        if isinstance(value, int | float) and not isinstance(value, bool):
            seconds = float(value)
        else:
            parsed = (
                time_spans.parse_seconds(value, bare=self._bare) if isinstance(value, str) else None
            )
            if parsed is None:
                raise BadAmount(f"{expected}; not {show(value)}")
            seconds = parsed
        if not self.low <= seconds < self.high:
            raise BadAmount(f"{expected}; {show(value)} is out of range")
        return seconds

    def read_text(self, text: str) -> float:
        return self.read(by_value(text.strip()))

    def schema(self) -> dict[str, Any]:
        number = {"type": "number", "minimum": self.low}
        return {"anyOf": [number, {"type": "string", "pattern": time_spans.PATTERN}]}


class Size:
    """Whole kB or MB, rounded up. 1 GB is 1024 MB here."""

    def __init__(self, unit: str, high: str, least: int = 1) -> None:
        self._divisor = SIZES[unit]
        self._least, self._high = least, high
        self._most = self._parse(high)

    def read(self, value: object) -> int:
        number = by_value(value.strip()) if isinstance(value, str) else value
        if isinstance(number, int | float) and not isinstance(number, bool):
            raise BadAmount(f"a size needs its unit: '{value} MB' or '{value} GB'")
        size = self._parse(value.strip()) if isinstance(value, str) else -1
        if size < 0:
            raise BadAmount(f"expected a size such as '500 MB' or '2 GB', not {show(value)}")
        if not self._least <= size <= self._most:
            raise BadAmount(f"expected a size up to {self._high}, not {show(value)}")
        return size

    def read_text(self, text: str) -> int:
        return self.read(text)

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "pattern": _SIZE_PATTERN}

    def _parse(self, text: str) -> int:
        match = _SIZE.fullmatch(text)
        if match is None:
            return -1
        return math.ceil(float(match[1]) * SIZES[match[2].lower()] / self._divisor)


class Factor:
    """A factor: x2, or +50% for 1.5."""

    def __init__(self, low: float, high: float) -> None:
        self.low, self.high = low, high

    def read(self, value: object) -> float:
        expected = "expected how much more: 'x2' or '+50%'"
        match = _FACTOR.fullmatch(value.strip()) if isinstance(value, str) else None
        if match is None:
            raise BadAmount(f"{expected}; not {show(value)}")
        factor = float(match[1]) if match[1] else 1 + float(match[2]) / 100
        if not self.low <= factor <= self.high:
            raise BadAmount(f"{expected}, up to x{self.high:g}; not {show(value)}")
        return factor

    def read_text(self, text: str) -> float:
        return self.read(text)

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "pattern": f"^\\s*{_FACTOR.pattern}\\s*$"}


def show(value: object) -> str:
    """A value in a message."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list):
        return "a list"
    text = repr(value) if isinstance(value, str | int | float) else str(value)
    return text if len(text) <= _LONGEST_SHOWN else text[: _LONGEST_SHOWN - 3] + "…"
