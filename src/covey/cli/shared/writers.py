"""Rows of results as text: a table for people, CSV and JSON for programs.

A writer takes rows as they come and keeps none. It always writes UTF-8.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import IO

import msgspec

from covey.frontend import bag_places, columns
from covey.frontend.columns import Field
from covey.frontend.tables import GAP, TextTable, width_of
from covey.frontend.terminal import clean, clean_json
from covey.rowfiles.cells import disarmed, in_quotes
from covey.wire import ResultRow

CSV = ("csv", "csv-raw")
Writer = Callable[[IO[bytes], Sequence[Field], Iterator[ResultRow]], int]  # how many rows


class Stream:
    """Lines for pages of rows, one after another."""

    def __init__(self, form: str, chosen: Sequence[Field], width: int | None = None) -> None:
        self._chosen = chosen
        self._started = False
        self._raw = form == "csv-raw"
        self._table = TextTable(columns.titles(chosen), width)
        self.lines: Callable[[Sequence[ResultRow]], list[bytes]] = {
            "table": self._table_lines,
            "csv": self._csv_lines,
            "csv-raw": self._csv_lines,
            "jsonl": self._json_lines,
        }[form]

    def _table_lines(self, rows: Sequence[ResultRow]) -> list[bytes]:
        cells = [[field.cell(row) for field in self._chosen] for row in rows]
        return [line.encode("utf-8", "replace") + b"\n" for line in self._table.lines(cells)]

    def _csv_lines(self, rows: Sequence[ResultRow]) -> list[bytes]:
        lines: list[list[object]] = []
        if not self._started:
            lines.append([field.name for field in self._chosen])
        self._started = True
        values = [field.written or field.value for field in self._chosen]
        lines += [[value(row) for value in values] for row in rows]
        texts = [",".join(map(self._cell, line)) or '""' for line in lines]
        return [f"{text}\n".encode("utf-8", "replace") for text in texts]

    def _cell(self, value: object) -> str:
        """A cell as the record writes it: lists and tables as JSON, truth values as true, false."""
        if isinstance(value, bool | list | dict):
            return in_quotes(msgspec.json.encode(value).decode())
        if isinstance(value, str):
            return in_quotes(value if self._raw else disarmed(value))
        return "" if value is None else str(value)

    def _json_lines(self, rows: Sequence[ResultRow]) -> list[bytes]:
        return [_object(self._chosen, row) + b"\n" for row in rows]


def _object(chosen: Sequence[Field], row: ResultRow) -> bytes:
    text = msgspec.json.encode({field.name: field.value(row) for field in chosen}).decode()
    return clean_json(text).encode()


def _pages(rows: Iterable[ResultRow]) -> Iterator[list[ResultRow]]:
    rows = iter(rows)
    while page := list(islice(rows, bag_places.PAGE)):
        yield page


def width(chosen: Sequence[Field], page: Sequence[ResultRow]) -> int:
    """The width of a table with these rows. A column that may be cut counts with its smallest
    width."""
    total = len(GAP) * (len(chosen) - 1)
    for field, column in zip(chosen, columns.titles(chosen), strict=True):
        cells = [column.title, *(clean(field.cell(row)) for row in page)]
        wide = max(map(width_of, cells))
        total += min(wide, columns.ELASTIC.get(field.own, wide))
    return total


def write_table(
    file: IO[bytes], chosen: Sequence[Field], rows: Iterable[ResultRow], width: int | None
) -> int:
    """Write a table. Without rows, write nothing."""
    return _write_pages(file, Stream("table", chosen, width), rows)


def write_lines(
    file: IO[bytes], chosen: Sequence[Field], rows: Iterator[ResultRow], form: str
) -> int:
    stream = Stream(form, chosen)
    file.writelines(stream.lines([]))  # the titles of CSV, also without rows
    return _write_pages(file, stream, rows)


def _write_pages(file: IO[bytes], stream: Stream, rows: Iterable[ResultRow]) -> int:
    count = 0
    for page in _pages(rows):
        file.writelines(stream.lines(page))
        count += len(page)
    return count


def write_json(file: IO[bytes], chosen: Sequence[Field], rows: Iterator[ResultRow]) -> int:
    """Write one JSON list, row by row."""
    count = 0
    for row in rows:
        file.write((b",\n" if count else b"[\n") + _object(chosen, row))
        count += 1
    file.write(b"\n]\n" if count else b"[]\n")
    return count


def write_ready_made(file: IO[bytes], form: str, parts: Iterable[bytes]) -> int:
    """Write text that the record has made already, and return the number of rows. A row is a line;
    newlines inside the quotes of CSV do not count."""
    ends, quoted = 0, False
    for part in parts:
        file.write(part)
        pieces = part.split(b'"') if form in CSV else [part]
        ends += sum(piece.count(b"\n") for piece in pieces[quoted::2])
        quoted ^= len(pieces) % 2 == 0
    return max(0, ends - 1) if form in CSV else ends


WRITERS: dict[str, Writer] = {
    **{form: partial(write_lines, form=form) for form in (*CSV, "jsonl")},
    "json": write_json,
}
