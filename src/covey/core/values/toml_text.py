"""Reads TOML that people write. Errors name the mistake and its line.

One rule for bag files, settings, worlds and policies.
"""

import re
from typing import Any

MOST_PARTS = 200  # of a key: tomllib takes the square of their number
_MARK = re.compile(r"([{},=\[\]])")
_PLACE = re.compile(r"(?:line (\d+), column \d+|end of document)\)")


class BadToml(ValueError):
    """The text is not TOML. The message begins with the name of the file, and mostly the line."""


def parse(text: str, name: str) -> dict[str, Any]:
    """Raises BadToml. `name`: of the file, for the message."""
    import tomllib  # many commands read no file

    for number, line in enumerate(text.split("\n"), 1):
        if line.count(".") >= MOST_PARTS and _has_deep_key(line):
            raise BadToml(f"{name}:{number}: a key has at most {MOST_PARTS} parts")
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadToml(_words(text, name, str(error))) from None
    except RecursionError:
        raise BadToml(f"{name}: it is nested too deeply") from None
    except ValueError as error:  # a number of 5,000 digits
        raise BadToml(f"{name}: {error}") from None


def _has_deep_key(line: str) -> bool:
    """Whether the line has a key, or the header of a table, with at least `MOST_PARTS` dots."""
    parts = _MARK.split(line)
    keys = (key for key, mark in zip(parts[::2], parts[1::2], strict=False) if mark in "=]")
    return any(key.count(".") >= MOST_PARTS for key in (parts[0], *keys))


def _words(text: str, name: str, error: str) -> str:
    what, _, place = error.rpartition("(at ")
    match = _PLACE.fullmatch(place)
    if match is None:
        return f"{name}: this is not TOML: {error}"
    line = int(match[1]) if match[1] else text.count("\n") + 1
    told = what[:1].lower() + what[1:].rstrip(" ")
    hint = '; text needs quotes: name = "value"' if "nvalid value" in told else ""
    return f"{name}:{line}: this is not TOML: {told}{hint}"
