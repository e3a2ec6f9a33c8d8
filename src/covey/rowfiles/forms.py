"""The forms that a file of rows may have: `csv`, `tsv`, `semicolons`, `jsonl` and `lines`.

A form gets pieces of a file that begin and end between rows. It checks a piece once, thoroughly,
when the file is indexed (`count`); afterwards rows are only split into values (`split`, `parse`).
Both must agree on what a row is.

Lines end with LF or CRLF; the last one need not. Blank lines are no rows. In a CSV file the first
row has the names; `tsv` is the same with tabs between cells, `semicolons` with `;`. In JSON Lines
every row is an object with the same keys, in which `true` and `false` become text and `null` the
empty text. Blanks and dashes in names become `_`.
"""

import csv
import io
import re
from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from covey.core.errors import InvalidBag
from covey.core.values.scalars import scalar
from covey.core.values.space import Scalar

LARGEST_INTEGER = 2**63
RESERVED = ("task", "bag")  # in templates {task} and {bag} are numbers

_BLANKS = " \t\r\v\f"
_BLANK_BYTES = _BLANKS.encode()


class Form(Protocol):
    columns: tuple[str, ...]  # as they are in the file

    def count(self, piece: bytes, row: int, last: bool) -> tuple[int, int]:
        """How many whole rows the piece has, and how many bytes they take; the rest is the start of
        another row. `row` rows came before; nothing follows the `last` piece. Raises InvalidBag,
        with the row's number, for a bad row."""
        ...

    def split(self, piece: bytes) -> list[Any]:
        """The rows of a piece, each in the form that `parse` takes."""
        ...

    def parse(self, item: Any) -> list[Scalar]: ...


class Lines:
    """One value on each line."""

    def __init__(self, columns: tuple[str, ...] = ("line",)) -> None:
        self.columns = columns

    @classmethod
    def begin(cls, piece: bytes, last: bool) -> tuple["Lines", int]:
        return cls(), 0

    def count(self, piece: bytes, row: int, last: bool) -> tuple[int, int]:
        check_text(piece, row)
        return line_count(piece), len(piece)

    def split(self, piece: bytes) -> list[str]:
        return full_lines(piece.decode())

    def parse(self, item: str) -> list[Scalar]:
        return [scalar(item)]


class Csv:
    separator = ","
    _plain_lines = True  # a line of blanks is no row, whatever separates cells

    def __init__(self, columns: tuple[str, ...]) -> None:
        self.columns = columns
        separator = self.separator.encode()
        separators = separator * (len(columns) - 1)
        self._units = (separators + b"\n", separators + b"\r\n")
        structure = separator + b'"\r\n\0'
        self._not_structure = bytes(byte for byte in range(256) if byte not in structure)

    @classmethod
    def begin(cls, piece: bytes, last: bool) -> tuple["Csv", int] | None:
        """None if the first row is not whole."""
        text = piece.decode(errors="surrogateescape")  # rows are checked later
        lines = list(io.StringIO(text, newline="\n"))
        reader = csv.reader(lines, strict=True, delimiter=cls.separator)
        try:
            columns = next((row for row in reader if row), None)
        except csv.Error as error:
            if last:
                raise InvalidBag(f"the first row, with the names of columns: {error}") from None
            return None
        if columns is None:
            return (cls(()), len(piece)) if last else None
        used = len("".join(lines[: reader.line_num]).encode(errors="surrogateescape"))
        check_text(piece[:used], 0)
        return cls(tuple(columns)), used

    def count(self, piece: bytes, row: int, last: bool) -> tuple[int, int]:
        rows = self._plain_count(piece)
        if rows is None:
            return self._careful_count(piece, row, last)
        check_text(piece, row)
        return rows, len(piece)

    def _plain_count(self, piece: bytes) -> int | None:
        """The number of rows, if the piece is simple: no quotes, no blank lines, and the right
        number of separators in each row. Without its text it is one short pattern, repeated."""
        if (
            not self._plain_lines
            or len(piece) > csv.field_size_limit()
            or not piece.endswith(b"\n")
        ):
            return None
        skeleton = piece.translate(None, self._not_structure)
        rows = skeleton.count(b"\n")
        if not any(skeleton == unit * rows for unit in self._units) or has_stray_return(piece):
            return None
        if len(self.columns) == 1 and has_blank_line(piece):
            return None
        return rows

    def _careful_count(self, piece: bytes, row: int, last: bool) -> tuple[int, int]:
        check_text(piece, row)
        lines = list(io.StringIO(piece.decode(), newline="\n"))
        ends = False

        def feed() -> Any:
            nonlocal ends
            yield from lines
            ends = True

        reader = csv.reader(feed(), strict=True, delimiter=self.separator)
        rows = whole = 0
        try:
            for cells in reader:
                if not self._is_blank(cells):
                    rows += 1
                    if len(cells) != len(self.columns):
                        raise InvalidBag(_ragged(row + rows, self.columns, len(cells)))
                whole = reader.line_num
        except csv.Error as error:
            if not ends:
                raise InvalidBag(f"row {row + rows + 1}: {error}") from None
            if last:
                raise InvalidBag(f"row {row + rows + 1}: a quote is never closed") from None
        if whole == len(lines):
            return rows, len(piece)
        return rows, len("".join(lines[:whole]).encode())

    def _is_blank(self, cells: list[str]) -> bool:
        """Whether it is a blank line. In a file with one column, blanks are a value."""
        if len(self.columns) == 1:
            return not cells
        return not cells or (len(cells) == 1 and not cells[0].strip(_BLANKS))

    def split(self, piece: bytes) -> list[Any]:
        text = piece.decode()
        if self._plain_lines and b'"' not in piece and not has_stray_return(piece):
            if len(self.columns) == 1:
                return [line for line in _lines(text) if line]
            return full_lines(text)
        lines = io.StringIO(text, newline="\n")
        reader = csv.reader(lines, strict=True, delimiter=self.separator)
        return [cells for cells in reader if not self._is_blank(cells)]

    def parse(self, item: Any) -> list[Scalar]:
        cells = item.split(self.separator) if isinstance(item, str) else item
        return [scalar(cell) for cell in cells]


class Tsv(Csv):
    separator = "\t"
    _plain_lines = False  # a line of tabs is a row of empty cells


class Semicolons(Csv):
    separator = ";"


class Jsonl:
    def __init__(self, columns: tuple[str, ...]) -> None:
        self.columns = columns
        value = str | int | float | bool | None
        fields = [(f"f{index}", value) for index in range(len(columns))]
        names = {f"f{index}": name for index, name in enumerate(columns)}
        row = msgspec.defstruct("Row", fields, rename=names, forbid_unknown_fields=True)
        self._decoder = msgspec.json.Decoder(row)

    @classmethod
    def begin(cls, piece: bytes, last: bool) -> tuple["Jsonl", int] | None:
        """None if there is no row yet."""
        check_text(piece, 0)
        lines = full_lines(piece.decode())
        if not lines:
            return (cls(()), 0) if last else None
        try:
            return cls(tuple(msgspec.json.decode(lines[0], type=dict[str, Any]))), 0
        except (msgspec.DecodeError, RecursionError) as error:
            raise InvalidBag(f"row 1: {_json_problem(error)}") from None

    def count(self, piece: bytes, row: int, last: bool) -> tuple[int, int]:
        check_text(piece, row)
        rows = line_count(piece)
        try:
            if len(self._decoder.decode_lines(piece)) == rows:
                return rows, len(piece)
        except (msgspec.DecodeError, RecursionError):
            pass
        for index, line in enumerate(self.split(piece)):
            try:
                self._decoder.decode(line)
            except (msgspec.DecodeError, RecursionError) as error:
                raise InvalidBag(f"row {row + index + 1}: {_json_problem(error)}") from None
        return rows, len(piece)

    def split(self, piece: bytes) -> list[str]:
        return full_lines(piece.decode())

    def parse(self, item: str) -> list[Scalar]:
        return [_plain(value) for value in msgspec.structs.astuple(self._decoder.decode(item))]


Begin = Callable[[bytes, bool], tuple[Form, int] | None]
BEGIN: dict[str, Begin] = {
    "csv": Csv.begin,
    "tsv": Tsv.begin,
    "semicolons": Semicolons.begin,
    "jsonl": Jsonl.begin,
    "lines": Lines.begin,
}
FORMS: dict[str, Callable[[tuple[str, ...]], Form]] = {
    "csv": Csv,
    "jsonl": Jsonl,
    "lines": Lines,
    "tsv": Tsv,
    "semicolons": Semicolons,
}


def clean_names(columns: tuple[str, ...]) -> tuple[str, ...]:
    """Names of parameters for these columns. Raises InvalidBag if a column has no such name."""
    names: dict[str, str] = {}
    for column in columns:
        name = re.sub(r"[\s-]", "_", column.strip())
        if not (name.isidentifier() and name.isascii()):
            hint = ""
            if len(columns) == 1 and re.search(r"[;\t|]", column):
                hint = "; columns are separated by commas, or say form = 'tsv' or 'semicolons'"
            raise InvalidBag(
                f"column {column!r} is not a name for a parameter: use letters, digits and _ "
                f"(blanks and dashes become _){hint}"
            )
        if name in RESERVED:
            raise InvalidBag(f"column {column!r}: {{{name}}} is the {name}'s number; rename it")
        if name in names:
            raise InvalidBag(f"columns {names[name]!r} and {column!r} are both called {name}")
        names[name] = column
    return tuple(names)


def check_text(piece: bytes, row: int) -> None:
    """Raise InvalidBag for bytes that a command cannot get: NUL, or no UTF-8."""
    at = piece.find(b"\0")
    if at >= 0:
        raise InvalidBag(f"row {row + _row_at(piece, at)} has a NUL byte in it: is this text?")
    if not piece.isascii():
        try:
            piece.decode()
        except UnicodeDecodeError as error:
            number = row + _row_at(piece, error.start)
            raise InvalidBag(f"row {number} is not text in UTF-8; save the file as UTF-8") from None


def line_count(piece: bytes) -> int:
    return sum(map(bool, piece.translate(None, _BLANK_BYTES).split(b"\n")))


def full_lines(text: str) -> list[str]:
    """Lines that are not blank. Most begin with a letter or a digit, which is quick to check."""
    return [line for line in _lines(text) if line >= "!" or line.strip(_BLANKS)]


def has_blank_line(piece: bytes) -> bool:
    return piece.startswith((b"\n", b"\r\n")) or b"\n\n" in piece or b"\n\r\n" in piece


def has_stray_return(piece: bytes) -> bool:
    return piece.count(b"\r") != piece.count(b"\r\n")


def _lines(text: str) -> list[str]:
    lines = text.split("\n")
    return [line.removesuffix("\r") for line in lines] if "\r" in text else lines


def _row_at(piece: bytes, at: int) -> int:
    """The number of the row at this place, from 1."""
    return max(1, line_count(piece[: at + 1]))


def _ragged(row: int, columns: tuple[str, ...], found: int) -> str:
    named = ", ".join(columns[:5]) + (", …" if len(columns) > 5 else "")
    return f"row {row} has {found} columns, not {len(columns)} ({named})"


def _json_problem(error: Exception) -> str:
    """The problem in words, with the key of the row that has it."""
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    text = str(error).replace("`", "'")
    if not isinstance(error, msgspec.ValidationError):
        return f"each line must be one JSON object: {text}"
    text, _, place = text.partition(" - at '$.")
    return f"{place[:-1]}: {text}" if place else text


def _plain(value: str | int | float | bool | None) -> Scalar:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and not -LARGEST_INTEGER < value < LARGEST_INTEGER:
        return str(value)
    return value
