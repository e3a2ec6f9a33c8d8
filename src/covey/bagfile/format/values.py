"""The values of a parameter, written as text: after `-p NAME=`, or in a bag file.

    1..1000        whole numbers, both ends included; 10..1 counts down
    1..10..2       by a step: 1 3 5 7 9
    0..1..0.1      exact decimals: 0.0 0.1 … 1.0
    001..100       text of equal length: 001 002 … 100
    a,b,c          a list; quotes or a backslash keep a comma: 'a,b',c or a\\,b,c
    1..3,10,20     both together
    @files.txt     one value per line of a file

A single range is kept as a range, so ten million tasks cost nothing. Everything else is a list.
"""

import os
import re
from collections.abc import Iterator
from fractions import Fraction
from typing import NamedTuple

from covey.core.errors import InvalidBag
from covey.core.values.scalars import scalar
from covey.core.values.space import (
    LARGEST_BAG,
    MOST_DIGITS,
    Axis,
    Range,
    Scalar,
    Values,
    indexer,
    shown,
)

LONGEST_LIST = 100_000

_NUMBER = r"[+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d{1,3})?"
_RANGE = re.compile(rf"({_NUMBER})\.\.({_NUMBER})(?:\.\.({_NUMBER}))?")
_LIKE_RANGE = re.compile(rf"{_NUMBER}\.\.")
LONGEST_RANGE = 3 * MOST_DIGITS + 4  # characters
_PADDED = re.compile(r"0\d+")


class Item(NamedTuple):
    """One item of a list. A quoted item is text, even if it looks like a number."""

    text: str
    quoted: bool


def parse_values(text: str, base: str = "") -> Range | Values:
    """Raises InvalidBag. The path of a file is relative to `base`."""
    if text.startswith("@"):
        return read_values(os.path.join(base, os.path.expanduser(text[1:])))
    items = split_items(text)
    if len(items) == 1 and not items[0].quoted:
        single = _parse_range(items[0].text)
        if single is not None:
            return single
    listed: list[Scalar] = []
    for item in items:
        listed.extend(_expand(item))
        if len(listed) > LONGEST_LIST:
            raise InvalidBag(_too_long("a list"))
    return Values(tuple(listed))


def read_values(path: str) -> Values:
    """One value for each line of a file. Raises InvalidBag."""
    return Values(tuple(scalar(line) for line in _lines(path)))


def _expand(item: Item) -> list[Scalar]:
    if item.quoted:
        return [item.text]
    found = _parse_range(item.text)
    if found is None:
        return [scalar(item.text)]
    if isinstance(found, Values):
        return list(found.items)
    if found.count > LONGEST_LIST:
        raise InvalidBag(_too_long("a range inside a list"))
    point = indexer(Axis("x", found))
    return [value for index in range(found.count) for value in point(index)]


def _parse_range(text: str) -> Range | Values | None:
    match = _RANGE.fullmatch(text) if len(text) <= LONGEST_RANGE else None
    if match is None:
        if _LIKE_RANGE.match(text):
            raise InvalidBag(
                f"{shown(text)} is not a range of numbers; put quotes in it to mean the text"
            )
        return None
    first, last = match[1], match[2]
    step = _step(text, Fraction(first), Fraction(last), match[3])
    count = (Fraction(last) - Fraction(first)) // Fraction(step) + 1
    if count > LARGEST_BAG:
        raise InvalidBag(
            f"{shown(text)} has more values than a bag can hold tasks ({LARGEST_BAG:,})"
        )
    if _PADDED.fullmatch(first) and last.isdigit():
        return _padded(first, last, step, count)
    return Range(first.lstrip("+"), step, count)


def _step(text: str, first: Fraction, last: Fraction, given: str | None) -> str:
    step = (given or "1").lstrip("+")
    if Fraction(step) == 0:
        raise InvalidBag(f"{text}: the step is zero")
    if last < first and not step.startswith("-"):
        step = "-" + step
    if last > first and step.startswith("-"):
        raise InvalidBag(f"{text}: the step leads away from {last}")
    return step


def _padded(first: str, last: str, step: str, count: int) -> Values:
    if count > LONGEST_LIST:
        raise InvalidBag(_too_long("a range with leading zeros"))
    if not step.lstrip("-").isdigit():
        raise InvalidBag("a range with leading zeros needs a whole step")
    width, start, stride = max(len(first), len(last)), int(first), int(step)
    return Values(tuple(str(start + index * stride).zfill(width) for index in range(count)))


def _too_long(what: str) -> str:
    return (
        f"{what} may have at most {LONGEST_LIST:,} values. "
        "For more, put them into a file, one on each line, and use: --lines FILE"
    )


def _lines(path: str) -> list[str]:
    """The lines that are not empty."""
    lines: list[str] = []
    try:
        with open(path, encoding="utf-8") as file:
            for line in file:
                if line.strip():
                    lines.append(line.rstrip("\r\n"))
                if len(lines) > LONGEST_LIST:
                    raise InvalidBag(_too_long("a file"))
    except OSError as error:
        raise InvalidBag(f"{path}: {error.strerror}") from None
    except ValueError:
        raise InvalidBag(f"{path} is not text in UTF-8") from None
    if not lines:
        raise InvalidBag(f"{path} has no lines")
    return lines


def split_items(text: str) -> list[Item]:
    """The parts between commas; commas in quotes or behind a backslash do not count."""
    items: list[Item] = []
    characters = iter(text)
    more = True
    while more:
        item, more = _next_item(characters)
        if not item.text and not item.quoted:
            raise InvalidBag("a value is empty; write '' for an empty text")
        items.append(item)
    return items


def _next_item(characters: Iterator[str]) -> tuple[Item, bool]:
    """The item that comes next, and whether a comma ended it."""
    kept: list[str] = []
    solid = 0  # length of the start from which no blanks are stripped
    quote = ""
    quoted = False
    blank = True  # nothing but blanks so far
    for char in characters:
        if char == "\\":
            kept.append(next(characters, "\\"))
            blank = blank and kept[-1].isspace()
            quoted, solid = True, len(kept)
        elif quote:
            if char == quote:
                quote = ""
            else:
                kept.append(char)
                blank = blank and char.isspace()
            solid = len(kept)
        elif char in "'\"" and blank:
            quote, quoted, kept, solid = char, True, [], 0
        elif char == ",":
            return _item(kept, solid, quoted), True
        elif kept or not char.isspace():
            kept.append(char)
            blank = blank and char.isspace()
    if quote:
        raise InvalidBag(f"a {quote} is never closed")
    return _item(kept, solid, quoted), False


def _item(kept: list[str], solid: int, quoted: bool) -> Item:
    text = "".join(kept)
    return Item(text[:solid] + text[solid:].rstrip(), quoted)
