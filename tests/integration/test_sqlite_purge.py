"""Purging leaves nothing of a bag in any table, looks at no other bag, and its space is used
again."""

import os
import sqlite3
from pathlib import Path

import pytest

from covey.core.actions import AppendSegment, PurgeBag, ReopenFailed, SaveBagStatus, SavePilot
from covey.core.model import BagId, BagStatus, FileRecord, Segment, Verdict
from covey.core.space import Axis, Values
from covey.store import purging
from covey.store.sqlite import SqliteRecord
from tests.unit.store.builders import a_bag_of, end, ends, pilot

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
            files=(FileRecord("f", size, data=os.urandom(size)),),
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
    for what in (purging.LOGS, purging.FILES, purging.ALL):
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
