"""A record of the second version becomes a current one, and loses nothing."""

from pathlib import Path

import pytest

from covey.core.record.actions import SaveHost, SavePilot, SaveToken
from covey.core.record.model import Role, TokenRecord
from covey.store.sqlite.reading import SqliteReader
from covey.store.sqlite.sqlite_record import SqliteRecord
from covey.wire import ResultQuery
from tests.integration.old_records import record_of_version
from tests.unit.store.builders import BAG, pilot


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return record_of_version(2, tmp_path)


def test_a_server_goes_on_with_it(path: Path) -> None:
    opened = SqliteRecord(path).open()
    assert (opened.epoch, opened.next_bag, opened.keys) == (2, 3, {"k": 2})
    assert [one.bag.spec.owner for one in opened.bags] == ["", "ann"]
    assert (opened.bags[0].open_done, opened.bags[0].failed) == ((0, 1), (2,))
    assert opened.pilots == (pilot(7),)
    assert [one.id for one in opened.jobs] == ["1-1"]
    assert (opened.hosts, opened.tokens, opened.next_token) == ({}, (), 1)


def test_what_is_new_can_be_kept(path: Path) -> None:
    record = SqliteRecord(path)
    record.open()
    token = TokenRecord(id=1, name="n", role=Role.USER, owner="ann", digest="d", created=1.0)
    known = pilot(7, machine="m", boot="b", owner="ann")
    record.apply([SaveToken(token), SavePilot(known), SaveHost("node1", "s", 4, 60.0, {}, "m")])
    record.close()
    opened = SqliteRecord(path).open()
    assert (opened.tokens, opened.pilots, opened.hosts) == ((token,), (known,), {"m": "node1"})
    reader = SqliteReader(path)
    (host,) = reader.hosts()
    assert (host.host, host.machine, host.first, host.done) == ("node1", "m", 50.0, 2)
    assert [row.outcome for row in reader.results(BAG, ResultQuery())] == ["ok", "ok", "failed"]
    reader.close()
