"""Lists that print as a table: HTML in a notebook, text in a terminal."""

from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import TypeVar, overload

from covey.frontend import formats
from covey.frontend.tables import Column, TextTable, fit

T = TypeVar("T")
MOST_SHOWN = 20
WIDTH = 120
CELL_WIDTH = 80
CELL = "text-align:left;padding:2px 8px"


class Listing(Sequence[T]):
    """A list. `layout` has the titles of its columns, and a function for the cells of an item."""

    def __init__(
        self, items: Sequence[T], layout: tuple[Sequence[str], Callable[[T], Iterable[object]]]
    ) -> None:
        self._items = list(items)
        self._titles, self._cells = layout

    def __len__(self) -> int:
        return len(self._items)

    @overload
    def __getitem__(self, index: int) -> T: ...

    @overload
    def __getitem__(self, index: slice) -> "Listing[T]": ...

    def __getitem__(self, index: int | slice) -> "T | Listing[T]":
        if isinstance(index, slice):
            return Listing(self._items[index], (self._titles, self._cells))
        return self._items[index]

    def __eq__(self, other: object) -> bool:
        return list(self) == list(other) if isinstance(other, Listing | list) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # a list has no hash either

    def __repr__(self) -> str:
        return text_table(self._titles, self._shown(), len(self))

    def _repr_html_(self) -> str:
        return html_table(self._titles, self._shown(), len(self))

    def _shown(self) -> list[list[str]]:
        return [
            [fit(formats.plain_value(cell), CELL_WIDTH) for cell in self._cells(item)]
            for item in self._items[:MOST_SHOWN]
        ]


def text_table(titles: Sequence[str], rows: Sequence[Sequence[str]], total: int) -> str:
    if not rows:
        return "(none)"
    lines = TextTable([Column(title) for title in titles], WIDTH).lines(rows)
    return "\n".join([*lines, *_rest(len(rows), total)])


def html_table(titles: Sequence[str], rows: Sequence[Sequence[str]], total: int) -> str:
    """All cells are escaped, because tasks may print anything."""
    if not rows:
        return "<i>none</i>"
    head = "".join(f"<th style='{CELL}'>{escape(title)}</th>" for title in titles)
    body = "".join(
        "<tr>" + "".join(f"<td style='{CELL}'>{escape(cell)}</td>" for cell in row) + "</tr>"
        for row in rows
    )
    rest = "".join(f"<p>{line}</p>" for line in _rest(len(rows), total))
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{rest}"


def _rest(shown: int, total: int) -> list[str]:
    return [f"… {total - shown:,} more"] if total > shown else []
