"""Jobs of the `ssh` driver, as processes of this host."""

import time
from pathlib import Path

import pytest

from covey.core.record.model import JobId, JobRecord, SiteSpec
from covey.sites.command_driver import Batch
from covey.sites.commands import Command
from covey.sites.driver import Seen, Shape, Stand
from covey.sites.drivers.ssh import Processes
from covey.sites.script import PilotSource, job_script
from covey.sites.shell import LocalShell

NAME = "covey-q-1-1"


class Host:
    """With one job."""

    def __init__(self, folder: Path) -> None:
        self.spec = SiteSpec(name="there", driver="ssh", directory=str(folder / "site"))
        self.driver = Processes("host")

    def run(self, command: Command) -> None:
        assert LocalShell().run(command, {}).status == 0

    def start(self, script: str) -> None:
        self.run(self.driver.submit(self.spec, Batch(NAME, (NAME,), Shape(1), script, "")))

    def seen(self) -> Seen:
        output = LocalShell().run(self.driver.status(self.spec, "covey-q-"), {})
        (found,) = self.driver.listed(self.spec, "covey-q-", output)
        return found

    def ended(self) -> Seen:
        until = time.monotonic() + 30
        while (seen := self.seen()).stand is not Stand.ENDED:
            assert time.monotonic() < until, seen
            time.sleep(0.05)
        return seen


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


@pytest.mark.parametrize("words", ["10%\\r100%\\r\\n", "10%\\f\\v100%\\n", "10%\\001\\036100%"])
def test_any_last_words_are_told(host: Host, words: str) -> None:
    host.start(f"printf '{words.replace('%', '%%')}'")
    assert host.ended().reason == "10%100%"


def test_a_job_in_its_setup_can_be_cancelled(host: Host, tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    spec = SiteSpec(name="there", driver="ssh", setup=f"touch {ready}; sleep 600")
    job = JobRecord(id=JobId("1-1"), site="there", slots=1, submitted=0.0)
    host.start(
        job_script(spec, [job], "0", PilotSource("http://127.0.0.1:1", "", "master", "no", ""))
    )
    until = time.monotonic() + 30
    while not ready.exists():
        assert time.monotonic() < until
        time.sleep(0.02)
    assert host.seen().stand is Stand.RUNNING
    host.run(host.driver.cancel(host.spec, [NAME]))
    host.ended()
