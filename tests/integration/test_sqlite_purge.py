"""Purging leaves nothing of a bag in any table, looks at no other bag, and its space is used
again."""

import os
import sqlite3
from pathlib import Path

import pytest

from covey.core.record.actions import (
    AppendSegment,
    PurgeBag,
    ReopenFailed,
    SaveBagStatus,
    SavePilot,
)
from covey.core.record.model import BagId, BagStatus, Segment, Verdict
from covey.core.values.space import Axis, Values
from covey.store.sqlite import purge
from covey.store.sqlite.reading import SqliteReader
from covey.store.sqlite.sqlite_record import SqliteRecord
from tests.unit.store.builders import a_bag_of, end, ends, pilot, returned

TABLES = ("ends", "outputs", "files", "chunks", "segments", "reopenings", "causes", "result_names")


@pytest.fixture
def record(tmp_path: Path) -> SqliteRecord:
    made = SqliteRecord(tmp_path / "record.db")
    made.open()
    made.apply([SavePilot(pilot())])
    return made


def fill(record: SqliteRecord, id_: int, size: int = 100) -> None:
    count = 60
    bag = BagId(id_)
    record.apply(a_bag_of(count, id_=id_)[1:])
    segment = Segment(space=Axis("x", Values((1,))))
    record.apply([AppendSegment(bag, segment, count + 1, "k")])
    made = [
        end(
            task,
            "failed" if task % 5 == 0 else "ok",
            Verdict.WASTE if task % 7 == 0 else Verdict.COUNTS,
            bag=id_,
            attempt=(1, id_ * 1000 + task + 1),
            stdout=os.urandom(size).hex(),
            cause="exit 1" if task % 5 == 0 else "",
            result='{"a":1}',
            files=(returned("f", size, data=os.urandom(size)),),
        )
        for task in range(count)
    ]
    record.apply([ends(*made), ReopenFailed(bag, 1.0, (5,))])
    record.apply([SaveBagStatus(bag, BagStatus.CANCELLED, 9.0, 0, 0)])


def counts(path: Path) -> dict[str, int]:
    connection = sqlite3.connect(path)
    found = {
        table: connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in TABLES
    }
    connection.close()
    return found


def test_nothing_is_left(record: SqliteRecord) -> None:
    fill(record, 1)
    one = counts(record.path)
    assert min(one.values()) > 0, "the test looks at every table"
    fill(record, 2)
    record.apply([PurgeBag(BagId(1), "all")])
    assert counts(record.path) == one
    record.apply([PurgeBag(BagId(2), "all")])
    assert set(counts(record.path).values()) == {0}


def test_no_table_is_scanned(record: SqliteRecord) -> None:
    fill(record, 1)
    connection = record._connection
    assert connection is not None
    statements: list[str] = []
    connection.set_trace_callback(statements.append)
    for what in (purge.LOGS, purge.FILES, purge.ALL):
        record.apply([PurgeBag(BagId(1), what)])
    connection.set_trace_callback(None)
    changing = [text for text in statements if text.lstrip().startswith(("DELETE", "UPDATE ends"))]
    assert len(changing) >= 8
    for statement in changing:
        plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}")]
        scans = [step for step in plan if step.startswith("SCAN") and step.split()[1] in TABLES]
        assert not scans, (statement, plan)


def test_space_is_used_again(record: SqliteRecord) -> None:
    for id_ in range(1, 4):
        fill(record, id_, 10_000)
    connection = record._connection
    assert connection is not None
    (before,) = connection.execute("PRAGMA page_count").fetchone()
    for id_ in range(1, 4):
        record.apply([PurgeBag(BagId(id_), "all")])
    for id_ in range(4, 7):
        fill(record, id_, 10_000)
    (after,) = connection.execute("PRAGMA page_count").fetchone()
    assert after <= before * 1.05


def large(record: SqliteRecord, id_: int, count: int = 3000, size: int = 2000) -> None:
    """A bag that is over, with more rows than the first step of a purge removes."""
    record.apply(a_bag_of(count, id_=id_)[1:])
    for first in range(0, count, 1000):
        made = [
            end(task, bag=id_, attempt=(1, id_ * 10_000 + task + 1), stdout=os.urandom(size).hex())
            for task in range(first, first + 1000)
        ]
        record.apply([ends(*made)])
    record.apply([SaveBagStatus(BagId(id_), BagStatus.CANCELLED, 9.0, 0, 0)])


def size(record: SqliteRecord) -> int:
    """Bytes of the file with what its log will add."""
    connection = record._connection
    assert connection is not None
    pages: int = connection.execute("PRAGMA page_count").fetchone()[0]
    return pages * 4096


def tidy(record: SqliteRecord) -> int:
    """All that is left to do; in how many pieces."""
    pieces = 0
    while record.tidy() is not None:
        pieces += 1
    return pieces


def test_a_large_bag_goes_in_short_pieces(record: SqliteRecord) -> None:
    large(record, 1)
    large(record, 2, 1000)
    record.apply([PurgeBag(BagId(1), "all")])
    assert record.removing() == {BagId(1)}
    reader = SqliteReader(record.path)
    assert reader.bag(1) is None, "it is gone for whoever asks"
    reader.close()
    assert tidy(record) > 3
    assert not record.removing()
    assert counts(record.path)["ends"] == 1000
    assert counts(record.path)["chunks"] == 1


def test_space_is_given_back(record: SqliteRecord) -> None:
    large(record, 1)
    large(record, 2)
    before = size(record)
    record.apply([PurgeBag(BagId(1), "logs"), PurgeBag(BagId(2), "all")])
    assert tidy(record) < 300, "a piece is more than a page"
    assert record.path.stat().st_size < before / 4
    assert os.stat(f"{record.path}-wal").st_size == 0


@pytest.mark.parametrize("what", ["logs", "files"])
def test_what_a_retry_records_after_the_order_stays(record: SqliteRecord, what: str) -> None:
    large(record, 1)
    record.apply([PurgeBag(BagId(1), what)])
    file = returned("f", 1, data=b"x")
    new = end(2999, verdict=Verdict.WASTE, bag=1, attempt=(1, 90_000), stdout="new", files=(file,))
    record.apply([ends(new)])
    tidy(record)
    left = counts(record.path)
    assert (left["outputs"], left["files"]) == ((1, 1) if what == "logs" else (3001, 1))


def test_a_purge_that_a_crash_ended_goes_on(record: SqliteRecord) -> None:
    large(record, 1)
    record.apply([PurgeBag(BagId(1), "all")])
    record.close()
    again = SqliteRecord(record.path)
    again.open()
    assert again.removing() == {BagId(1)}
    tidy(again)
    assert set(counts(record.path).values()) == {0}
    again.close()
