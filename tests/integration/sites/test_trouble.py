"""Sites in trouble: a fake batch system, and hosts without a network, with real processes."""

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from covey.core.errors import BadConfig
from covey.core.record.events import (
    JobEnded,
    JobRefused,
    JobRequeued,
    JobStarted,
    JobSubmitted,
    JobVanished,
    SiteAnswered,
    SiteFailed,
)
from covey.core.record.model import JobRecord, SiteSpec
from covey.sites.driver import Driver
from tests.contract.placing import ENDS, Field, job
from tests.contract.test_sites import hosts
from tests.integration.sites.fake_batch import FAKE, FakeBatch


class Cluster(Field):
    """A field with a fake batch system, whose files make trouble."""

    def __init__(self, folder: Path) -> None:
        self.fake = folder / "fake"
        self.fake.mkdir(exist_ok=True)
        self.driver = FakeBatch()
        super().__init__(folder, self.site("there"), lambda _: self.driver)

    def site(self, name: str, **more: object) -> SiteSpec:
        fields: dict[str, object] = {
            "directory": str(self.fake.parent / "site"),
            "environment": {FAKE: str(self.fake)},
            "interval_seconds": 0.1,
            "pause_seconds": 0.01,
        }
        return SiteSpec(name=name, driver="fake", **{**fields, **more})  # type: ignore[arg-type]

    def make(self, trouble: str, text: str = "") -> None:
        (self.fake / trouble).write_text(text)

    def mend(self, trouble: str) -> None:
        (self.fake / trouble).unlink()

    def calls(self, what: str) -> list[list[str]]:
        path = self.fake / "calls"
        lines = path.read_text().splitlines() if path.exists() else []
        return [line.split()[1:] for line in lines if line.split()[0] == what]

    def there(self) -> list[str]:
        """The names of all jobs that ever were there."""
        return sorted(path.read_text().strip() for path in self.fake.glob("jobs/*/name"))


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path)
    yield made
    made.close()


# -- submissions that nobody is sure of -----------------------------------------------------


def test_a_job_that_was_taken_without_an_answer_is_found_by_its_name(cluster: Cluster) -> None:
    cluster.driver = FakeBatch(seconds=1.0)
    cluster.make("deaf", "60")
    one = job(1)
    manager = cluster.manager()
    manager.submit((one,))
    cluster.wait(SiteFailed)
    cluster.mend("deaf")
    cluster.wait(JobSubmitted, one)
    cluster.pilot(one)
    manager.submit((one,))
    cluster.send_home(one)
    cluster.wait(JobEnded, one)
    assert cluster.there() == ["covey-q1-1-1"]
    assert cluster.starts(one) == 1


def test_a_job_that_was_not_taken_is_told_of(cluster: Cluster) -> None:
    cluster.driver = FakeBatch(seconds=1.0)
    manager = cluster.manager()
    cluster.wait(SiteAnswered)
    cluster.make("slow", "60")
    one = job(1)
    manager.submit((one,))
    cluster.wait(SiteFailed)
    cluster.mend("slow")
    cluster.wait(JobVanished, one)
    assert cluster.there() == []


def test_a_refused_job(cluster: Cluster) -> None:
    cluster.make("refuse")
    one = job(1)
    cluster.manager().submit((one,))
    assert cluster.wait(JobRefused, one) == JobRefused(one.id, "invalid account")
    assert not cluster.heard(SiteFailed)


# -- lists that lie, and lists that do not come ---------------------------------------------


def test_an_end_that_is_no_longer_listed_is_found_in_the_accounts(cluster: Cluster) -> None:
    one = job(1)
    cluster.make("forget")
    cluster.manager().submit((one,))
    cluster.pilot(one)
    cluster.send_home(one)
    assert cluster.wait(JobEnded, one) == JobEnded(one.id, "done")
    assert len(cluster.calls("account")) == 1


def test_a_job_that_is_not_listed_any_more_has_vanished(cluster: Cluster) -> None:
    one = job(1)
    cluster.manager().submit((one,))
    cluster.pilot(one)
    cluster.wait(JobStarted, one)
    cluster.make("amnesia")
    cluster.make("lost")
    cluster.wait(JobVanished, one)
    assert cluster.alive(one)
    cluster.mend("lost")
    cluster.wait(JobStarted, one, count=2)  # nothing is submitted or cancelled meanwhile


def test_a_requeued_job(cluster: Cluster) -> None:
    one = job(1)
    cluster.manager().submit((one,))
    pid = int(str(cluster.pilot(one)["pid"]))
    cluster.wait(JobStarted, one)
    cluster.make("hold")
    folder = cluster.fake / "jobs" / "1"
    (folder / "reason").write_text("node failed\n")
    (folder / "state").write_text("waiting\n")
    os.kill(pid, signal.SIGKILL)
    assert cluster.wait(JobRequeued, one) == JobRequeued(one.id, "node failed")
    cluster.mend("hold")
    cluster.wait(JobStarted, one, count=2)
    cluster.wait_until(lambda: cluster.starts(one) == 2)
    assert not cluster.heard(ENDS)


def test_an_outage_ends_nothing(cluster: Cluster) -> None:
    one = job(1)
    manager = cluster.manager()
    manager.submit((one,))
    cluster.pilot(one)
    cluster.wait(JobStarted, one)
    cluster.make("down")
    cluster.wait(SiteFailed, count=3)
    assert cluster.heard(SiteFailed)[0] == SiteFailed("there", "controller is away")
    cluster.mend("down")
    cluster.wait(SiteAnswered, count=2)
    assert not cluster.heard(ENDS)
    cluster.send_home(one)
    cluster.wait(JobEnded, one)


# -- servers that are killed ----------------------------------------------------------------


SUBMITTER = """\
import sys, time
from pathlib import Path
from tests.integration.sites.test_trouble import Cluster, outstanding
cluster = Cluster(Path(sys.argv[1]))
manager = cluster.manager()
jobs = outstanding(int(sys.argv[2]))
for one in jobs[:-5]:
    manager.submit((one,))
manager.submit(jobs[-5:])
time.sleep(600)
"""


def outstanding(count: int) -> tuple[JobRecord, ...]:
    return (*map(job, range(count)), *(job(900, part) for part in range(5)))


@pytest.mark.parametrize("after", [1, 4, 9])
def test_a_server_that_is_killed_while_it_submits(cluster: Cluster, after: int) -> None:
    """None doubled, none lost: each job runs once, or is told of as never arrived."""
    jobs = outstanding(12)
    words = [sys.executable, "-c", SUBMITTER, str(cluster.folder), "12"]
    process = subprocess.Popen(words, cwd=Path(__file__).parents[3], start_new_session=True)
    cluster.wait_until(lambda: len(cluster.calls("submit")) >= after)
    process.kill()
    process.wait()
    cluster.manager(jobs)
    for one in jobs:
        cluster.wait(JobSubmitted | JobVanished, one)
    arrived = [one for one in jobs if cluster.heard(JobSubmitted, one)]
    assert cluster.there() == sorted(f"covey-q1-{one.id}" for one in arrived)
    assert len(arrived) >= after - 1
    for one in arrived:
        cluster.pilot(one)
    assert [cluster.starts(one) for one in jobs] == [int(one in arrived) for one in jobs]


# -- many jobs ------------------------------------------------------------------------------


def test_five_hundred_jobs_are_cancelled_in_bounded_batches(cluster: Cluster) -> None:
    cluster.make("hold")
    cluster.driver = FakeBatch(most_elements=500)
    jobs = tuple(job(1, part) for part in range(500))
    manager = cluster.manager()
    manager.submit(jobs)
    cluster.wait(JobSubmitted, jobs[-1])
    manager.cancel(jobs)
    cluster.wait(JobEnded, count=500)
    cancelled = cluster.calls("cancel")
    assert max(map(len, cancelled)) <= 100
    told = sorted(handle for handles in cancelled for handle in handles)
    assert told == sorted(f"1_{index}" for index in range(500))


def test_one_list_for_all_jobs(cluster: Cluster) -> None:
    cluster.spec = replace(cluster.spec, interval_seconds=0.5)
    cluster.make("hold")
    jobs = tuple(job(1, part) for part in range(100))
    manager = cluster.manager()
    began = time.monotonic()
    manager.submit(jobs)
    cluster.wait_until(lambda: len(cluster.calls("list")) >= 4)
    assert len(cluster.calls("list")) <= 2 + (time.monotonic() - began) / 0.5
    manager.cancel(jobs)
    cluster.wait(JobEnded, count=100)


# -- several sites --------------------------------------------------------------------------


def test_a_slow_site_slows_no_other(cluster: Cluster, tmp_path: Path) -> None:
    slow = tmp_path / "slow"
    slow.mkdir()
    (slow / "slow").write_text("30")
    cluster.others = (cluster.site("snail", environment={FAKE: str(slow)}),)
    manager = cluster.manager()
    manager.submit((job(1, site="snail"),))
    one = job(2)
    manager.submit((one,))
    cluster.pilot(one)
    cluster.send_home(one)
    cluster.wait(JobEnded, one)
    assert not (slow / "jobs").exists()


def test_two_sites_of_one_batch_system_leave_each_other_alone(cluster: Cluster) -> None:
    cluster.others = (cluster.site("gpus"),)
    one, other = job(1), job(2, site="gpus")
    before = cluster.manager()
    before.submit((one,))
    before.submit((other,))
    cluster.pilot(one), cluster.pilot(other)
    cluster.stop(before)
    cluster.manager((one, other))
    lists = len(cluster.calls("list"))
    cluster.wait(JobStarted, one)
    cluster.wait(JobStarted, other)
    cluster.wait_until(lambda: len(cluster.calls("list")) >= lists + 6)
    assert not cluster.notes
    assert (cluster.alive(one), cluster.alive(other)) == (True, True)


def test_two_sites_of_one_batch_system_do_so_after_lists_that_lied(cluster: Cluster) -> None:
    """A pilot may be heard, whatever they say: only core knows."""
    cluster.others = (cluster.site("gpus"),)
    one, other = job(1), job(2, site="gpus")
    manager = cluster.manager()
    manager.submit((one,))
    manager.submit((other,))
    cluster.pilot(one), cluster.pilot(other)
    cluster.make("amnesia")
    cluster.make("lost")
    cluster.wait(JobVanished, one)
    cluster.wait(JobVanished, other)
    cluster.mend("lost")
    manager.submit((job(3),))
    manager.submit((job(4, site="gpus"),))
    lists = len(cluster.calls("list"))
    cluster.wait_until(lambda: len(cluster.calls("list")) >= lists + 6)
    assert not cluster.notes
    assert not cluster.calls("cancel")
    assert (cluster.alive(one), cluster.alive(other)) == (True, True)
    manager.cancel((one,))
    cluster.wait(JobEnded | JobVanished, one, count=2)
    assert cluster.alive(other)


def test_sites_come_change_and_go(cluster: Cluster) -> None:
    manager = cluster.manager()
    manager.define((cluster.spec, cluster.site("new")))
    one = job(1, site="new")
    manager.submit((one,))
    cluster.pilot(one)
    elsewhere = str(cluster.folder / "elsewhere")
    manager.define((cluster.spec, cluster.site("new", directory=elsewhere)))
    other = job(2, site="new")
    manager.submit((other,))
    cluster.pilot(other)
    assert (cluster.folder / "elsewhere" / "log").is_dir()
    cluster.send_home(one)
    cluster.wait(JobEnded, one)
    manager.define((cluster.spec,))
    manager.submit((job(3, site="new"),))
    cluster.wait(JobRefused, job(3, site="new"))


def test_jobs_outlive_a_mistake_in_the_settings(cluster: Cluster) -> None:
    one = job(1)
    before = cluster.manager()
    before.submit((one,))
    cluster.pilot(one)
    cluster.stop(before)
    bad = replace(cluster.spec, driver="fkae")
    good, cluster.spec = cluster.spec, bad

    def driver_of(spec: SiteSpec) -> Driver:
        if spec.driver != "fake":
            raise BadConfig(f"there is no driver {spec.driver}")
        return cluster.driver

    cluster._driver_of = driver_of
    manager = cluster.manager((one,))
    assert cluster.wait(SiteFailed) == SiteFailed("there", "there is no driver fkae")
    manager.submit((job(2),))
    cluster.wait(JobRefused, job(2))
    manager.define((good,))
    cluster.wait(JobStarted, one)
    assert cluster.alive(one)
    assert not cluster.heard(ENDS, one)


def test_a_missing_credential(cluster: Cluster) -> None:
    key = cluster.folder / "key's file"
    cluster.spec = replace(
        cluster.spec,
        credentials=(str(key),),
        credential_check=f"grep valid {shlex.quote(str(key))}",
    )
    cluster.manager()
    words = f"the credential {key} is missing, or cannot be read"
    assert cluster.wait(SiteFailed) == SiteFailed("there", words)
    key.write_text("expired")
    cluster.wait_until(lambda: "credential check failed" in str(cluster.heard(SiteFailed)[-1]))
    key.write_text("valid")
    cluster.wait(SiteAnswered)


# -- hosts ----------------------------------------------------------------------------------


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Field]:
    made = hosts(tmp_path)
    yield made
    made.close()


def cut(lab: Field, what: str, text: str = "") -> None:
    (lab.folder / "network" / what).write_text(text)


def mend(lab: Field, what: str) -> None:
    (lab.folder / "network" / what).unlink()


def at(lab: Field, host: str) -> int:
    """Jobs that were started there."""
    return len(list((lab.folder / "site" / "hosts" / host / "jobs").glob("*/process")))


def test_hosts_have_room_for_so_many_slots(lab: Field) -> None:
    jobs = tuple(job(1, part) for part in range(6))  # of two slots each, on two hosts with four
    lab.manager().submit(jobs)
    for one in jobs:
        lab.wait(JobSubmitted, one)
    for one in jobs[:4]:
        lab.pilot(one)
    assert (at(lab, "left"), at(lab, "right")) == (2, 2)
    assert sum(map(lab.starts, jobs)) == 4
    lab.send_home(jobs[0])
    lab.pilot(jobs[4])
    assert lab.starts(jobs[5]) == 0


def test_a_job_that_waits_for_room_can_be_taken_back(lab: Field) -> None:
    jobs = tuple(job(1, part) for part in range(5))
    manager = lab.manager()
    manager.submit(jobs)
    lab.pilot(jobs[3])
    manager.cancel((jobs[4],))
    lab.wait(JobEnded, jobs[4])
    assert lab.starts(jobs[4]) == 0


def test_a_job_that_no_host_has_room_for(lab: Field) -> None:
    one = job(1, slots=5)
    lab.manager().submit((one,))
    lab.wait(JobRefused, one)


def test_a_host_that_is_down_is_done_without(lab: Field) -> None:
    cut(lab, "left.down")
    manager = lab.manager()
    lab.wait(SiteAnswered)
    jobs = tuple(job(1, part) for part in range(3))
    manager.submit(jobs)
    lab.pilot(jobs[0]), lab.pilot(jobs[1])
    assert at(lab, "right") == 2
    assert not lab.heard(SiteFailed)
    mend(lab, "left.down")
    lab.pilot(jobs[2])
    assert at(lab, "left") == 1


def test_when_all_hosts_are_down_the_site_is(lab: Field) -> None:
    cut(lab, "left.down")
    cut(lab, "right.down")
    manager = lab.manager()
    lab.wait(SiteFailed)
    manager.submit((job(1),))
    lab.wait(JobRefused, job(1))
    mend(lab, "right.down")
    lab.wait(SiteAnswered)
    manager.submit((job(2),))
    lab.pilot(job(2))


def test_a_dead_host_keeps_no_job_on_record_that_others_do_not_have(lab: Field) -> None:
    cut(lab, "left.down")
    lab.manager((job(1),))
    lab.wait(JobVanished, job(1))


def test_a_job_that_a_dead_host_had_after_all_is_ended_there(lab: Field) -> None:
    one = job(1)
    before = lab.manager()
    before.submit((one,))
    lab.pilot(one)
    lab.stop(before)
    host = "left" if at(lab, "left") else "right"
    cut(lab, f"{host}.down")
    manager = lab.manager((one,))
    lab.wait(JobVanished, one)
    manager.cancel((one,))  # so core does, when it gives up a job without a pilot
    mend(lab, f"{host}.down")
    lab.wait_until(lambda: not lab.alive(one))


def test_no_job_is_gone_while_no_host_answers(lab: Field) -> None:
    cut(lab, "left.down")
    cut(lab, "right.down")
    lab.manager((job(1),))
    lab.wait(SiteFailed, count=12)  # for longer than the time that a job has to appear
    assert not lab.heard(JobVanished)


def test_a_cut_connection_does_not_double_a_job(lab: Field) -> None:
    lab.spec = replace(lab.spec, options={"hosts": ("left:4",)})
    manager = lab.manager()
    lab.wait(SiteAnswered)
    warm = job(1)
    manager.submit((warm,))
    lab.pilot(warm)
    one = job(2)
    cut(lab, "left.cut", "0.5")
    manager.submit((one,))
    lab.wait(SiteFailed)
    mend(lab, "left.cut")
    lab.pilot(one)
    lab.wait(JobStarted, one)
    assert lab.starts(one) == 1
    lab.send_home(one)
    lab.wait(JobEnded, one)


def test_hosts_come_and_go(lab: Field) -> None:
    one, other = job(1), job(2)
    manager = lab.manager()
    manager.submit((one, other))
    lab.pilot(one), lab.pilot(other)
    lab.wait_until(lambda: len(lab.heard(JobStarted)) == 2)
    changed = replace(lab.spec, options={"hosts": ("right:4", "middle:4")})
    manager.define((changed,))
    gone = lab.wait(JobVanished)
    assert isinstance(gone, JobVanished)
    assert "left" in gone.reason
    jobs = tuple(job(3, part) for part in range(3))
    manager.submit(jobs)
    for third in jobs:
        lab.pilot(third)
    assert at(lab, "middle") == 2


def test_the_jobs_of_a_host_that_was_away_for_a_while_go_on(lab: Field) -> None:
    one, other = job(1), job(2)
    manager = lab.manager()
    manager.submit((one, other))
    lab.pilot(one), lab.pilot(other)
    lab.wait_until(lambda: len(lab.heard(JobStarted)) == 2)
    manager.define((replace(lab.spec, options={"hosts": ("right:4",)}),))
    lab.wait(JobVanished)
    manager.define((lab.spec,))
    third = job(3, slots=4)
    manager.submit((third,))
    lab.wait(JobStarted, third)
    lab.pilot(third)  # else nobody would end it
    assert not lab.notes
    assert (lab.alive(one), lab.alive(other)) == (True, True)


def test_an_unknown_option_or_host_is_told_of(lab: Field) -> None:
    lab.spec = replace(lab.spec, options={"hosts": ("same", "same")})
    lab.manager()
    failed = lab.wait(SiteFailed)
    assert isinstance(failed, SiteFailed)
    assert "options.hosts names host 'same' twice" in failed.reason
