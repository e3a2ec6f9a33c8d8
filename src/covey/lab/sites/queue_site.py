"""A site at which core asks for pilots: it carries out what core decides, and reports what a
site's list would show.

A job is submitted, waits in the site's queue, starts, and becomes a pilot on a free host. It ends
when the pilot goes home, is preempted, or has used up its time. The server hears of a start and of
an end at its next look at the site's list; of a start also when the pilot speaks.
"""

import math
from functools import partial
from random import Random

from msgspec import Struct

from covey.core.record.events import JobEnded, JobStarted, JobSubmitted
from covey.core.record.model import JobId, JobRecord, SiteSpec
from covey.lab.pilot import LabPilot, Machine
from covey.lab.server import LabServer
from covey.lab.sites import hosts
from covey.lab.sites.batch_queue import JobQueue, QueuedJob
from covey.lab.world_parts import QueuePart, SitePart
from covey.pilot.protocol.messages import life_of


def spec_of(site: SitePart) -> SiteSpec:
    """The site as core knows it."""
    queue = site.queue or QueuePart()
    return SiteSpec(
        name=site.name,
        driver="lab",
        slots=site.slots,
        wall_seconds=queue.wall,
        idle_seconds=queue.idle,
        queued=queue.queued,
        running=queue.running,
        ramp=queue.ramp,
        weight=queue.weight,
        interval_seconds=queue.interval,
    )


class SiteJob(Struct, eq=False):
    record: JobRecord
    queued: QueuedJob
    pilot: LabPilot | None = None
    machine: Machine | None = None
    started: float = 0.0


class LabQueueSite:
    def __init__(self, site: SitePart, server: LabServer, queue: JobQueue, seed: int) -> None:
        assert site.queue is not None
        self.part, self._queue_part = site, site.queue
        self._server, self._clock = server, server.clock
        self._queue = queue
        self._random = Random(f"{seed}/{site.name}")
        self._jobs: dict[JobId, SiteJob] = {}
        self._free = hosts.machines(site, server.part.latency, seed)
        self._look = self._random.random() * site.queue.interval  # phase of looks at its list
        self._submits_until = 0.0  # it takes submissions one after the other

    # -- what core asks for --------------------------------------------------------------------

    def submit(self, records: tuple[JobRecord, ...]) -> None:
        for record in records:
            self._server.census.jobs += 1
            queued = QueuedJob(
                max(1, record.slots), record.wall_seconds, partial(self._start, record.id)
            )
            self._jobs[record.id] = SiteJob(record, queued)
            seconds = self._queue_part.submission.draw(self._random)
            self._submits_until = max(self._submits_until, self._clock.time) + seconds
            self._clock.at(self._submits_until, partial(self._arrive, record.id))

    def cancel(self, records: tuple[JobRecord, ...]) -> None:
        for record in records:
            job = self._jobs.get(record.id)
            if job is not None:
                self._clock.after(0.0, partial(self._end, record.id, "it was taken back"))

    # -- what happens to a job -----------------------------------------------------------------

    def _arrive(self, id_: JobId) -> None:
        job = self._jobs.get(id_)
        if job is not None:
            self._server.handle(JobSubmitted(id_, id_))
            self._queue.enter(job.queued)

    def _start(self, id_: JobId) -> None:
        job = self._jobs[id_]
        job.started = self._clock.time
        self._tell(JobStarted(id_))
        if self._random.random() < self._queue_part.start_failures:
            self._end(id_, "it failed at its start")
            return
        self._clock.after(self._queue_part.boot.draw(self._random), partial(self._boot, id_))
        self._clock.after(life_of(job.record.wall_seconds), partial(self._retire, id_))
        self._clock.after(job.record.wall_seconds, partial(self._end, id_, "its time is over"))

    def _boot(self, id_: JobId) -> None:
        job = self._jobs.get(id_)
        if job is None:
            return
        job.machine = machine = self._free.pop(int(self._random.random() * len(self._free)))
        job.pilot = LabPilot(
            self._server,
            self.part,
            machine,
            f"pilot-{id_}",
            self._random,
            slots=job.record.slots,
            job=id_,
            gone=partial(self._end, id_, "its pilot went home"),
        )
        if machine.rate > 0:
            seconds = self._random.expovariate(machine.rate)
            self._clock.after(seconds, partial(self._end, id_, "it was preempted"))

    def _retire(self, id_: JobId) -> None:
        job = self._jobs.get(id_)
        if job is not None and job.pilot is not None:
            job.pilot.retire()

    def _end(self, id_: JobId, reason: str) -> None:
        """End a job that waits, starts, or is a pilot."""
        job = self._jobs.pop(id_, None)
        if job is None:
            return
        if job.started:
            seconds = self._clock.time - job.started
            self._server.census.job_core_seconds += seconds * job.record.slots
        if job.machine is not None:
            self._free.append(job.machine)
        if job.pilot is not None and job.pilot.alive:
            job.pilot.vanish()
        self._queue.leave(job.queued)
        self._tell(JobEnded(id_, reason))

    def _tell(self, event: JobStarted | JobEnded) -> None:
        """The server hears of the event when it next looks at the site's list."""
        interval = self._queue_part.interval
        if interval <= 0:
            self._clock.after(0.0, partial(self._server.handle, event))
            return
        looks = math.ceil((self._clock.time - self._look) / interval)
        self._clock.at(self._look + looks * interval, partial(self._server.handle, event))
