"""Results as a Parquet file, written one row group at a time.

A column has the narrowest type that holds all its values so far: truth values, whole numbers,
numbers, else text. When a later value does not fit, the file is written again with the wider type,
group by group. So memory use stays small. A column is widened at most a few times.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any

import click
import msgspec

from covey.frontend.columns import Field
from covey.wire import ResultRow

GROUP_ROWS = 20_000
LARGEST_WHOLE = 2**63
BOOL, WHOLE, REAL, TEXT = "bool", "whole", "real", "text"


def write(path: str, fields: Sequence[Field], rows: Iterator[ResultRow]) -> int:
    """Write the file and return the number of rows. The file appears only when it is complete."""
    part = f"{path}.part"
    writer = _Writer(part, fields)
    count = 0
    try:
        while group := list(islice(rows, GROUP_ROWS)):
            writer.add([[field.value(row) for row in group] for field in fields])
            count += len(group)
        writer.close()
        os.replace(part, path)
    except BaseException:
        writer.close()
        with suppress(FileNotFoundError):
            os.remove(part)
        raise
    return count


def modules() -> tuple[Any, Any]:
    """pyarrow and pyarrow.parquet. Raises ClickException if they are not installed."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise click.ClickException(
            "Parquet files need pyarrow, which is not installed: pip install 'covey[parquet]'"
        ) from None
    return pyarrow, parquet


class _Writer:
    def __init__(self, path: str, fields: Sequence[Field]) -> None:
        self._arrow, self._parquet = modules()
        self._path = path
        self._names = [field.name for field in fields]
        self._kinds = [field.kind for field in fields]  # "": no value so far
        self._file = self._open(path)

    def add(self, columns: list[list[object]]) -> None:
        kinds = [widest(kind, values) for kind, values in zip(self._kinds, columns, strict=True)]
        if kinds != self._kinds:
            self._widen(kinds)
        arrays = [
            self._arrow.array([_as(kind, value) for value in values], type=self._type(kind))
            for kind, values in zip(kinds, columns, strict=True)
        ]
        self._file.write_table(self._arrow.Table.from_arrays(arrays, schema=self._schema()))

    def close(self) -> None:
        self._file.close()

    def _type(self, kind: str) -> Any:
        arrow = self._arrow
        types = {BOOL: arrow.bool_(), WHOLE: arrow.int64(), REAL: arrow.float64()}
        return types.get(kind, arrow.string())

    def _schema(self) -> Any:
        kinds = zip(self._names, self._kinds, strict=True)
        return self._arrow.schema([(name, self._type(kind)) for name, kind in kinds])

    def _open(self, path: str) -> Any:
        return self._parquet.ParquetWriter(path, self._schema(), compression="zstd")

    def _widen(self, kinds: list[str]) -> None:
        """Write the same rows again with wider types."""
        self._file.close()
        self._kinds = kinds
        wider = f"{self._path}.wider"
        file = self._open(wider)
        written = self._parquet.ParquetFile(self._path)
        for number in range(written.num_row_groups):
            group = written.read_row_group(number)
            arrays = [
                self._cast(column, self._type(kind))
                for column, kind in zip(group.columns, kinds, strict=True)
            ]
            file.write_table(self._arrow.Table.from_arrays(arrays, schema=self._schema()))
        written.close()
        os.replace(wider, self._path)  # the open file keeps writing to its new name
        self._file = file

    def _cast(self, column: Any, kind: Any) -> Any:
        """The column as this type. Values become text in the same way as values of later rows."""
        if column.type == kind:
            return column
        if kind == self._arrow.string():
            texts = [_as(TEXT, value) for value in column.to_pylist()]
            return self._arrow.array(texts, type=kind)
        if column.null_count == len(column):
            return self._arrow.nulls(len(column), type=kind)
        return column.cast(kind, safe=False)


def widest(kind: str, values: Sequence[object]) -> str:
    """The narrowest kind that holds these values and every value of `kind`."""
    for value in values:
        if value is None or kind == TEXT:
            continue
        other = kind_of(value)
        if not kind or other == kind:
            kind = other
        elif {kind, other} == {WHOLE, REAL}:
            kind = REAL
        else:
            kind = TEXT
    return kind


def kind_of(value: object) -> str:
    if isinstance(value, bool):
        return BOOL
    if isinstance(value, int):
        return WHOLE if -LARGEST_WHOLE <= value < LARGEST_WHOLE else TEXT
    return REAL if isinstance(value, float) else TEXT


def _as(kind: str, value: object) -> object:
    if value is None or (kind == TEXT and isinstance(value, str)):
        return value
    if kind == REAL and isinstance(value, int):
        return float(value)
    return msgspec.json.encode(value).decode() if kind in (TEXT, "") else value
