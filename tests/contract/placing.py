"""What the contract of sites is tried with: a site of any kind, and pilots that only stand in.

A `Field` is a queue with one site. It may have several managers, one after another, as a server
that is started again has. Its pilot file is a program that shows its start file and stays until it
is told to go, by a signal or by us.
"""

import contextlib
import json
import threading
import time
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from covey.core.record.actions import Note
from covey.core.record.events import JobEnded, JobRefused, JobVanished
from covey.core.record.model import JobId, JobRecord, SiteSpec
from covey.ports import EngineEvent
from covey.sites.driver import Driver, SiteContext
from covey.sites.manager import Manager
from covey.sites.shell import Shells

WAIT_SECONDS = 60.0
PILOT = """\
import json, os, shutil, signal, sys, time
start = json.load(open(sys.argv[1]))
folder = {folder!r}
def go(*_):
    shutil.rmtree(start["directory"], ignore_errors=True)
    os.unlink(os.path.join(folder, start["job"] + ".on"))
    sys.stdout.flush()
    os._exit(0)
signal.signal(signal.SIGTERM, go)
own = os.path.join(folder, start["job"])
with open(own + ".new", "w") as file:
    mode = os.stat(sys.argv[1]).st_mode
    json.dump(dict(start, pid=os.getpid(), mode=mode, arguments=sys.argv), file)
count = open(own + ".starts", "a")
count.write("once ")
count.close()
with open(own + ".on", "w") as file:
    file.write(str(os.getpid()))
os.rename(own + ".new", own + ".seen")
while not os.path.exists(own + ".go"):
    time.sleep(0.02)
go()
"""
ENDS = JobEnded | JobVanished | JobRefused


def job(number: int, part: int = -1, site: str = "there", **more: object) -> JobRecord:
    """Of a batch of several if it has a part."""
    id_ = f"1-{number}" if part < 0 else f"1-{number}.{part}"
    fields = {"slots": 2, "submitted": 0.0, "wall_seconds": 600.0, **more}
    return JobRecord(id=JobId(id_), site=site, **fields)  # type: ignore[arg-type]


class Field:
    """`secret` things of the queue are made of "master". `shown` is where pilots show themselves:
    all nodes of the site must have it."""

    def __init__(
        self,
        folder: Path,
        spec: SiteSpec,
        driver_of: Callable[[SiteSpec], Driver],
        ssh_command: Sequence[str] = ("ssh",),
        grace_seconds: float = 1.0,
        queue: str = "q1",
    ) -> None:
        self.folder = folder
        self.spec = spec
        self.others: tuple[SiteSpec, ...] = ()
        self.queue = queue
        self.address = ("https://queue.example:8300", "a certificate's text")
        self._driver_of = driver_of
        self._ssh_command = ssh_command
        self._grace_seconds = grace_seconds
        self.shown = folder / "shown"
        self.shown.mkdir(exist_ok=True)
        self.pilot_file = folder / "pilot.pyz"
        with zipfile.ZipFile(self.pilot_file, "w") as file:
            file.writestr("__main__.py", PILOT.format(folder=str(self.shown)))
        self.events: list[EngineEvent] = []
        self.notes: list[Note] = []
        self._news = threading.Condition()
        self.managers: list[Manager] = []

    # -- managers --------------------------------------------------------------------------

    def manager(self, watch: tuple[JobRecord, ...] = (), retired: bool = False) -> Manager:
        """A new one, as of a server that starts. `retired`: the site gets no more jobs."""
        context = SiteContext(
            self._post,
            self.notes.append,
            time.monotonic,
            self.queue,
            "master",
            lambda: self.address,
            self.pilot_file,
            Shells(self._ssh_command),
            self._grace_seconds,
        )
        made = Manager(context, self._driver_of, (self.spec,) if retired else ())
        self.managers.append(made)
        made.define(self.others if retired else (self.spec, *self.others))
        made.watch(watch)
        return made

    def stop(self, manager: Manager) -> None:
        """What it knew is forgotten."""
        manager.close()
        self.managers.remove(manager)
        self.events.clear()

    def close(self) -> None:
        for manager in list(self.managers):
            manager.close()
        until = time.monotonic() + WAIT_SECONDS
        while (there := self._pilots()) and time.monotonic() < until:
            for job in there:
                (self.shown / f"{job}.go").touch()
            time.sleep(0.02)

    # -- events ----------------------------------------------------------------------------

    def _post(self, event: EngineEvent) -> None:
        with self._news:
            self.events.append(event)
            self._news.notify_all()

    def heard(self, kind: Any, job: JobRecord | None = None) -> list[EngineEvent]:
        return [
            event
            for event in list(self.events)
            if isinstance(event, kind) and (job is None or getattr(event, "job", "") == job.id)
        ]

    def wait(self, kind: Any, job: JobRecord | None = None, count: int = 1) -> EngineEvent:
        """For news of this kind, of this job; the last of so many."""
        with self._news:
            there = self._news.wait_for(lambda: len(self.heard(kind, job)) >= count, WAIT_SECONDS)
        assert there, f"no {kind} of {job and job.id}: {self.events}, {self.notes}"
        return self.heard(kind, job)[count - 1]

    def wait_until(self, true: Callable[[], bool]) -> None:
        until = time.monotonic() + WAIT_SECONDS
        while not true():
            assert time.monotonic() < until, f"{self.events}, {self.notes}"
            time.sleep(0.02)

    # -- pilots ----------------------------------------------------------------------------

    def pilot(self, job: JobRecord) -> dict[str, object]:
        """What the job's pilot was told, once it runs."""
        path = self.shown / f"{job.id}.seen"
        self.wait_until(path.exists)
        found = json.loads(path.read_text())
        assert isinstance(found, dict)
        return found

    def starts(self, job: JobRecord) -> int:
        """How often a pilot of this job was started."""
        path = self.shown / f"{job.id}.starts"
        return path.read_text().count("once") if path.exists() else 0

    def alive(self, job: JobRecord) -> bool:
        return job.id in self._pilots()

    def _pilots(self) -> list[str]:
        """The jobs whose pilots are there. Some are killed without a word."""
        found = []
        for path in self.shown.glob("*.on"):
            with contextlib.suppress(FileNotFoundError):  # it is just going
                pid = path.read_text()
                if not pid or Path(f"/proc/{pid}").exists():
                    found.append(path.name.removesuffix(".on"))
        return found

    def send_home(self, job: JobRecord) -> None:
        (self.shown / f"{job.id}.go").touch()
