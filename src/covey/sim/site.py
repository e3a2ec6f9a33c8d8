"""The virtual sites: they take jobs, start their pilots after a while, notice their ends or not.

They outlive servers, as batch systems do.
"""

from collections.abc import Callable
from functools import partial
from random import Random

from msgspec import Struct

from covey.core.events import JobEnded, JobRefused, JobStarted, JobSubmitted
from covey.core.model import JobId, JobRecord
from covey.ports import Post
from covey.sim.clock import Timeline, Trace


class _Job(Struct, eq=False):
    record: JobRecord
    started: bool = False
    over: bool = False
    noticed: bool = True


class Site:
    """`start` makes a pilot of a job; `report` reaches whatever server is there."""

    def __init__(
        self,
        clock: Timeline,
        trace: Trace,
        random: Random,
        start: Callable[[JobRecord], None],
        report: Post,
    ) -> None:
        self.refusing_until = 0.0
        self.refused = 0
        self._clock = clock
        self._trace = trace
        self._random = random
        self._start = start
        self._report = report
        self._jobs: dict[JobId, _Job] = {}

    def submit(self, jobs: tuple[JobRecord, ...], post: Post) -> None:
        for job in jobs:
            if self._clock.time < self.refusing_until:
                self.refused += 1
                self._clock.after(self._delay(), partial(post, JobRefused(job.id, "not now")))
                continue
            self._jobs[job.id] = _Job(job)
            submitted = JobSubmitted(job.id, f"handle-{job.id}")
            self._clock.after(self._delay(), partial(post, submitted))
            self._clock.after(self._random.uniform(0.2, 5.0), partial(self._begin, job.id))

    def _begin(self, id_: JobId) -> None:
        job = self._jobs[id_]
        if not job.over:
            job.started = True
            self._start(job.record)
            if self._random.random() < 0.7:  # others start and end between two looks
                self._clock.after(self._delay(), lambda: self._report(JobStarted(id_)))

    def cancel(self, jobs: tuple[JobRecord, ...]) -> None:
        """Those that wait are over at once; those that have begun have become pilots."""
        for one in jobs:
            job = self._jobs.get(one.id)
            if job is not None and not job.started and not job.over:
                self.over(one.id, True)

    def watch(self, jobs: tuple[JobRecord, ...], post: Post) -> None:
        for job in jobs:
            known = self._jobs.get(job.id)
            if known is None or (known.over and known.noticed):
                ended = JobEnded(job.id, "there is no such job")
                self._clock.after(self._delay(), partial(post, ended))

    def over(self, id_: JobId, noticed: bool) -> None:
        """The pilot of this job has ended."""
        job = self._jobs[id_]
        job.over, job.noticed = True, noticed
        if noticed:
            self._clock.after(self._delay(), lambda: self._report(JobEnded(id_, "it ended")))

    def notice_all(self) -> None:
        for id_, job in self._jobs.items():
            if job.over and not job.noticed:
                self.over(id_, True)

    def _delay(self) -> float:
        return self._random.uniform(0.01, 3.0)
