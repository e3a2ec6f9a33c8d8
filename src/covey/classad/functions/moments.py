"""Functions about time; the clock and the zone come from the context."""

import calendar
import re
import time
from typing import Optional

from covey.classad.ads import Ad
from covey.classad.functions.convert import clipped, integer_of, odd
from covey.classad.functions.table import row
from covey.classad.times import in_parts, shown, truncated
from covey.classad.values import ERROR, UNDEFINED, AbsTime, Context, RelTime, Value

_PARTS = ("Year", "Month", "Day", "Hours", "Minutes", "Seconds")
_OF_SPAN = ("Days", "Hours", "Minutes", "Seconds")
# In the order of struct_time.
_FIELDS = ("Year", "Month", "DayOfMonth", "Hours", "Minutes", "Seconds", "DayOfWeek", "DayOfYear")


def _field(context: Context, value: Value, name: str) -> Value:
    if isinstance(value, RelTime) and name in _OF_SPAN:
        return int(in_parts(truncated(value.seconds, 32))[_OF_SPAN.index(name)])
    if not isinstance(value, AbsTime) or name not in _FIELDS:
        return ERROR
    field = shown(value.seconds + context.zone)[_FIELDS.index(name)]
    return (field + 1) % 7 if name == "DayOfWeek" else field - (name == "DayOfYear")


def _small(value: Value) -> Optional[int]:
    """A number or a span as a C int; None for other values."""
    if value.__class__ is int:
        return clipped(value)
    value = value.seconds if isinstance(value, RelTime) else value
    return truncated(value, 32) if value.__class__ is float else None


def _fields(context: Context, value: Value) -> Optional[time.struct_time]:
    """The fields of a moment, of a number of seconds in our zone, or of an ad that has them."""
    if isinstance(value, Ad):
        parts = [value.evaluate(name) for name in _PARTS]
        try:
            fields = shown(calendar.timegm(tuple(parts)))
        except (TypeError, ValueError, OverflowError):
            return None
        return fields if list(fields[:6]) == parts else None
    if value.__class__ in (int, float):
        seconds = value if value.__class__ is int else truncated(value, 32)
        return shown(seconds + context.zone)
    return shown(value.seconds + value.offset) if isinstance(value, AbsTime) else None


def _split_time(context: Context, value: Value) -> Value:
    if isinstance(value, RelTime):
        parts = in_parts(abs(value.seconds))
        if value.seconds < 0:  # the first part that is not 0 has the sign
            first = next((place for place in range(3) if parts[place] > 0), 3)
            parts[first] = -parts[first]
        return Ad([("Type", "RelativeTime"), *zip(_OF_SPAN, parts)])
    fields = None if isinstance(value, Ad) else _fields(context, value)
    if fields is None:
        return ERROR
    offset = value.offset if isinstance(value, AbsTime) else context.zone
    return Ad([("Type", "AbsoluteTime"), *zip(_PARTS, fields), ("Offset", offset)])


def _format_time(context: Context, *values: Value) -> Value:
    value = values[0] if values else int(context.now)
    form = values[1] if values[1:] else "%c"
    fields = _fields(context, value)
    if fields is None or form.__class__ is not str or len(form) > 250:
        return ERROR
    context.spend(len(form))
    try:  # parts that depend on this machine's zone are those of UTC
        fixed = {"%%": "%%", "%Z": "UTC", "%z": "+0000", "%s": str(calendar.timegm(fields))}
        return time.strftime(re.sub("%[%Zzs]", lambda m: fixed[m.group()], form), fields)
    except ValueError:
        return ERROR


def _interval(context: Context, value: Value) -> Value:
    total = integer_of(value)
    if total.__class__ is not int:
        return ERROR
    parts = in_parts(clipped(total))
    first = next((place for place in range(3) if parts[place]), 3)
    text = "%d" % parts[first]
    for place in range(first + 1, 4):
        text += ("+%02d" if place == 1 else ":%02d") % abs(parts[place])
    return text


def _absolute(context: Context, *values: Value) -> Value:
    """A single literal string became a moment when it was parsed; other strings stay strings."""
    value = values[0] if values else AbsTime(int(context.now), context.zone)
    offset = _small(values[1]) if values[1:] else context.zone
    if offset is None or (offset == -1 and value.__class__ is int):
        return ERROR
    if value is UNDEFINED or value.__class__ is str or isinstance(value, AbsTime):
        return value
    seconds = _small(value)
    return ERROR if seconds is None else AbsTime(seconds, offset)


def _relative(context: Context, value: Value, *more: Value) -> Value:
    if more:
        return ERROR
    if isinstance(value, (AbsTime, RelTime)):
        return RelTime(float(value.seconds))
    if value.__class__ is str:
        return RelTime(0.0)  # as in the reference, if the string is not a literal
    if value.__class__ is int or value.__class__ is float:
        return RelTime(float(clipped(value) if value.__class__ is int else value))
    return odd(value)


row("time", "", lambda context: int(context.now), pure=False)
row("currentTime", "", _absolute, pure=False)
row("absTime", "|vv", _absolute, pure=False)
row("relTime", "v|v", _relative)
row("timeZoneOffset", "", lambda context: RelTime(float(context.zone)), pure=False)
row("dayTime", "", lambda c: RelTime(float((int(c.now) + c.zone) % 86400)), pure=False)
for _name in (*_FIELDS, "Days"):
    row("get" + _name, "v", lambda c, value, name=_name: _field(c, value, name), pure=False)
row("splitTime", "V", _split_time, pure=False)
row("formatTime", "|vv", _format_time, pure=False)
row("interval", "v", _interval)
