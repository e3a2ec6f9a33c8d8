"""Queues of sites: how long does a job wait there? docs/decisions/0034 says why there are two.

`DrawnQueue`: each job waits as long as is drawn for it, whatever else waits there.

`BatchQueue`: a cluster with cores and EASY backfilling. The job that came first starts as soon as
its cores are free. A later one may start before it, if that does not delay it by what is known
then: the times that running jobs have asked for. Other people's jobs are there, too.
"""

from collections.abc import Callable, Iterable
from functools import partial
from random import Random
from typing import Protocol

from msgspec import Struct

from covey.lab.clock import Timeline
from covey.lab.draws import Draw
from covey.lab.sites.swf import TraceJob


class QueuedJob(Struct, eq=False):
    """A job of ours or of other people. `starts` is called when it begins."""

    cores: int
    asked: float  # seconds, at most
    starts: Callable[[], None]
    over: bool = False
    ends_by: float = 0.0  # once it runs: start + asked


class JobQueue(Protocol):
    def enter(self, job: QueuedJob) -> None: ...

    def leave(self, job: QueuedJob) -> None:
        """It has ended, or is taken back."""
        ...


class DrawnQueue:
    """`factor`: waits are now so many times as long as drawn."""

    def __init__(self, clock: Timeline, wait: Draw, random: Random) -> None:
        self.factor = 1.0
        self._clock, self._wait, self._random = clock, wait, random

    def enter(self, job: QueuedJob) -> None:
        seconds = self.factor * self._wait.draw(self._random)
        self._clock.after(seconds, partial(self._begin, job))

    def leave(self, job: QueuedJob) -> None:
        job.over = True

    def _begin(self, job: QueuedJob) -> None:
        if not job.over:
            job.starts()


class BatchQueue:
    def __init__(self, clock: Timeline, cores: int) -> None:
        self.free = self.cores = cores
        self._clock = clock
        self._waiting: dict[QueuedJob, None] = {}
        self._running: dict[QueuedJob, None] = {}
        self._looks = False  # whether it is to look for jobs that may start

    def enter(self, job: QueuedJob) -> None:
        if job.cores <= self.cores:  # else it waits for ever
            self._waiting[job] = None
            self._look_soon()

    def leave(self, job: QueuedJob) -> None:
        job.over = True
        self._waiting.pop(job, None)
        if job in self._running:
            del self._running[job]
            self.free += job.cores
        self._look_soon()

    def _look_soon(self) -> None:
        """After everything else that happens at this time."""
        if not self._looks:
            self._looks = True
            self._clock.after(0.0, self._look)

    def _look(self) -> None:
        self._looks = False
        while self._waiting and (job := next(iter(self._waiting))).cores <= self.free:
            self._start(job)
        if self._waiting and self.free:
            self._backfill()

    def _backfill(self) -> None:
        """Start jobs that do not delay the first one: they end before its cores are free, or it
        leaves enough cores for them."""
        first, *others = self._waiting
        now, spare, begin = self._clock.time, self.free, 0.0
        for job in sorted(self._running, key=lambda job: job.ends_by):
            spare += job.cores
            begin = max(now, job.ends_by)
            if spare >= first.cores:
                break
        spare -= first.cores
        for job in others:
            if not self.free:
                return
            if job.cores > self.free:
                continue
            if now + job.asked > begin:
                if job.cores > spare:
                    continue
                spare -= job.cores
            self._start(job)

    def _start(self, job: QueuedJob) -> None:
        del self._waiting[job]
        self._running[job] = None
        self.free -= job.cores
        job.ends_by = self._clock.time + job.asked
        job.starts()


class Background:
    """Other people's jobs in a `BatchQueue`, each with its real time."""

    def __init__(self, clock: Timeline, queue: BatchQueue) -> None:
        self.waits: list[float] = []  # of jobs that have started, by their submission
        self._clock, self._queue = clock, queue

    def replay(self, jobs: Iterable[TraceJob], offset: float) -> None:
        """`offset`: the clock's time minus the trace's."""
        jobs = iter(jobs)

        def submit(trace: TraceJob) -> None:
            self._submit(trace.cores, trace.seconds, trace.asked)
            go_on()

        def go_on() -> None:
            trace = next(jobs, None)
            if trace is not None:
                self._clock.at(offset + trace.submitted, partial(submit, trace))

        go_on()

    def draw(
        self,
        every: Draw,
        time: Draw,
        cores: Draw,
        asked: Draw,
        rate: Callable[[], float],
        random: Random,
    ) -> None:
        """Submit drawn jobs until the world ends. `rate`: so many times as many come now."""

        def submit() -> None:
            seconds, size = time.draw(random), max(1, round(cores.draw(random)))
            size = min(size, self._queue.cores)
            self._submit(size, seconds, seconds * max(1.0, asked.draw(random)))
            go_on()

        def go_on() -> None:
            self._clock.after(every.draw(random) / max(rate(), 1e-9), submit)

        go_on()

    def _submit(self, cores: int, seconds: float, asked: float) -> None:
        came, place = self._clock.time, len(self.waits)
        self.waits.append(-1.0)

        def starts() -> None:
            self.waits[place] = self._clock.time - came
            self._clock.after(seconds, partial(self._queue.leave, job))

        job = QueuedJob(cores, asked, starts)
        self._queue.enter(job)
