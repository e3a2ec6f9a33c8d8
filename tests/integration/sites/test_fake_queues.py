"""PBS, LSF and HTCondor from end to end, with commands that stand in for theirs."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from covey.core.record.model import Option, SiteSpec
from covey.sites.command_driver import Batch, CommandDriver
from covey.sites.commands import Command, Output
from covey.sites.driver import Seen, Shape, Stand, numbered
from covey.sites.drivers.htcondor import HTCondor
from covey.sites.drivers.lsf import Lsf
from covey.sites.drivers.pbs import Pbs
from covey.sites.errors import Refused
from tests.integration.sites.fake_queues import FOLDER, NAMES

PREFIX = "covey-q7-"
WAIT_SECONDS = 60.0
NOWHERE = {"pbs": "queue", "lsf": "queue", "htcondor": "requirements"}  # options that can be wrong
CANCELLED = {
    "pbs": "signal 15 (terminated by ann@fake)",
    "lsf": "exit status 137",
    "htcondor": "via condor_rm (by user ann)",
}
# A job shows its number, and stays until there is a file.
SCRIPT = """\
#!/bin/sh
touch "{folder}/on.@index"
while ! test -e "{folder}/go"; do sleep 0.05; done
exit 3
"""


class Queue:
    def __init__(self, folder: Path, driver: CommandDriver) -> None:
        self.folder, self.driver = folder, driver
        self.spec = SiteSpec(name="there", driver=driver.name)
        (folder / "bin").mkdir()
        (folder / "queue").mkdir()
        fake = Path(__file__).with_name("fake_queues.py")
        for name in NAMES:
            path = folder / "bin" / name
            path.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{folder}/lib/{name}" "$@"\n')
            path.chmod(0o755)
            (folder / "lib").mkdir(exist_ok=True)
            (folder / "lib" / name).symlink_to(fake)

    def run(self, command: Command | None) -> Output:
        assert command is not None
        path = f"{self.folder}/bin:{os.environ['PATH']}"
        done = subprocess.run(
            command.argv,
            input=command.stdin,
            env={**self.driver.environment, "PATH": path, FOLDER: str(self.folder / "queue")},
            capture_output=True,
            timeout=command.seconds,
        )
        return Output(done.returncode, done.stdout.decode(), done.stderr.decode())

    def submit(self, count: int, options: dict[str, Option] | None = None) -> tuple[str, ...]:
        title = f"{PREFIX}1-4"
        names = tuple(numbered(title, index) for index in range(count))
        script = SCRIPT.format(folder=self.folder).replace("@index", self.driver.index)
        batch = Batch(title, names, Shape(2, 90.0, 500, 0, 1), script, str(self.folder))
        spec = SiteSpec(name="there", driver=self.driver.name, options=options or {})
        return self.driver.submitted(spec, batch, self.run(self.driver.submit(spec, batch)))

    def listed(self) -> dict[str, Seen]:
        output = self.run(self.driver.status(self.spec, PREFIX))
        return {seen.name: seen for seen in self.driver.listed(self.spec, PREFIX, output)}

    def ends(self, handles: tuple[str, ...]) -> dict[str, str]:
        """By name, in the list or in the accounts."""
        found = list(self.listed().values())
        command = self.driver.accounting(self.spec, handles)
        if command is not None:
            found += self.driver.accounted(self.spec, self.run(command))
        return {seen.name: seen.reason for seen in found if seen.stand is Stand.ENDED}


@pytest.fixture(params=[Pbs, Lsf, HTCondor], ids=lambda kind: kind.name)
def queue(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Queue]:
    made = Queue(tmp_path, request.param())
    yield made
    (tmp_path / "go").touch()


def wait_until(true: Callable[[], bool]) -> None:
    until = time.monotonic() + WAIT_SECONDS
    while not true():
        assert time.monotonic() < until
        time.sleep(0.05)


def test_an_array_runs_is_listed_and_cancelled(queue: Queue) -> None:
    assert queue.listed() == {}
    handles = queue.submit(4)
    assert len(set(handles)) == 4
    wait_until(lambda: all((queue.folder / f"on.{n}").exists() for n in range(4)))
    found = queue.listed()
    assert {name: seen.handle for name, seen in found.items()} == {
        f"{PREFIX}1-{4 + n}": handles[n] for n in range(4)
    }
    assert {seen.stand for seen in found.values()} == {Stand.RUNNING}

    assert queue.run(queue.driver.cancel(queue.spec, handles[1:3])).status == 0
    running = [name for name, seen in queue.listed().items() if seen.stand is Stand.RUNNING]
    assert running == [f"{PREFIX}1-4", f"{PREFIX}1-7"]
    (queue.folder / "go").touch()
    wait_until(lambda: len(queue.ends(handles)) == 4)
    assert queue.ends(handles)[f"{PREFIX}1-7"] == "exit status 3"
    assert queue.ends(handles)[f"{PREFIX}1-5"] == CANCELLED[queue.driver.name]
    # Again, when they are gone: no harm.
    queue.run(queue.driver.cancel(queue.spec, handles))
    assert set(queue.ends(handles)) == {f"{PREFIX}1-{n}" for n in range(4, 8)}


def test_one_job(queue: Queue) -> None:
    (handle,) = queue.submit(1)
    wait_until((queue.folder / "on.0").exists)
    assert queue.listed() == {f"{PREFIX}1-4": Seen(f"{PREFIX}1-4", handle, Stand.RUNNING)}
    assert queue.run(queue.driver.cancel(queue.spec, [handle])).status == 0
    wait_until(lambda: list(queue.ends((handle,))) == [f"{PREFIX}1-4"])


def test_what_is_refused_is_not_there(queue: Queue) -> None:
    with pytest.raises(Refused, match=r"nope|Unknown"):
        queue.submit(2, {NOWHERE[queue.driver.name]: "nope"})
    assert queue.listed() == {}
