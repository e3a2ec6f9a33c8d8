"""Files whose rows are parameters: counted once, then read anywhere without reading the rest.

Indexing is one pass in constant memory. It checks every row, and notes where a row begins about
every 32 KiB. The index is kept beside the file. So of ten million rows, only the rows that are read
and a few kilobytes of index are in memory.
"""

import contextlib
import csv
import os
import queue
import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from covey.core.errors import CoveyError, InvalidBag, StoreFailed
from covey.core.record.actions import LoadRows
from covey.core.record.events import RowsFailed, RowsLoaded
from covey.core.record.model import Rows
from covey.core.values.scalars import is_text_column
from covey.core.values.space import Scalar
from covey.ports import Post
from covey.rowfiles.forms import FORMS, clean_names
from covey.rowfiles.pieces import BLOCK_BYTES, Pieces
from covey.store.files.blobs import Blobs, sync

OPEN_TABLES = 64
CACHED_BLOCKS = 16  # that one reader keeps
VERSION = 3  # of the index; an index of another version is made again


class Index(Struct, frozen=True, kw_only=True):
    """Block k has the rows from `rows[k]` on, in the bytes from `offsets[k]` to `offsets[k + 1]`;
    the last offset is the end of the file."""

    version: int = VERSION
    columns: tuple[str, ...]  # as they are in the file
    names: tuple[str, ...]
    count: int
    rows: list[int]
    offsets: list[int]
    text_names: tuple[str, ...] = ()
    row_bytes: int = 0  # about the length of the longest rows


def index(path: Path, form: str) -> Index:
    """Read the whole file. Raises InvalidBag, with the number of the bad row (from 1, without the
    row of names)."""
    if form not in FORMS:
        raise InvalidBag(f"unknown form of rows {form!r}; forms: {', '.join(FORMS)}")
    with path.open("rb", buffering=0) as file:
        reading = Pieces(file.fileno())
        begun = reading.begin(form)
        names = clean_names(begun.columns)
        rows, offsets, count = [], [], 0
        for offset, found in reading.counts(begun):
            if found:
                rows.append(count)
                offsets.append(offset)
                count += found
    if not count:
        raise InvalidBag("the file has no rows")
    if not names:
        raise InvalidBag("its rows have no columns")
    offsets.append(reading.offset)
    made = Index(
        columns=begun.columns,
        names=names,
        count=count,
        rows=rows,
        offsets=offsets,
        row_bytes=_row_bytes([*rows, count], offsets),
    )
    return replace(made, text_names=_text_names(RowTable(path, form, made)))


def _row_bytes(rows: list[int], offsets: list[int]) -> int:
    """About the length of the longest rows. A block with a long first row is longer than others;
    for other rows the average is good enough, since neighbouring rows are read together."""
    found = 1
    for before, after in pairwise(range(len(rows))):
        size = offsets[after] - offsets[before]
        found = max(found, size if size > BLOCK_BYTES else size // (rows[after] - rows[before]))
    return found


def _text_names(table: "RowTable") -> tuple[str, ...]:
    """Columns that are text by the rule of `core.values.scalars`. Only the first and the last block
    are examined: to read every cell would take several times as long as all the rest."""
    last = len(table.index.rows) - 1
    rows = [table.parse(item) for number in sorted({0, last}) for item in table.block(number)]
    columns = zip(table.index.names, zip(*rows, strict=True), strict=True)
    return tuple(name for name, values in columns if is_text_column(values))


class RowTable:
    """The rows of one file. Several threads may use it."""

    def __init__(self, path: Path, form: str, index: Index) -> None:
        self.index = index
        self.form = FORMS[form](index.columns)
        self._path = path

    def read(self, first: int, stop: int) -> list[list[Scalar]]:
        """Rows first … stop-1; fewer at the end of the file."""
        found: list[list[Scalar]] = []
        stop = min(stop, self.index.count)
        row = max(first, 0)
        while row < stop:
            number = self.block_of(row)
            start = self.index.rows[number]
            items = self.block(number)[row - start : stop - start]
            found += [self.parse(item) for item in items]
            row += len(items)
        return found

    def every(self) -> Iterator[list[Scalar]]:
        for number in range(len(self.index.rows)):
            yield from map(self.parse, self.block(number))

    def block_of(self, row: int) -> int:
        return bisect_right(self.index.rows, row) - 1

    def block(self, number: int) -> list[Any]:
        """The rows of a block, not parsed yet."""
        start, stop = self.index.offsets[number : number + 2]
        ends = [*self.index.rows[number + 1 : number + 2], self.index.count]
        try:
            with self._path.open("rb", buffering=0) as file:
                items = self.form.split(os.pread(file.fileno(), stop - start, start))
        except (OSError, ValueError, csv.Error) as error:
            raise StoreFailed(f"a file of rows cannot be read: {error}") from error
        if len(items) != ends[0] - self.index.rows[number]:
            raise StoreFailed("a file of rows was changed after the bag was submitted")
        return items

    def parse(self, item: Any) -> list[Scalar]:
        try:
            return self.form.parse(item)
        except ValueError as error:
            raise StoreFailed(f"a row cannot be read: {error}") from error


class TableFiles:
    """The files of rows among the blobs. Several threads may use it."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs
        self._guard = threading.Lock()
        self._tables: OrderedDict[tuple[str, str], RowTable] = OrderedDict()
        self._indexing: dict[tuple[str, str], threading.Lock] = {}

    def describe(self, digest: str, form: str) -> Rows:
        """The names and the count of the rows. The index is durable when this returns. Raises
        InvalidBag if the file cannot be used, NotFound if it is not here."""
        found = self._table(digest, form).index
        return Rows(
            digest=digest,
            form=form,
            names=found.names,
            count=found.count,
            text_names=found.text_names,
            row_bytes=found.row_bytes,
        )

    def read(self, rows: Rows, first: int, stop: int) -> list[list[Scalar]]:
        return self._table(rows.digest, rows.form).read(first, stop)

    def every(self, rows: Rows) -> Iterator[list[Scalar]]:
        return self._table(rows.digest, rows.form).every()

    def point(self, rows: Rows) -> Callable[[int], list[Scalar]]:
        """A function that returns the values of a row by its number. It keeps the blocks that it
        read last. For one thread."""
        cached: OrderedDict[int, list[Any]] = OrderedDict()
        table: RowTable | None = None

        def point(row: int) -> list[Scalar]:
            nonlocal table
            if table is None:
                table = self._table(rows.digest, rows.form)
            if not 0 <= row < table.index.count:
                raise IndexError(f"row {row} of {table.index.count}")
            number = table.block_of(row)
            if number in cached:
                cached.move_to_end(number)
            else:
                cached[number] = table.block(number)
                if len(cached) > CACHED_BLOCKS:
                    cached.popitem(last=False)
            return table.parse(cached[number][row - table.index.rows[number]])

        return point

    def _table(self, digest: str, form: str) -> RowTable:
        key = digest, form
        path = self._blobs.path(digest)
        with self._guard:
            if key in self._tables:
                self._tables.move_to_end(key)
                return self._tables[key]
            lock = self._indexing.setdefault(key, threading.Lock())
        try:
            with lock:  # one thread makes the index, the others wait for it
                table = self._tables.get(key) or RowTable(path, form, self._index(path, form))
                with self._guard:
                    self._tables[key] = table
                    if len(self._tables) > OPEN_TABLES:
                        self._tables.popitem(last=False)
        finally:
            with self._guard:
                self._indexing.pop(key, None)
        return table

    def _index(self, path: Path, form: str) -> Index:
        place = path.with_name(f"{path.name}.{form}.index")
        try:
            found = msgspec.msgpack.decode(place.read_bytes(), type=Index)
            if found.version == VERSION:
                return found
        except (OSError, msgspec.DecodeError):
            pass
        try:
            made = index(path, form)
            _save(place, msgspec.msgpack.encode(made))
        except OSError as error:
            raise StoreFailed(f"rows cannot be indexed: {error.strerror or error}") from error
        return made


class RowLoader:
    """The Tables port: reads rows in a thread of its own."""

    def __init__(self, tables: TableFiles, post: Post) -> None:
        self._tables = tables
        self._post = post
        self._asked: queue.SimpleQueue[LoadRows | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="rows", daemon=True)
        self._thread.start()

    def load(self, load: LoadRows) -> None:
        self._asked.put(load)

    def close(self) -> None:
        """Answers waiting requests first."""
        self._asked.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (load := self._asked.get()) is not None:
            self._post(self._answer(load))

    def _answer(self, load: LoadRows) -> RowsLoaded | RowsFailed:
        try:
            found = self._tables.read(load.rows, load.first, load.stop)
        except CoveyError as error:
            return RowsFailed(load.bag, load.chunk, str(error))
        except Exception as error:  # for every error, the bag must learn that its rows are missing
            return RowsFailed(load.bag, load.chunk, f"{type(error).__name__}: {error}")
        if len(found) != load.stop - load.first:
            return RowsFailed(load.bag, load.chunk, "the file of rows has fewer rows than before")
        return RowsLoaded(load.bag, load.chunk, found)


def _save(place: Path, content: bytes) -> None:
    """Write a file durably. It may replace another index of the same file, which is equal."""
    scratch = place.with_name(f"{place.name}.{os.getpid()}.{threading.get_ident()}")
    try:
        with scratch.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(scratch, place)
    except OSError:
        with contextlib.suppress(OSError):
            scratch.unlink()
        raise
    sync(place.parent)
