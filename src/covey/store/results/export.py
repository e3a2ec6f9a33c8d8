"""Results as one file, with as little Python code per row as possible.

A page of rows comes as columns, straight from SQL. Each column is examined as a whole: the types of
its values, and whether any needs quotes. Then each line is a single `%` operation.
Reported numbers are written as the task wrote them. In CSV, parameters are written as they were
submitted; in JSON they have their types.
"""

from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import Any

import msgspec

from covey.core.errors import InvalidQuery
from covey.core.values.columns import Column, ColumnKind, scalar
from covey.core.values.scalars import Reading, read
from covey.rowfiles.cells import all_disarmed, all_in_quotes
from covey.store.results.columns import BEFORE_REPORTED, BEHIND_REPORTED, OWN
from covey.store.sqlite.rows import reported

RAW_CSV = "csv-raw"  # with cells that a spreadsheet would take for formulas
FORMS = ("csv", RAW_CSV, "jsonl")
PAGE = 2000  # rows, some 200 kB
PAGE_BYTES = 16 << 20  # of results and parameters: it is in memory several times

# The columns that a page is made from, in this order (`result_sql.EXPORTED`). Where the query has
# the number of a text, the page gets the text.
NEEDED = (*OWN, "result")
_NUMBERS = {int, float}
_NONE = {type(None)}
_PARTS = {list, dict}
_PLAIN = {int, float, str}
_NOTHING: dict[str, Any] = {}

_encoder = msgspec.json.Encoder()
_as_written = msgspec.json.Decoder(dict[str, Any], float_hook=str)

Values = Sequence[Any]
Parameters = Callable[[Sequence[int]], list[Values]]


class ExportedTable:
    """Turns pages of columns into bytes. `parameters` returns the columns of tasks' parameters."""

    def __init__(self, table: list[Column], form: str, parameters: Parameters) -> None:
        if form not in FORMS:
            raise InvalidQuery(f"there is no format '{form}'; formats: {', '.join(FORMS)}")
        self._names = [column.name for column in table]
        parameter_columns = (column for column in table if column.kind is ColumnKind.PARAMETER)
        self._readings = [column.reading for column in parameter_columns]
        self._keys = [column.key for column in table if column.kind is ColumnKind.REPORTED]
        self._csv = form in ("csv", RAW_CSV)
        self._raw = form == RAW_CSV
        self._parameters = parameters
        self._line = ",".join(map(_format, table)) + "\n"

    def head(self) -> bytes:
        return (",".join(self._texts(self._names)) + "\n").encode() if self._csv else b""

    def page(self, given: list[Values]) -> bytes:
        """`given` are the columns `NEEDED`: not empty, and all of the same length."""
        known = dict(zip(NEEDED, given, strict=True))
        tasks = known["task"]
        parameters = self._parameters(tasks)
        before = [known[key] for key in BEFORE_REPORTED]
        behind = [known[key] for key in BEHIND_REPORTED]
        if self._csv:
            values = self._written(known["result"])
            columns = [tasks, *parameters, *before, *values, *behind]
            rows = zip(*map(self._cells, columns), strict=True)
            return "".join(map(self._line.__mod__, rows)).encode()
        before = [_rounded(key, known[key]) for key in BEFORE_REPORTED]
        parameters = [
            column if reading == Reading.TYPED else [read(value, reading) for value in column]
            for column, reading in zip_longest(parameters, self._readings, fillvalue=Reading.TYPED)
        ]
        values = _by_key(self._keys, [_read(text) for text in known["result"]], None)
        rows = zip(tasks, *parameters, *before, *values, *behind, strict=True)
        names = self._names
        return _encoder.encode_lines([dict(zip(names, row, strict=True)) for row in rows])

    def _cells(self, column: Values) -> Values:
        """Values that `%s` turns into the text of a cell."""
        kinds = set(map(type, column))
        if kinds <= _NUMBERS:
            return column
        if kinds == _NONE:
            return [""] * len(column)
        if not kinds <= _PLAIN:
            column = ["" if value is None else scalar(value) for value in column]
        return self._texts(list(map(str, column)))

    def _texts(self, column: list[str]) -> list[str]:
        return all_in_quotes(column if self._raw else all_disarmed(column))

    def _written(self, results: Sequence[str | None]) -> list[Values]:
        """Reported values by column. Numbers stay as written, unless a column has lists or
        tables."""
        quick = [_NOTHING if text is None else _as_written.decode(text) for text in results]
        columns = _by_key(self._keys, quick, "")
        for place, column in enumerate(columns):
            if not _PARTS.isdisjoint(map(type, column)):
                slow = [_read(text) for text in results]
                columns[place] = _by_key(self._keys[place : place + 1], slow, "")[0]
        return columns


def _format(column: Column) -> str:
    digits = OWN[column.key].digits if column.kind is ColumnKind.OWN else None
    return "%s" if digits is None else f"%.{digits}f"


def _read(text: str | None) -> dict[str, Any]:
    return _NOTHING if text is None else reported(text) or _NOTHING


def _by_key(keys: list[str], results: Sequence[dict[str, Any]], missing: Any) -> list[Values]:
    return [[result.get(key, missing) for result in results] for key in keys]


def _rounded(key: str, column: Values) -> Values:
    digits = OWN[key].digits
    return column if digits is None else [round(value, digits) for value in column]
