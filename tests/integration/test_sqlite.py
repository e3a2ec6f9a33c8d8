"""The SQLite record as a file: whose it is, who may open it, who may read it meanwhile."""

import random
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from covey.core.errors import StoreError, StoreFailed, StoreHeld, StoreNewer
from covey.core.record.actions import Change, CloseChunk, SaveBag
from covey.core.record.model import BagId, BagStatus, JobId, JobRecord
from covey.store.sqlite import connections, schema
from covey.store.sqlite.reading import SqliteReader
from covey.store.sqlite.sqlite_record import SqliteRecord
from covey.wire import ResultQuery
from tests.unit.store.builders import BAG, a_bag_of, bag, end, ends, finished, successes


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a dir?with#odd%names" / "record.db"


@pytest.fixture
def record(path: Path) -> SqliteRecord:
    path.parent.mkdir()
    made = SqliteRecord(path)
    made.open()
    return made


def count(path: Path, table: str) -> int:
    connection = sqlite3.connect(path)
    found: int = connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
    connection.close()
    return found


def test_only_its_owner_may_read_it(record: SqliteRecord, path: Path) -> None:
    record.apply([SaveBag(bag())])
    for file in path.parent.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file


def test_it_survives_closing(record: SqliteRecord, path: Path) -> None:
    record.apply([*a_bag_of(4), successes([0, 2])])
    record.close()
    again = SqliteRecord(path)
    assert again.open().bags[0].open_done == (0, 2)
    again.close()
    assert [file.name for file in path.parent.iterdir()] == [path.name], "no log is left behind"


def test_all_changes_or_none(record: SqliteRecord, path: Path) -> None:
    record.apply(a_bag_of(4))
    with pytest.raises(AssertionError, match="UNIQUE"):
        record.apply([successes([0, 1]), ends(end(2, stdout="text")), successes([1])])
    assert count(path, "ends") == count(path, "outputs") == 0
    with pytest.raises(StoreFailed, match="not open"):
        record.apply([successes([0])])
    assert record.open().bags[0].open_done == ()
    record.apply([successes([0])])
    assert count(path, "ends") == 1


def test_failures_carry_the_words_of_sqlite(record: SqliteRecord, path: Path) -> None:
    record.apply(a_bag_of(4))
    other = sqlite3.connect(path)
    other.execute("DROP TABLE outputs")
    other.close()
    with pytest.raises(StoreFailed, match="no such table"):
        record.apply([ends(end(0, stdout="text"))])


def test_a_second_server_puts_the_first_one_off(record: SqliteRecord, path: Path) -> None:
    record.apply(a_bag_of(4))
    second = SqliteRecord(path)
    assert second.open().epoch == 2
    with pytest.raises(StoreHeld):
        record.apply([successes([0])])
    second.apply([successes([1])])
    assert count(path, "ends") == 1


def test_a_newer_record_is_left_alone(record: SqliteRecord, path: Path) -> None:
    record.close()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 1000")
    connection.close()
    before = path.read_bytes()
    for use in (SqliteRecord(path).open, SqliteReader(path).bags):
        with pytest.raises(StoreNewer) as caught:
            use()
        assert (caught.value.found, caught.value.known) == (1000, schema.newest())
    assert path.read_bytes() == before


def test_a_record_that_is_too_old_is_left_alone(record: SqliteRecord, path: Path) -> None:
    record.close()
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {schema.OLDEST - 1}")
    connection.close()
    before = path.read_bytes()
    for use in (SqliteRecord(path).open, SqliteReader(path).bags):
        with pytest.raises(StoreError, match="the oldest that this covey can read"):
            use()
    assert path.read_bytes() == before


@pytest.mark.parametrize("content", ["sqlite", "text"])
def test_a_foreign_file_is_left_alone(tmp_path: Path, content: str) -> None:
    path = tmp_path / "thesis.db"
    if content == "sqlite":
        connection = sqlite3.connect(path)
        connection.execute("CREATE TABLE chapters (words)")
        connection.close()
    else:
        path.write_text("Chapter one. " * 100)
    before = path.read_bytes()
    for use in (SqliteRecord(path).open, SqliteReader(path).bags):
        with pytest.raises(StoreError, match="is not a record of covey") as caught:
            use()
        assert not isinstance(caught.value, StoreFailed)
    assert path.read_bytes() == before


def test_a_missing_directory(tmp_path: Path) -> None:
    with pytest.raises(StoreFailed, match="No such file"):
        SqliteRecord(tmp_path / "none" / "record.db").open()
    with pytest.raises(StoreError, match="no record"):
        SqliteReader(tmp_path / "none" / "record.db").bags()


def test_a_file_whose_maker_died_at_once(tmp_path: Path) -> None:
    path = tmp_path / "record.db"
    path.touch()
    with pytest.raises(StoreError, match="no record"):
        SqliteReader(path).bags()
    assert SqliteRecord(path).open().epoch == 1


def test_migration(record: SqliteRecord, path: Path) -> None:
    """An older file is brought up to date and loses nothing; a broken migration changes
    nothing."""
    record.apply([*a_bag_of(4), successes([0])])
    record.close()
    added = ("ALTER TABLE bags ADD COLUMN mood TEXT NOT NULL DEFAULT 'good'",)
    moved = ("CREATE TABLE moods (bag INTEGER)", "INSERT INTO moods SELECT id FROM bags")
    broken = (*schema.MIGRATIONS, added, ("CREATE TABLE x (y)", "INSERT INTO nowhere VALUES (1)"))
    with pytest.raises(StoreFailed, match="nowhere"):
        SqliteRecord(path, migrations=broken).open()
    current = SqliteRecord(path)
    assert current.open().epoch == 2
    current.close()
    newer = SqliteRecord(path, migrations=(*schema.MIGRATIONS, added, moved))
    snapshot = newer.open()
    assert (snapshot.epoch, snapshot.bags[0].open_done) == (3, (0,))
    newer.close()
    assert count(path, "moods") == 1
    with pytest.raises(StoreNewer):
        SqliteRecord(path).open()


def test_jobs_of_version_7_are_read_though_nobody_knows_how_they_ended(tmp_path: Path) -> None:
    path = tmp_path / "record.db"
    older = SqliteRecord(path, migrations=schema.MIGRATIONS[:2])
    connection = sqlite3.connect(path)
    schema.migrate(connection, path, schema.MIGRATIONS[:2])
    for name, status in (("1-1", "submitted"), ("1-2", "ended")):
        connection.execute(
            "INSERT INTO jobs (id, site, slots, submitted, status) VALUES (?, 'lake', 2, 5.5, ?)",
            (name, status),
        )
    connection.commit()
    connection.close()
    older.close()
    record = SqliteRecord(path)
    snapshot = record.open()
    assert snapshot.jobs == (JobRecord(id=JobId("1-1"), site="lake", slots=2, submitted=5.5),)
    assert snapshot.ended_jobs == ()
    record.close()
    first, second = SqliteReader(path).site_jobs("lake")
    assert (first.id, first.state, second.state) == ("1-2", "ended", "waiting")


@pytest.mark.parametrize("before", ["nothing", "local"])
def test_no_log_on_network_file_systems(tmp_path: Path, before: str) -> None:
    path = tmp_path / "record.db"
    if before == "local":
        local = SqliteRecord(path)
        local.open()
        local.apply([SaveBag(bag(9))])
        local.close()
    record = SqliteRecord(path, mounts=f"server:/x {tmp_path} nfs4 rw 0 0\n")
    assert "nfs4" in record.warning
    record.open()
    record.apply([*a_bag_of(4), successes([0])])
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)
    connection.close()
    reader = SqliteReader(path)
    view = reader.bag(BAG)
    assert view is not None
    assert view.done == 1
    record.apply([successes([1])])
    assert not list(tmp_path.glob("*-wal"))
    record.close()
    assert SqliteRecord(path, mounts="/dev/sda / ext4 rw 0 0\n").warning == ""


def test_every_commit_is_synced(record: SqliteRecord) -> None:
    connection = record._connection
    assert connection is not None
    assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_reading_while_writing(record: SqliteRecord, path: Path) -> None:
    """Readers see whole commits, in order."""
    record.apply(a_bag_of(1500))
    stop = threading.Event()
    seen: list[int] = []
    problems: list[object] = []

    def read() -> None:
        reader = SqliteReader(path)
        while not stop.is_set():
            rows = reader.results(BAG, ResultQuery(by_row=True, limit=10_000))
            if len(rows) % 10 or [row.task for row in rows] != list(range(len(rows))):
                problems.append(rows)
            view = reader.bag(BAG)
            if view is None or view.done < len(rows):
                problems.append(view)
            seen.append(len(rows))

    threads = [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    for first in range(0, 1500, 10):
        record.apply([successes(range(first, first + 10))])
    stop.set()
    for thread in threads:
        thread.join()
    assert not problems
    assert len(set(seen)) > 2


READ = """
import sys
from pathlib import Path
from covey.store.sqlite.reading import SqliteReader
print(SqliteReader(Path(sys.argv[1])).bag(1).done)
"""

DIE = """
import os, sys
from pathlib import Path
from covey.store.sqlite.sqlite_record import SqliteRecord
from tests.unit.store.builders import a_bag_of, successes
record = SqliteRecord(Path(sys.argv[1]))
record.open()
record.apply([*a_bag_of(4), successes([0, 1, 2])])
os.kill(os.getpid(), 9)
"""


def python(code: str, path: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, str(path)]
    root = Path(__file__).parents[2]
    return subprocess.run(command, capture_output=True, text=True, cwd=root, check=False)


def test_reading_from_another_process(record: SqliteRecord, path: Path) -> None:
    record.apply([*a_bag_of(4), successes([0, 1])])
    assert python(READ, path).stdout == "2\n"
    record.apply([successes([2])])
    assert python(READ, path).stdout == "3\n"


def test_reading_what_a_killed_server_left(tmp_path: Path) -> None:
    path = tmp_path / "record.db"
    assert python(DIE, path).returncode == -9
    assert Path(f"{path}-wal").stat().st_size > 0
    reader = SqliteReader(path)
    view = reader.bag(1)
    assert view is not None
    assert view.done == 3


def test_a_reader_writes_nothing(record: SqliteRecord, path: Path) -> None:
    connection = connections.reading(path)
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        connection.execute("DELETE FROM bags")


def test_the_log_is_bounded_even_when_readers_never_pause(
    record: SqliteRecord, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One reader or the other always has a transaction open."""
    monkeypatch.setattr("covey.store.sqlite.sqlite_record._LOG_LIMIT_BYTES", 2 * 2**20)
    monkeypatch.setattr("covey.store.sqlite.sqlite_record._LOOK_EVERY", 4)
    record.apply(a_bag_of(1000))
    stop, turn = threading.Event(), threading.Barrier(2)

    def read() -> None:
        connection = connections.reading(path)
        connection.execute("BEGIN")
        while not stop.is_set():
            connection.execute("SELECT count(*) FROM ends").fetchone()
            time.sleep(0.01)
            turn.wait()  # the other one has begun
            connection.execute("COMMIT")
            connection.execute("BEGIN")
            connection.execute("SELECT count(*) FROM ends").fetchone()
        turn.abort()

    def read_until_stopped() -> None:
        try:
            read()
        except threading.BrokenBarrierError:
            pass

    threads = [threading.Thread(target=read_until_stopped) for _ in range(2)]
    for thread in threads:
        thread.start()
    largest, noise = 0, random.Random(1).randbytes(20_000).hex()
    for task in range(300):
        record.apply([ends(end(task, message=noise + str(task)))])
        largest = max(largest, Path(f"{path}-wal").stat().st_size)
    stop.set()
    for thread in threads:
        thread.join()
    assert largest < 6 * 2**20


def test_a_bag_that_is_over_can_be_loaded(record: SqliteRecord) -> None:
    changes: list[Change] = [*a_bag_of(2), successes([0]), ends(end(1, "failed"))]
    record.apply([*changes, CloseChunk(BAG, 0), finished(1, 1)])
    loaded = record.load(BagId(1))
    assert loaded is not None
    assert (loaded.bag.status, loaded.failed) == (BagStatus.FINISHED, (1,))
