"""Columns of a data frame. Each has one type, which depends on its values.

Truth values, whole numbers, numbers and dates keep their type if some values are missing. A column
with both numbers and words is text, as it was written.
"""

import re
from collections.abc import Sequence
from typing import Any

LARGEST_WHOLE = 2**63
_DATE = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
    r"(?:[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,9})?)?(?:Z|[+-][0-9]{2}:?[0-9]{2})?)?"
)
_FLAGS = {"true": True, "false": False}


def typed(pd: Any, values: Sequence[Any], written: Sequence[Any] = ()) -> Any:
    """The values as one column. `written` has the text of each value, if that may differ."""
    present = [value for value in values if value is not None and value != ""]
    kinds = {type(value) for value in present}
    if not present:
        return list(values)
    missing = [None if value == "" else value for value in values]
    if kinds == {bool}:
        return pd.array(missing, dtype="boolean") if None in missing else list(values)
    if kinds <= {int, float}:
        return _numbers(pd, missing, kinds)
    if kinds == {str}:
        return _texts(pd, values, missing, present)
    if str in kinds and kinds <= {int, float, str}:
        return [None if value is None else str(value) for value in written or values]
    return list(values)


def _numbers(pd: Any, values: list[Any], kinds: set[type]) -> Any:
    if kinds != {int}:
        return [float("nan") if value is None else float(value) for value in values]
    whole = all(value is None or -LARGEST_WHOLE <= value < LARGEST_WHOLE for value in values)
    return pd.array(values, dtype="Int64") if None in values and whole else values


def _texts(pd: Any, values: Sequence[Any], missing: list[Any], present: list[str]) -> Any:
    if all(value in _FLAGS for value in present):
        flags = [None if value is None else _FLAGS[value] for value in missing]
        return pd.array(flags, dtype="boolean") if None in flags else flags
    if all(_DATE.fullmatch(value) for value in present):
        zones = {"Z" in value or (len(value) > 10 and value[-6:-5] in "+-") for value in present}
        try:
            return pd.to_datetime(missing, format="ISO8601", utc=True if zones == {True} else None)
        except (ValueError, OverflowError):  # such as the 30th of February
            return list(values)
    return list(values)
