"""A record of the fourth version becomes a current one, and loses nothing."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from covey.core.errors import StoreError
from covey.core.record.actions import EndJob, SaveJob, SaveSite
from covey.core.record.model import (
    BagId,
    Ban,
    History,
    JobId,
    JobRecord,
    PolicySpec,
    SiteRecord,
    SiteSpec,
    SiteStatus,
)
from covey.store.sqlite.reading import SqliteReader
from covey.store.sqlite.sqlite_record import SqliteRecord
from tests.integration.old_records import record_of_version
from tests.unit.store.builders import BAG, pilot

JOB = JobRecord(id=JobId("1-1"), site="local", slots=4, submitted=5.0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return record_of_version(4, tmp_path)


def test_a_server_goes_on_with_it(path: Path) -> None:
    with pytest.raises(StoreError, match="older covey"):
        SqliteReader(path).bags()
    record = SqliteRecord(path)
    opened = record.open()
    assert (opened.epoch, opened.next_bag, opened.keys) == (2, 3, {"k": 2})
    (running,) = opened.bags
    assert (running.bag.id, running.bag.total, running.open_done) == (2, 5, (0,))
    assert running.bag.policy == PolicySpec(rank="1", only_sites=("here",))
    assert opened.pilots == (pilot(7, machine="m", boot="b", owner="ann", recorded=3),)
    history = History(site="here", done=1.5, bans={"ann": Ban(since=5.0)})
    assert (opened.hosts, opened.histories) == ({"m": "node1"}, {"node1": history})
    assert (opened.jobs, opened.sites) == ((JOB,), ())
    over = record.load(BAG)
    assert over is not None
    assert over.failed == (3,)


def test_what_is_new_can_be_kept(path: Path) -> None:
    record = SqliteRecord(path)
    record.open()
    site = SiteRecord(spec=SiteSpec(name="lake", driver="slurm"), status=SiteStatus.PAUSED)
    new = replace(JOB, id=JobId("2-1"), handle="4711", wall_seconds=60.0, wanted_by="ann")
    old = replace(JOB, handle="1")
    record.apply([SaveSite(site), SaveJob(new), SaveJob(old)])
    record.close()
    opened = SqliteRecord(path).open()
    assert (opened.jobs, opened.sites) == ((old, new), (site,))


def test_a_job_from_before_can_end(path: Path) -> None:
    record = SqliteRecord(path)
    record.open()
    record.apply([EndJob(JOB.id, 9.0, "it ended")])
    assert record.open().jobs == ()
    assert record.load(BagId(2)) is not None
