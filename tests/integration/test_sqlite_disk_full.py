"""A full disk: writing fails with words, nothing that was promised is lost, and when there is
space again the record goes on.
"""

import os
from pathlib import Path

import pytest

from covey.core.errors import StoreFailed
from covey.store.lock import Lock, holder
from covey.store.sqlite.reading import SqliteReader
from covey.store.sqlite.sqlite_record import SqliteRecord
from covey.wire import ResultQuery
from tests.unit.store.builders import BAG, a_bag_of, end, ends

TOTAL = 20_000


def fill(disk: Path) -> Path:
    """Take all the space there is."""
    ballast = disk / "ballast"
    with ballast.open("ab", buffering=0) as file:
        for size in (65536, 4096, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                pass
    return ballast


def write_until_full(record: SqliteRecord, first: int) -> int:
    """The first task whose commit failed."""
    told = "the disk never filled up"
    for task in range(first, TOTAL):
        noise = os.urandom(500).hex()
        try:
            record.apply([ends(end(task, stdout=noise), number=task + 1)])
        except StoreFailed as error:
            told = str(error)
            break
    assert "full" in told or "disk I/O" in told, told
    return task


def check(disk: Path, promised: int) -> None:
    reader = SqliteReader(disk / "record.db")
    rows = reader.results(BAG, ResultQuery(limit=TOTAL))
    assert [row.task for row in rows][:promised] == list(range(promised))
    reader.close()


@pytest.mark.parametrize("where", ["local", "network"])
def test_writing_goes_on_when_there_is_space_again(disk: Path, where: str) -> None:
    mounts = f"s:/x {disk} nfs rw 0 0\n" if where == "network" else None
    record = SqliteRecord(disk / "record.db", mounts=mounts)
    record.open()
    record.apply(a_bag_of(TOTAL))
    epochs, task = [1], 0
    spares = [disk / f"spare{n}" for n in range(3)]
    for spare in spares:
        spare.write_bytes(b"x" * 300_000)
    for spare in spares:
        task = write_until_full(record, task)
        with pytest.raises(StoreFailed, match="not open"):
            record.apply([])
        ballast = fill(disk)
        try:
            record.open()
        except StoreFailed:
            pass
        record.close()
        ballast.unlink()
        spare.unlink()
        snapshot = record.open()
        epochs.append(snapshot.epoch)
        assert snapshot.pilots[0].recorded >= task
        check(disk, task)
        task = snapshot.pilots[0].recorded  # a commit that failed may yet be there
        record.apply([ends(end(task), number=task + 1)])
        task += 1
    assert epochs == sorted(set(epochs))
    record.close()
    check(disk, task)


def test_opening_and_reading_on_a_full_disk(disk: Path) -> None:
    record = SqliteRecord(disk / "record.db")
    record.open()
    record.apply([*a_bag_of(10), ends(end(0))])
    reader = SqliteReader(disk / "record.db")
    assert len(reader.results(BAG, ResultQuery())) == 1
    fill(disk)
    assert len(reader.results(BAG, ResultQuery())) == 1
    record.close()
    reader.close()
    for _ in range(3):
        try:
            SqliteRecord(disk / "record.db").open()
        except StoreFailed:
            pass
    (disk / "ballast").unlink()
    assert SqliteRecord(disk / "record.db").open().bags[0].open_done == (0,)


def test_a_new_record_on_a_full_disk(disk: Path) -> None:
    fill(disk)
    with pytest.raises(StoreFailed):
        SqliteRecord(disk / "record.db").open()
    (disk / "ballast").unlink()
    assert SqliteRecord(disk / "record.db").open().epoch == 1


def test_the_lock_on_a_full_disk(disk: Path) -> None:
    fill(disk)
    with Lock(disk) as lock:
        told = holder(disk)
        assert told is not None
        assert told.pid in (0, lock.holder.pid)
