"""How long something lasts, as people write it: 90, 90s, 5m, 1.5h, 1h30m, 1d 12h, 2w, 1:30:00.

One rule for bag files, policies, settings, worlds and command lines. A bare number is seconds.
Units come from the longest to the shortest, each at most once. Batch systems write hours, minutes
and seconds, 36:00:00, with days before them, 1-12:00:00. Two numbers, 1:30, are refused: they could
be hours and minutes, or minutes and seconds.
"""

import re

_NUMBER = r"[0-9]{1,15}(?:\.[0-9]{1,20})?"
_UNITS = {"w": 604800.0, "d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0}
_PARTS = "".join(rf"(?:({_NUMBER})\s*{unit}\s*)?" for unit in _UNITS)
_WITH_UNITS = re.compile(_PARTS)
_BARE = re.compile(_NUMBER)
_LONGEST = 200  # characters
_CLOCK = re.compile(r"(?:([0-9]{1,5})-)?([0-9]{1,5}):([0-5][0-9]):([0-5][0-9])")
_LIKE_ONE = re.compile(r"\d+(?:\.\d+)?\s*[A-Za-z]+")
_CLOCK_UNITS = (86400.0, 3600.0, 60.0, 1.0)

EXAMPLES = "1h30m, 90s, 5m, 2h, 1d, 1:30:00"
_UNNAMED = _PARTS.replace("(" + _NUMBER + ")", _NUMBER)
_CLOCK_PATTERN = r"(?:[0-9]{1,5}-)?[0-9]{1,5}:[0-5][0-9]:[0-5][0-9]"
PATTERN = rf"^\s*(?:{_NUMBER}|{_CLOCK_PATTERN}|(?=[0-9]){_UNNAMED})\s*$"


def is_misspelt(text: str) -> bool:
    """Whether it is a number and a word, such as 30M or 30 minutes, but not a time span. To the
    policy language, 30M is 31,457,280."""
    return _LIKE_ONE.fullmatch(text.strip()) is not None and parse_seconds(text) is None


def parse_seconds(text: str, *, bare: bool = True) -> float | None:
    """None if the text is not a time span. `bare`: a number without a unit is seconds."""
    text = text.strip()
    if not text or len(text) > _LONGEST:
        return None
    if _BARE.fullmatch(text):
        return float(text) if bare else None
    match, units = _WITH_UNITS.fullmatch(text), tuple(_UNITS.values())
    if match is None:
        match, units = _CLOCK.fullmatch(text), _CLOCK_UNITS
    if match is None:
        return None
    amounts = zip(match.groups(), units, strict=True)
    return sum(float(amount) * unit for amount, unit in amounts if amount is not None)
