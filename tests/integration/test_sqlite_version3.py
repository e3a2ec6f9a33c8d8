"""A record of the third version becomes a current one, and loses nothing."""

from pathlib import Path

import pytest

from covey.core.errors import StoreError
from covey.core.record.actions import SaveHistory, SavePolicy
from covey.core.record.model import BagId, Ban, History, PolicySpec, Role, TokenRecord
from covey.store.sqlite.reading import SqliteReader
from covey.store.sqlite.sqlite_record import SqliteRecord
from covey.wire import ResultQuery
from tests.integration.old_records import record_of_version
from tests.unit.store.builders import BAG, pilot


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return record_of_version(3, tmp_path)


def test_a_server_goes_on_with_it(path: Path) -> None:
    with pytest.raises(StoreError, match="older covey"):
        SqliteReader(path).bags()
    record = SqliteRecord(path)
    opened = record.open()
    assert (opened.epoch, opened.next_bag, opened.keys) == (2, 3, {"k": 2})
    (running,) = opened.bags
    assert (running.bag.id, running.bag.total, running.bag.open) == (2, 5, True)
    assert (running.open_done, running.keys, len(running.bag.segments)) == ((0,), ("s",), 1)
    assert (running.bag.policy, running.bag.spec.policy) == (None, PolicySpec())
    token = TokenRecord(id=1, name="n", role=Role.USER, owner="ann", digest="d", created=1.0)
    assert (opened.tokens, opened.next_token) == ((token,), 3)
    assert opened.pilots == (pilot(7, machine="m", boot="b", owner="ann", recorded=3),)
    assert [one.id for one in opened.jobs] == ["1-1"]
    assert (opened.hosts, opened.histories) == ({"m": "node1"}, {})
    over = record.load(BAG)
    assert over is not None
    assert (over.failed, over.bag.policy) == ((3,), None)


def test_what_is_new_can_be_kept(path: Path) -> None:
    record = SqliteRecord(path)
    record.open()
    policy = PolicySpec(rank="1")
    history = History(site="here", done=1.5, bans={"ann": Ban(since=5.0)})
    record.apply([SavePolicy(BagId(2), policy), SaveHistory("node1", history)])
    record.close()
    opened = SqliteRecord(path).open()
    assert ([one.bag.policy for one in opened.bags], opened.histories) == (
        [policy],
        {"node1": history},
    )
    assert opened.hosts == {"m": "node1"}


def test_what_is_known_can_be_read(path: Path) -> None:
    SqliteRecord(path).open()
    reader = SqliteReader(path)
    rows = reader.results(BAG, ResultQuery())
    assert [(row.task, row.outcome, row.cause) for row in rows] == (
        [(0, "ok", ""), (1, "ok", ""), (2, "ok", ""), (3, "failed", "exit 3")]
    )
    assert {one.host: (one.done, one.failed, one.site) for one in reader.hosts()} == (
        {"node1": (5, 1, "here"), "node2": (0, 0, "")}
    )
    waste = reader.waste(BAG)
    assert waste is not None
    assert (waste.cancelled, waste.discarded, waste.lost) == (1, 1, 1)
    seconds = (waste.cancelled_seconds, waste.discarded_seconds, waste.lost_seconds)
    assert seconds == pytest.approx((1.4, 1.4, 1.7))
    reader.close()
