"""The records that the contract suite holds to the same answers."""

from pathlib import Path
from typing import Protocol

from covey.core.record.model import Rows, Snapshot
from covey.core.values.space import Point, Scalar
from covey.ports import Reader, Record
from covey.store.sqlite.reading import SqliteReader
from covey.store.sqlite.sqlite_record import SqliteRecord
from tests.memory_store.memory_record import MemoryRecord

# Rows of files, by digest, as the records are told of them.
CASES = Rows(digest="c" * 64, form="csv", names=("case", "size"), count=3)
MORE_CASES = Rows(digest="d" * 64, form="csv", names=("case", "size"), count=2)
TABLES: dict[str, list[list[Scalar]]] = {
    CASES.digest: [["left", 1], ["right", 2.5], ["a,b", 3]],
    MORE_CASES.digest: [["up", 10], ["down", "?"]],
}


class Tables:
    def point(self, rows: Rows) -> Point:
        return TABLES[rows.digest].__getitem__


class Kept(Protocol):
    """A record that is open, its reader, and a way to open it again as a new server would."""

    record: Record
    reader: Reader

    def reopen(self) -> Snapshot: ...

    def close(self) -> None: ...


class KeptInMemory:
    def __init__(self) -> None:
        both = MemoryRecord(TABLES)
        both.open()
        self.record: Record = both
        self.reader: Reader = both

    def reopen(self) -> Snapshot:
        return self.record.open()

    def close(self) -> None:
        self.record.close()


class KeptInSqlite:
    def __init__(self, path: Path) -> None:
        self._path = path
        self.record: Record = SqliteRecord(path)
        self.record.open()
        self.reader: Reader = SqliteReader(path, Tables())

    def reopen(self) -> Snapshot:
        self.record.close()
        self.record = SqliteRecord(self._path)
        return self.record.open()

    def close(self) -> None:
        self.record.close()
        assert isinstance(self.reader, SqliteReader)
        self.reader.close()
