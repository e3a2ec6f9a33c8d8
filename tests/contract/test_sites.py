"""What core may rely on, at every kind of site (docs/decisions/0014-pilots-by-demand.md)."""

import secrets
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from covey.core.protocol.tokens import job_secret
from covey.core.record.events import (
    JobEnded,
    JobRefused,
    JobRequeued,
    JobStarted,
    JobSubmitted,
    JobVanished,
    SiteFailed,
)
from covey.core.record.model import Option, SiteSpec
from covey.sites import plugins
from covey.sites.driver import Driver
from covey.sites.drivers.local import Local
from covey.sites.drivers.ssh import Ssh
from tests.contract.placing import ENDS, Field, job
from tests.contract.web_queue import Web, WebApi
from tests.integration.sites.fake_batch import FAKE, FakeBatch
from tests.testbed.gridengine import GridEngine
from tests.testbed.slurm import Slurm
from tests.testbed.ssh import SshHosts

SCRIPTS = Path(__file__).parents[1] / "integration" / "sites"


def local(folder: Path) -> Field:
    command = (sys.executable, str(folder / "pilot.pyz"))
    driver = Local(folder / "pilots", folder / "server.json", command)
    return Field(folder, SiteSpec(name="there", driver="local", slots=2), lambda _: driver)


def batch(folder: Path, most_elements: int = 100) -> Field:
    (folder / "fake").mkdir()
    spec = SiteSpec(
        name="there",
        driver="fake",
        directory=str(folder / "site"),
        environment={FAKE: str(folder / "fake")},
        interval_seconds=0.1,
        pause_seconds=0.01,
    )
    return Field(folder, spec, lambda _: FakeBatch(most_elements))


def hosts(folder: Path) -> Field:
    """Two, without a network."""
    (folder / "network").mkdir()
    spec = SiteSpec(
        name="there",
        driver="ssh",
        options={"hosts": ("left:4", "right:4")},
        directory=str(folder / "site"),
        interval_seconds=0.1,
        pause_seconds=0.01,
    )
    ssh = ("env", f"FAKE_NETWORK={folder / 'network'}", str(SCRIPTS / "fake-ssh"))
    return Field(folder, spec, lambda _: Ssh(), ssh)


class OfWeb(Field):
    """With an API, whose driver calls it."""

    def __init__(self, folder: Path, **options: Option) -> None:
        self.api = WebApi(folder / "api")
        spec = SiteSpec(
            name="there",
            driver="web",
            options={"url": self.api.url, **options},
            interval_seconds=0.1,
            pause_seconds=0.01,
        )
        super().__init__(folder, spec, lambda _: Web())

    def close(self) -> None:
        super().close()
        self.api.close()


KINDS: dict[str, Callable[[Path], Field]] = {
    "local": local,
    "batch": batch,
    "batch without arrays": lambda folder: batch(folder, 1),
    "ssh": hosts,
    "web": OfWeb,
}


# -- real ones --------------------------------------------------------------------------------


def real(folder: Path, driver: str, ssh: Sequence[str] = ("ssh",), **more: Any) -> Field:
    """The queue has a name that no other has: these systems remember the jobs of other tests."""
    spec = SiteSpec(
        name="there",
        driver=driver,
        directory=str(folder / "site"),
        interval_seconds=0.2,
        pause_seconds=0.01,
        **more,
    )
    return Field(folder, spec, installed, ssh, queue="q" + secrets.token_hex(4))


def installed(spec: SiteSpec) -> Driver:
    return plugins.driver_of(spec, plugins.find())


def of_slurm(folder: Path, slurm: Slurm) -> Field:
    return real(folder, "slurm", environment=slurm.environment)


def of_gridengine(folder: Path, gridengine: GridEngine) -> Field:
    """Its pilots have two slots, so they need the parallel environment."""
    options = {"queue": gridengine.queue}
    return real(folder, "gridengine", environment=gridengine.environment, options=options)


def of_sshd(folder: Path, sshd: SshHosts) -> Field:
    if "second" not in sshd.hosts:
        sshd.add("second")
    ssh = ("ssh", "-F", str(sshd.config))
    return real(folder, "ssh", ssh, options={"hosts": ("login:4", "second:4")})


REAL: dict[str, Callable[[Path, Any], Field]] = {  # by the fixture of the testbed
    "slurm": of_slurm,
    "gridengine": of_gridengine,
    "sshd": of_sshd,
}


@pytest.fixture(params=[*KINDS, *REAL])
def system(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def field(system: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Field]:
    if system in REAL:
        made = REAL[system](tmp_path, request.getfixturevalue(system))
    else:
        made = KINDS[system](tmp_path)
    yield made
    made.close()


# -- what holds at all of them ----------------------------------------------------------------


def test_a_job_becomes_a_pilot_and_ends(field: Field) -> None:
    one = job(1)
    field.manager().submit((one,))
    field.wait(JobSubmitted, one)
    told = field.pilot(one)
    assert told["secret"] == job_secret("master", one.id)
    assert (told["job"], told["site"], told["slots"]) == (one.id, "there", 2)
    field.wait(JobStarted, one)
    field.send_home(one)
    field.wait(JobEnded, one)
    assert len(field.heard(ENDS, one)) == 1
    assert not field.heard(JobRequeued)
    assert not field.heard(SiteFailed)


def test_a_start_file_is_for_nobody_else(field: Field) -> None:
    one = job(1)
    field.manager().submit((one,))
    told = field.pilot(one)
    assert stat.S_IMODE(int(str(told["mode"]))) == 0o600
    assert str(told["secret"]) not in str(told["arguments"])


def test_jobs_that_are_submitted_together_are_several(field: Field) -> None:
    jobs = tuple(job(1, part, slots=1) for part in range(3))
    field.manager().submit(jobs)
    for one in jobs:
        field.wait(JobSubmitted, one)
        assert field.pilot(one)["secret"] == job_secret("master", one.id)
        assert field.starts(one) == 1
    field.send_home(jobs[1])
    field.wait(JobEnded, jobs[1])
    assert field.alive(jobs[0])
    assert field.alive(jobs[2])
    assert len(field.heard(ENDS)) == 1


def test_a_cancelled_job_is_there_until_the_site_says_otherwise(field: Field) -> None:
    one, other = job(1), job(2)
    manager = field.manager()
    manager.submit((one,))
    manager.submit((other,))
    field.pilot(one), field.pilot(other)
    manager.cancel((one,))
    field.wait(JobEnded | JobVanished, one)
    assert not field.alive(one)
    assert field.alive(other)
    manager.cancel((one,))  # does no harm
    assert len(field.heard(ENDS)) == 1


def test_a_new_server_finds_the_jobs_again(field: Field) -> None:
    one, other = job(1), job(2)
    before = field.manager()
    before.submit((one,))
    before.submit((other,))
    field.pilot(one), field.pilot(other)
    field.stop(before)
    manager = field.manager((one, other))
    for found in (one, other):
        field.wait(JobSubmitted, found)
        field.wait(JobStarted, found)
    manager.cancel((one,))
    field.wait(JobEnded | JobVanished, one)
    field.send_home(other)
    field.wait(JobEnded, other)
    assert (field.starts(one), field.starts(other)) == (1, 1)
    assert len(field.heard(ENDS)) == 2


def test_what_ended_while_nobody_looked_has_ended(field: Field) -> None:
    """Lists may have forgotten it; by what the site called it accounts can tell."""
    one = job(1)
    before = field.manager()
    before.submit((one,))
    submitted = field.wait(JobSubmitted, one)
    assert isinstance(submitted, JobSubmitted)
    one = replace(one, handle=submitted.handle)
    field.pilot(one)
    field.stop(before)
    field.send_home(one)
    field.wait_until(lambda: not field.alive(one))
    field.manager((one,))
    field.wait(JobEnded, one)


def test_a_job_that_never_arrived_is_told_of(field: Field) -> None:
    one = job(1)
    field.manager((one,))
    field.wait(JobEnded if field.spec.driver == "local" else JobVanished, one)
    assert field.starts(one) == 0


def test_what_is_not_on_record_is_ended(field: Field) -> None:
    one, other = job(1), job(2)
    before = field.manager()
    before.submit((one,))
    before.submit((other,))
    field.pilot(one), field.pilot(other)
    field.stop(before)
    field.manager((other,))
    field.wait_until(lambda: not field.alive(one))
    assert field.alive(other)
    assert [note.what for note in field.notes] == ["site jobs that are not on record"]


def test_the_jobs_of_a_retired_site_are_found_and_ended(field: Field) -> None:
    one = job(1)
    before = field.manager()
    before.submit((one,))
    field.pilot(one)
    field.stop(before)
    manager = field.manager((one,), retired=True)
    field.wait(JobStarted, one)
    manager.cancel((one,))
    field.wait(JobEnded | JobVanished, one)
    assert not field.alive(one)


def test_the_site_of_a_job_must_be_there(field: Field) -> None:
    manager = field.manager((job(7, site="gone"),))
    manager.submit((job(8, site="elsewhere"),))
    field.wait(JobVanished, job(7))
    field.wait(JobRefused, job(8))
