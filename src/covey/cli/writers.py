"""Rows of results as text: a table for people, CSV and JSON for programs.

A writer takes rows as they come and keeps none; what it writes is UTF-8 wherever it goes.
"""

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import IO

import msgspec

from covey.cli import columns, places
from covey.cli.columns import Field
from covey.cli.tables import GAP, Table, clean, width_of
from covey.wire import ResultRow

Writer = Callable[[IO[bytes], Sequence[Field], Iterator[ResultRow]], int]  # how many rows


class Stream:
    """Lines for pages of rows, one after another."""

    def __init__(self, form: str, chosen: Sequence[Field], width: int | None = None) -> None:
        self._chosen = chosen
        self._started = False
        self._table = Table(columns.titles(chosen), width)
        self.lines: Callable[[Sequence[ResultRow]], list[bytes]] = {
            "table": self._table_lines,
            "csv": self._csv_lines,
            "jsonl": self._json_lines,
        }[form]

    def _table_lines(self, rows: Sequence[ResultRow]) -> list[bytes]:
        cells = [[field.cell(row) for field in self._chosen] for row in rows]
        return [line.encode("utf-8", "replace") + b"\n" for line in self._table.lines(cells)]

    def _csv_lines(self, rows: Sequence[ResultRow]) -> list[bytes]:
        text = io.StringIO(newline="")
        writer = csv.writer(text, lineterminator="\n")
        if not self._started:
            writer.writerow([field.name for field in self._chosen])
            self._started = True
        for row in rows:
            writer.writerow([_csv_cell(field.value(row)) for field in self._chosen])
        return [text.getvalue().encode("utf-8", "replace")]

    def _json_lines(self, rows: Sequence[ResultRow]) -> list[bytes]:
        return [_object(self._chosen, row) + b"\n" for row in rows]


def _csv_cell(value: object) -> object:
    """As the record writes it: what has parts as JSON, true and false as text."""
    if isinstance(value, bool | list | dict):
        return msgspec.json.encode(value).decode()
    return value


def _object(chosen: Sequence[Field], row: ResultRow) -> bytes:
    return msgspec.json.encode({field.name: field.value(row) for field in chosen})


def _pages(rows: Iterable[ResultRow]) -> Iterator[list[ResultRow]]:
    rows = iter(rows)
    while page := list(islice(rows, places.PAGE)):
        yield page


def width(chosen: Sequence[Field], page: Sequence[ResultRow]) -> int:
    """Of the table with these rows; of columns that may be cut, only some."""
    total = len(GAP) * (len(chosen) - 1)
    for field, column in zip(chosen, columns.titles(chosen), strict=True):
        cells = [column.title, *(clean(field.cell(row)) for row in page)]
        wide = max(map(width_of, cells))
        total += min(wide, columns.ELASTIC.get(field.own, wide))
    return total


def write_table(
    file: IO[bytes], chosen: Sequence[Field], rows: Iterable[ResultRow], width: int | None
) -> int:
    """Without any rows there are not even titles."""
    return _write_pages(file, Stream("table", chosen, width), rows)


def write_csv(file: IO[bytes], chosen: Sequence[Field], rows: Iterator[ResultRow]) -> int:
    stream = Stream("csv", chosen)
    file.writelines(stream.lines([]))
    return _write_pages(file, stream, rows)


def write_jsonl(file: IO[bytes], chosen: Sequence[Field], rows: Iterator[ResultRow]) -> int:
    return _write_pages(file, Stream("jsonl", chosen), rows)


def _write_pages(file: IO[bytes], stream: Stream, rows: Iterable[ResultRow]) -> int:
    count = 0
    for page in _pages(rows):
        file.writelines(stream.lines(page))
        count += len(page)
    return count


def write_json(file: IO[bytes], chosen: Sequence[Field], rows: Iterator[ResultRow]) -> int:
    """One JSON value, written as its rows come."""
    count = 0
    for row in rows:
        file.write((b",\n" if count else b"[\n") + _object(chosen, row))
        count += 1
    file.write(b"\n]\n" if count else b"[]\n")
    return count


def write_ready_made(file: IO[bytes], form: str, parts: Iterable[bytes]) -> int:
    """What the record has made already. Rows are lines, but those in quotes of CSV."""
    ends, quoted = 0, False
    for part in parts:
        file.write(part)
        pieces = part.split(b'"') if form == "csv" else [part]
        ends += sum(piece.count(b"\n") for piece in pieces[quoted::2])
        quoted ^= len(pieces) % 2 == 0
    return max(0, ends - 1) if form == "csv" else ends


WRITERS: dict[str, Writer] = {"csv": write_csv, "jsonl": write_jsonl, "json": write_json}
