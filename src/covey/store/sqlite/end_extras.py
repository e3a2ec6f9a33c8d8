"""What only some ends have: a cause, reported values, returned files.

A cause is kept once per bag; rows have its number. The names of reported values are columns: they
are kept in the order in which they first came with a result that counts. A report that is not a
JSON object is dropped here, so that readers need not check it.
"""

import sqlite3
from collections.abc import Sequence
from typing import Any

from covey.core.record.model import EndRecord
from covey.pilot.protocol.messages import End, OutputFile
from covey.store.results.columns import names_in
from covey.store.sqlite import rows
from covey.store.sqlite.bulk_insert import Inserter

RICH = ("cause", "result", "files")  # the columns of such a row besides those that all rows have
FILES_SHIFT = 24  # the id of a file is its row, shifted by this, plus its place
_MOST_CAUSES = 10_000  # in memory; others are looked up
_ENOUGH_BYTES = 4 * 2**20  # gathered files are written when they have this many bytes


class Extras:
    """The extras of one connection. After an error, throw it away together with the connection."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._execute = connection.execute
        self._causes: dict[tuple[int, str], int] = {}
        self._names: dict[int, dict[str, None]] = {}  # by bag
        self._files: list[Any] = []
        self._bytes = 0
        self._into_files = Inserter(connection, "INSERT INTO files", 7)

    def keep(self, row: int, record: EndRecord, counted: int) -> tuple[Any, ...]:
        """The values of the RICH columns: number of the cause, report, number of files."""
        end = record.end
        cause = self._cause(end.bag, record.cause) if record.cause else None
        if end.files:
            self._gather(row, end.files)
        return cause, self._report(end, counted) if end.result else None, len(end.files)

    def flush(self) -> None:
        if self._files:
            self._into_files.insert(self._files)
            self._files = []
            self._bytes = 0

    def forget(self, bag: int) -> None:
        """The bag was purged."""
        self._causes = {}
        self._names.pop(bag, None)

    def _cause(self, bag: int, text: str) -> int:
        key = (bag, text)
        id_ = self._causes.get(key)
        if id_ is not None:
            return id_
        row = self._execute("SELECT id FROM causes WHERE bag = ? AND text = ?", key).fetchone()
        if row is None:
            id_ = self._execute("INSERT INTO causes (bag, text) VALUES (?, ?)", key).lastrowid
        else:
            (id_,) = row
        assert id_ is not None
        if len(self._causes) >= _MOST_CAUSES:
            self._causes = {}
        self._causes[key] = id_
        return id_

    def _report(self, end: End, counted: int) -> str | None:
        values = rows.reported(end.result)
        if values is None:
            return None
        if counted:
            names = self._names_of(end.bag)
            if not names.keys() >= values.keys():
                self._add_names(end.bag, names_in(values, names, rows.MOST_RESULT_NAMES))
        return end.result

    def _names_of(self, bag: int) -> dict[str, None]:
        names = self._names.get(bag)
        if names is None:
            query = "SELECT name FROM result_names WHERE bag = ? ORDER BY place"
            names = self._names[bag] = {name: None for (name,) in self._execute(query, (bag,))}
        return names

    def _add_names(self, bag: int, new: list[str]) -> None:
        first = len(self._names[bag]) - len(new)
        for place, name in enumerate(new, first):
            self._execute("INSERT INTO result_names VALUES (?, ?, ?)", (bag, place, name))

    def _gather(self, row: int, files: Sequence[OutputFile]) -> None:
        for id_, file in enumerate(files, row << FILES_SHIFT):
            content = rows.file_content(file)
            data, packed = rows.pack_data(content)
            digest, executable = file.digest or None, int(file.executable)
            self._files += (id_, file.path, file.size, digest, data, packed, executable)
            self._bytes += len(content)
        if self._bytes >= _ENOUGH_BYTES:
            self.flush()
