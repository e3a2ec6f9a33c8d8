"""A record of the first version becomes a current one, and loses nothing."""

from pathlib import Path

import pytest

from covey.core.errors import StoreError
from covey.core.record.actions import ReopenFailed
from covey.core.record.model import BagStatus, Need, Reopening
from covey.store.sqlite.reading import SqliteReader
from covey.store.sqlite.sqlite_record import SqliteRecord
from covey.wire import ResultQuery
from tests.integration.old_records import record_of_version
from tests.unit.store.builders import BAG, PILOT, end, ends


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return record_of_version(1, tmp_path)


def test_it_is_converted_by_a_server_only(path: Path) -> None:
    with pytest.raises(StoreError, match="older covey"):
        SqliteReader(path).bags()
    SqliteRecord(path).open()
    assert len(SqliteReader(path).bags()) == 2


def test_bags_go_on_where_they_were(path: Path) -> None:
    opened = SqliteRecord(path).open()
    assert (opened.epoch, opened.next_bag, opened.next_pilot) == (2, 3, 8)
    assert opened.keys == {"k": 2}
    first, second = opened.bags
    assert first.bag.status is BagStatus.RUNNING
    assert (first.open_done, first.failed) == ((0, 1), (2, 5))
    assert (first.tries, first.overtimes) == ({3: 1}, {}), "since the reopening"
    assert first.reopenings == (Reopening(row=5),)
    assert (first.bag.spec.need, second.bag.spec.need) == (Need(), Need(limit_seconds=2.5))
    assert (second.bag.spec.name, second.bag.spec.retries, second.bag.total) == ("n", 1, 3)
    assert (second.bag.open, second.bag.segments, second.keys) == (False, (), ())
    (pilot,) = opened.pilots
    assert (pilot.id, pilot.recorded, pilot.tags) == (PILOT, 4, {"arch": "x86"})


def test_what_is_known_can_be_read(path: Path) -> None:
    record = SqliteRecord(path)
    record.open()
    reader = SqliteReader(path)
    view = reader.bag(2)
    assert view is not None
    assert [need.limit_seconds for need in view.classes] == [2.5]
    rows = reader.results(BAG, ResultQuery())
    assert [(row.task, row.outcome, row.cause) for row in rows] == [
        (0, "ok", ""),
        (1, "ok", ""),
        (2, "failed", "exit 3"),
        (5, "failed", "signal 9"),
    ]
    assert [(group.cause, group.count) for group in reader.failures(BAG)] == (
        [("exit 3", 1), ("signal 9", 1)]
    )
    hosts = {host.host: (host.done, host.failed, host.first) for host in reader.hosts()}
    assert hosts == {"node1": (2, 5, 1001.8), "node2": (0, 0, 1001.8)}
    output = reader.output(BAG, 2)
    assert output is not None
    assert reader.attempts(BAG, 2)[0].message == ""
    record.apply([ends(end(2, "ok", attempt=(2, 1), bag=2)), ReopenFailed(BAG, 9.0, (5,))])
    assert [row.task for row in reader.results(BAG, ResultQuery(failed_only=True))] == [2]
