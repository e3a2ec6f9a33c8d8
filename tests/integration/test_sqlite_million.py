"""A large bag costs what is open of it, not what is done."""

import time
from pathlib import Path

from covey.core.record.actions import SaveBag
from covey.core.record.model import ChunkRecord
from covey.store.sqlite.reading import SqliteReader
from covey.store.sqlite.sqlite_record import SqliteRecord
from covey.wire import ResultQuery
from tests.unit.store.builders import BAG, bag, end, ends

DONE = 1_000_000
CHUNK = 10_000
TOTAL = 10_000_000


def fill(record: SqliteRecord) -> None:
    """Straight into the tables: a million results, of which a hundred are failures."""
    connection = record._connection
    assert connection is not None
    connection.execute("BEGIN")
    connection.executemany(
        "INSERT INTO chunks (bag, first, stop, epoch, closed) VALUES (1, ?, ?, 1, ?)",
        ((n, n + CHUNK, int(n < DONE - CHUNK)) for n in range(0, DONE, CHUNK)),
    )
    connection.execute("INSERT INTO hosts (id, name) VALUES (1, 'node1')")
    connection.executemany(
        "INSERT INTO ends VALUES (?, 1, ?, 1, ?, 7, 1, ?, 1, 0, 0, "
        "1e9, 1e9, 1e9, 1e9, 1e9, 0.5, 100, 0, 0, NULL, NULL, NULL, NULL, 0)",
        ((n + 1, n, n + 1, int(n % 10_000 == 77)) for n in range(DONE - 1)),
    )
    connection.execute("COMMIT")


def test_a_million_results(tmp_path: Path) -> None:
    path = tmp_path / "record.db"
    record = SqliteRecord(path)
    record.open()
    record.apply([SaveBag(bag(1, TOTAL))])
    fill(record)

    started = time.monotonic()
    (snapshot,) = record.open().bags
    assert len(snapshot.chunks) == DONE // CHUNK
    assert snapshot.chunks[-1] == ChunkRecord(first=DONE - CHUNK, stop=DONE, closed=False)
    assert len(snapshot.open_done) == CHUNK - 2
    assert snapshot.failed == tuple(range(77, DONE, 10_000))
    record.apply([ends(end(DONE - 1))])
    opened = time.monotonic()

    reader = SqliteReader(path)
    view = reader.bag(BAG)
    assert view is not None
    assert (view.done, view.failed, view.total) == (DONE - 100, 100, TOTAL)
    page = reader.results(BAG, ResultQuery(after=900_000, limit=10))
    assert [row.task for row in page] == list(range(900_001, 900_011))
    page = reader.results(BAG, ResultQuery(after=900_000, limit=10, by_row=True))
    assert [row.row for row in page] == list(range(900_001, 900_011))
    assert len(reader.results(BAG, ResultQuery(failed_only=True))) == 100
    assert len(reader.attempts(BAG, 500_000)) == 1
    (group,) = reader.failures(BAG)
    assert (group.count, group.host_count, group.tasks[:2]) == (100, 1, [77, 10_077])
    assert reader.files(BAG) == []
    query = ResultQuery(where=("x > 900_100", "state = failed"), sort="-x", limit=3)
    assert [row.task for row in reader.results(BAG, query)] == [990_077, 980_077, 970_077]
    exported = b"".join(reader.export(BAG, ResultQuery(after=990_000), "csv"))
    assert exported.count(b"\n") == 10_000
    read = time.monotonic()
    print(f"opened in {opened - started:.3f} s, read in {read - opened:.3f} s")
    record.close()
