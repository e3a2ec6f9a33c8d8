"""Sites on the table: what is asked of them, and what they say."""

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from covey import config_sites
from covey.core.record.actions import Action, CancelJobs, SubmitPilots, Write
from covey.core.record.events import (
    JobEnded,
    JobStarted,
    JobSubmitted,
    SiteSaved,
    SiteStatusRequested,
)
from covey.core.record.model import BagId, JobId, JobRecord, SiteSpec, SiteStatus, Snapshot
from covey.core.state import Site
from covey.pilot.protocol.messages import Answer, Task
from covey.sites.drivers.local import FACTS
from tests.memory_store.memory_record import MemoryRecord
from tests.unit.core.table import EMPTY, Hand, Table, replies


def site(name: str = "lake", **fields: Any) -> SiteSpec:
    """One that takes all that it is given, unless it is told otherwise."""
    roomy = {"slots": 1, "queued": 1000, "running": 1000, "ramp": 1000, **fields}
    return SiteSpec(name=name, driver=roomy.pop("driver", "virtual"), **roomy)


def local_site(pilots: int, slots: int, shared: bool = False) -> SiteSpec:
    """This machine, with what its driver knows of it."""
    return replace(config_sites.local_site(pilots, slots, shared), facts=FACTS)


def asked(actions: Sequence[Action]) -> list[JobRecord]:
    return [job for one in actions if isinstance(one, SubmitPilots) for job in one.jobs]


def taken_back(actions: Sequence[Action]) -> list[JobId]:
    return [job.id for one in actions if isinstance(one, CancelJobs) for job in one.jobs]


def counted(jobs: Sequence[JobRecord]) -> dict[str, int]:
    found: dict[str, int] = {}
    for job in jobs:
        found[job.site] = found.get(job.site, 0) + 1
    return found


class Grounds(Table):
    """With these sites. `later` keeps those pilots alive that are told to stay in touch."""

    def __init__(self, *sites: SiteSpec, snapshot: Snapshot = EMPTY, **settings: Any) -> None:
        super().__init__(snapshot=snapshot, sites=sites, **settings)

    @property
    def jobs(self) -> list[JobRecord]:
        return [job.record for job in self.scheduler.state.jobs.values()]

    def site(self, name: str = "lake") -> Site:
        return self.scheduler.state.sites[name]

    def begin(self, job: JobRecord, want: int | None = None, **more: Any) -> Hand:
        """Its pilot enrols, and asks for work, unless it wants none yet."""
        walled = self.site(job.site).record.spec.shared
        more = {"host": f"node-{job.id}", "key": f"key of {job.id}", "shared": walled, **more}
        hand = self.enrol(job.slots, site=job.site, job=job.id, **more)
        if want is None or want:
            hand.sync(want or job.slots)
        return hand

    def waits(self, *jobs: JobRecord) -> None:
        for job in jobs:
            self.handle(JobSubmitted(job.id, f"handle-{job.id}"))

    def runs(self, *jobs: JobRecord) -> None:
        for job in jobs:
            self.handle(JobStarted(job.id))

    def ends(self, *jobs: JobRecord, reason: str = "so it is") -> list[Action]:
        start = len(self.actions)
        for job in jobs:
            self.handle(JobEnded(job.id, reason))
        return self.actions[start:]

    def save(self, spec: SiteSpec) -> list[Action]:
        return self.handle(SiteSaved(self.request(), spec))

    def turn_to(self, status: SiteStatus, name: str = "lake") -> list[Action]:
        return self.handle(SiteStatusRequested(self.request(), name, status))

    def measure(self, bag: int, seconds: float, kind: int = 0) -> None:
        """As if a task of that class had taken so long."""
        self.scheduler.state.bags[BagId(bag)].classes[kind].times.add(seconds)

    def after(self) -> Snapshot:
        """What the next server starts from."""
        record = MemoryRecord({})
        record.open()
        record.apply([one.change for one in self.actions if isinstance(one, Write)])
        return record.open()

    def latest(self) -> Answer:
        """The last one with tasks."""
        return next(one for one in reversed(replies(self.actions, Answer)) if one.tasks)

    def sent(self, hand: Hand, want: int = 4) -> list[Task]:
        """What it gets when it asks, now or within a moment."""
        actions = [*hand.sync(want), *hand.sync(want)]
        return [task for answer in replies(actions, Answer) for task in answer.tasks]
