"""Reads and writes moments and spans as text, as the reference does."""

import calendar
import re
import time
from typing import List, Optional

from covey.classad.values import AbsTime

_DIGITS = re.compile(r"[0-9]+")
_ZONE = re.compile(r"(?:([zZ])\s*|([+-])([0-9]{2}):?([0-9]{2}))\Z", re.ASCII)
_SPAN = re.compile(  # reversed: an optional unit, then its number; at most one blank each
    r" ?(?:(?:[sS] ?|(?=\d))(\d*(?:\.\d*)?))? ?(?:[mM:] ?(\d*))? ?(?:[hH:] ?(\d*))?"
    r" ?(?:[dD+] ?(\d*))? ?(-)? ?",
    re.ASCII,
)
_FARTHEST = 1 << 55  # a billion years


def truncated(number: float, bits: int = 64) -> int:
    """As a C integer; if it does not fit, with the value that x86 gives."""
    top = 1 << bits - 1
    return int(number) if -top - 1 < number < top else -top


def parse_absolute(text: str, zone: int) -> Optional[AbsTime]:
    """Year, month, day, hours, minutes and seconds with anything between them, and a zone. Missing
    parts are 0 (even the day). None if it is not a moment, or the second before 1970, as in the
    reference."""
    match, local = _ZONE.search(text), zone
    if match and match.start() > 0:
        text = text[: match.start()]
        letter, sign, hours, minutes = match.groups()
        zone = 0 if letter else int(sign + hours) * 3600 + int(sign + minutes) * 60
    fields, place = [0, 1, 0, 0, 0, 0], 0
    for number, width in enumerate((4, 2, 2, 2, 2, 2)):
        digits = _DIGITS.search(text, place)
        place = digits.start() if digits else len(text)
        if digits and place <= len(text) - width:
            fields[number] = int(digits.group()[:width])
            place += width
        elif width == 4:
            return None
    years, month = divmod(fields[0] * 12 + fields[1] - 1, 12)
    cycles, year = divmod(years, 400)  # the calendar repeats then, and Python's has few years
    days = calendar.timegm((2000 + year, month + 1, 1, 0, 0, 0)) // 86400
    days += (cycles - 5) * 146097 + fields[2] - 1
    seconds = days * 86400 + fields[3] * 3600 + fields[4] * 60 + fields[5]
    wrong = _DIGITS.search(text, place) or seconds - local == -1
    return None if wrong else AbsTime(seconds - zone, zone)


def parse_relative(text: str) -> Optional[float]:
    """`[[[days+]hours:]minutes:]seconds`, or with the units d, h, m and s. None: not a span."""
    match = _SPAN.fullmatch(" ".join(text.split())[::-1]) if len(text) < 200 else None
    if not match:
        return None
    fraction, *others, minus = [(digits or "")[::-1] for digits in match.groups()]
    minutes, hours, days = [int(digits or 0) for digits in others]
    seconds = float(fraction) if fraction.strip(".") else 0.0
    seconds += days * 86400 + hours * 3600 + minutes * 60
    return -seconds if minus else seconds


def shown(seconds: int) -> time.struct_time:
    """The calendar fields of a moment, limited to the range of calendars."""
    return time.gmtime(max(-_FARTHEST, min(seconds, _FARTHEST)))


def in_parts(seconds: float) -> List[float]:
    """Days, hours, minutes and seconds, all with the sign of the whole, which is a C int."""
    whole = truncated(seconds, 32)
    sign, whole = (-1, -whole) if whole < 0 else (1, whole)
    parts = (whole // 86400, whole // 3600 % 24, whole // 60 % 60, whole % 60)
    *most, last = [sign * part for part in parts]
    return [*most, last + seconds % 1.0]


def format_absolute(moment: AbsTime) -> str:
    away = abs(moment.offset) // 60
    zone = "%s%02d:%02d" % ("+" if moment.offset > 0 else "-", away // 60, away % 60)
    return "%d-%02d-%02dT%02d:%02d:%02d" % shown(moment.seconds + moment.offset)[:6] + zone


def format_relative(seconds: float) -> str:
    """`days+hh:mm:ss` without leading parts that are 0, and with a fraction if there is one."""
    *parts, rest = in_parts(abs(seconds))
    text = "%d+%02d:%02d:" % tuple(parts)
    text = text if parts[0] else text[2:] if parts[1] else text[5:] if parts[2] else ""
    return "-" * (seconds < 0) + text + ("%02g" if rest % 1 else "%02d") % rest
