"""Tables of text. Columns are as wide as necessary; lines are cut at the width of the terminal."""

import os
import sys
import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

from covey.frontend.terminal import clean

GAP = "  "


class Column(NamedTuple):
    title: str
    right: bool = False  # numbers align on the right


def width_of(text: str) -> int:
    """The number of columns that the text takes on a terminal."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1
        for char in text
    )


def fit(text: str, width: int) -> str:
    if width_of(text) <= width:
        return text
    kept, used = [], 0
    for char in text:
        used += width_of(char)
        if used > width - 1:
            break
        kept.append(char)
    return "".join(kept) + "…"


def terminal_width() -> int | None:
    """None if standard output is not a terminal: then nothing is cut."""
    if not sys.stdout.isatty():
        return None
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or None
    except OSError:
        return None


class TextTable:
    """A table whose rows come in pages. The first page decides the widths of columns."""

    def __init__(self, columns: Sequence[Column], width: int | None = None) -> None:
        self.columns = columns
        self.width = width
        self._widths: list[int] = []

    def lines(self, rows: Sequence[Sequence[str]]) -> list[str]:
        """The lines of one page. The first page begins with the titles."""
        cleaned = [[clean(cell) for cell in row] for row in rows]
        if not self._widths:
            titles = [clean(column.title) for column in self.columns]
            cleaned.insert(0, titles)
            self._widths = [max(map(width_of, cells)) for cells in zip(*cleaned, strict=True)]
        return [self._line(row) for row in cleaned]

    def _line(self, row: Sequence[str]) -> str:
        cells = [
            _padded(cell, width, column.right)
            for cell, width, column in zip(row, self._widths, self.columns, strict=True)
        ]
        line = GAP.join(cells).rstrip()
        return line if self.width is None else fit(line, self.width)


def _padded(cell: str, width: int, right: bool) -> str:
    blank = " " * (width - width_of(cell))
    return blank + cell if right else cell + blank


def render(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(TextTable(columns, terminal_width()).lines(rows))
