"""The virtual sites: queues that take jobs, start their pilots after a while, end them when their
time is over, start some again, and report that late, wrongly or not at all.

They outlive servers, as batch systems do. They also do the work of a server's site manager, which
looks at each site's list now and then and reports what is new to the present server.
"""

from collections.abc import Callable
from functools import partial
from random import Random

from msgspec import Struct, field

from covey.core.record.capacity import SiteCapacity
from covey.core.record.events import (
    JobEnded,
    JobRefused,
    JobRequeued,
    JobStarted,
    JobSubmitted,
    JobVanished,
    SiteAnswered,
    SiteFailed,
    SiteMeasured,
)
from covey.core.record.model import JobId, JobRecord, SiteSpec
from covey.lab.clock import Timeline
from covey.ports import Post
from tests.simulator.checkers.site_checks import Supervisor
from tests.simulator.plan.site_plans import SOUND, Nature
from tests.simulator.trace import Trace

UNSURE_SECONDS = (5.0, 20.0)  # until lists show whether a submission has arrived


class _Job(Struct, eq=False):
    """`arrived`: whether the site really has it, whatever the server has heard."""

    record: JobRecord
    arrived: bool = True
    started: float = 0.0  # when its present pilot began
    over: bool = False
    reported: bool = False  # reported as over, or as never arrived
    lied: bool = False  # it was reported as vanished, and had not
    round: int = 0  # how often it has begun
    kill: Callable[[], None] | None = None

    @property
    def alive(self) -> bool:
        return self.arrived and not self.over


class Site(Struct, eq=False):
    """One site as it really is."""

    name: str
    nature: Nature
    jobs: dict[JobId, _Job] = field(default_factory=dict)
    queue: list[JobId] = field(default_factory=list)
    refusing_until: float = 0.0
    away_until: float = 0.0  # it does not answer
    unsure_until: float = 0.0  # nobody hears whether submissions arrive
    failed: bool = False  # the server has been told so

    def running(self) -> int:
        return sum(job.alive and job.started > 0 for job in self.jobs.values())


class Sites:
    """`start` makes the pilot of a job, which works or does not, and returns how to kill it.
    `report` reaches the present server."""

    def __init__(
        self,
        clock: Timeline,
        trace: Trace,
        random: Random,
        natures: dict[str, Nature],
        start: Callable[[JobRecord, bool], Callable[[], None]],
        report: Post,
        supervisor: Supervisor,
    ) -> None:
        self.refused = 0
        self._clock = clock
        self._trace = trace
        self._random = random
        self._start = start
        self._report = report
        self._supervisor = supervisor
        self._natures = natures
        self.all: dict[str, Site] = {}

    def site(self, name: str) -> Site:
        if name not in self.all:
            site = self.all[name] = Site(name, self._natures.get(name, SOUND))
            self._clock.every(site.nature.look_seconds, partial(self._look, site))
        return self.all[name]

    # -- the port --------------------------------------------------------------------------

    def define(self, specs: tuple[SiteSpec, ...]) -> None:
        self._supervisor.defined(specs, self._clock.time)
        for spec in specs:
            self.site(spec.name).failed = False

    def submit(self, jobs: tuple[JobRecord, ...], post: Post) -> None:
        now = self._clock.time
        self._supervisor.submitted(jobs, now)
        site = self.site(jobs[0].site)
        for record in jobs:
            job = _Job(record)
            if now < site.refusing_until:
                self.refused += 1
                job.arrived, job.reported = False, True
                site.jobs[record.id] = job
                self._later(partial(post, JobRefused(record.id, "not now")))
                continue
            unsure = now < max(site.unsure_until, site.away_until)
            job.arrived = not unsure or self._random.random() < 0.5
            site.jobs[record.id] = job
            self._supervisor.took(record, job.arrived)
            if job.arrived:
                self._enqueue(site, record.id)
            if unsure:
                self._clock.after(
                    self._random.uniform(*UNSURE_SECONDS),
                    partial(self._settle, site, record.id, post),
                )
            else:
                submitted = JobSubmitted(record.id, f"handle-{record.id}")
                self._later(partial(post, submitted))

    def _settle(self, site: Site, id_: JobId, post: Post) -> None:
        """Lists have shown whether the job is there."""
        job = site.jobs[id_]
        if self._clock.time < site.away_until:
            self._clock.at(site.away_until + 2.0, partial(self._settle, site, id_, post))
        elif job.alive:
            post(JobSubmitted(id_, f"handle-{id_}"))
        elif not job.arrived:
            post(JobVanished(id_, "it never arrived"))

    def watch(self, jobs: tuple[JobRecord, ...], post: Post) -> None:
        """A new server must hear again all that an earlier one has heard."""
        self._supervisor.watched(jobs)
        for record in jobs:
            if record.site in self.all:
                job = self.all[record.site].jobs.get(record.id)
                self._later(partial(self._tell_anew, record, job, post))
            else:
                self._later(partial(post, JobVanished(record.id, "there is no such site")))

    def _tell_anew(self, record: JobRecord, job: _Job | None, post: Post) -> None:
        site = self.all[record.site]
        if self._clock.time < site.away_until:
            again = partial(self._tell_anew, record, job, post)
            self._clock.at(site.away_until + 2.0, again)
        elif job is None or not job.arrived:
            post(JobVanished(record.id, "it never arrived"))
        elif job.over:
            post(JobEnded(record.id, "it ended"))
        elif job.started:
            post(JobStarted(record.id))
        else:
            post(JobSubmitted(record.id, f"handle-{record.id}"))

    def cancel(self, jobs: tuple[JobRecord, ...]) -> None:
        """If the site is away, the command is lost."""
        self._supervisor.cancelled(jobs, self._clock.time)
        site = self.site(jobs[0].site)
        if self._clock.time < site.away_until:
            return
        for record in jobs:
            job = site.jobs.get(record.id)
            if job is not None and job.alive:
                self._end(site, job)

    # -- the queue -------------------------------------------------------------------------

    def _enqueue(self, site: Site, id_: JobId) -> None:
        site.queue.append(id_)
        self._clock.after(self._random.uniform(*site.nature.wait), partial(self._advance, site))

    def _advance(self, site: Site) -> None:
        """The first waiting job begins, if there is room."""
        while site.queue and site.running() < site.nature.capacity:
            job = site.jobs[site.queue.pop(0)]
            if not job.over:
                self._begin(site, job)
                break

    def _begin(self, site: Site, job: _Job) -> None:
        job.started, job.round = self._clock.time, job.round + 1
        nature = site.nature
        self._supervisor.began(job.record, self._clock.time)
        if self._random.random() < nature.seen and nature.kind != "broken":
            self._later(partial(self._say_started, site, job, job.round))
        if nature.kind == "broken":
            self._later(partial(self._end, site, job))
        elif nature.kind == "mute":
            pass  # it runs, and cannot reach the server
        else:
            job.kill = self._start(job.record, nature.kind != "unfit")
        if job.record.wall_seconds:
            over = partial(self._time_out, site, job, job.round)
            self._clock.after(job.record.wall_seconds, over)

    def _say_started(self, site: Site, job: _Job, round_: int) -> None:
        if job.alive and job.round == round_ and job.started and not self._is_away(site):
            self._report(JobStarted(job.record.id))

    def _time_out(self, site: Site, job: _Job, round_: int) -> None:
        if job.alive and job.round == round_ and job.started:
            self._trace.add(f"job {job.record.id} has had its time")
            self._end(site, job)

    def _end(self, site: Site, job: _Job) -> None:
        if job.over:
            return
        job.over = True
        self._supervisor.ended(job.record, self._clock.time)
        if job.kill is not None and job.started:
            job.kill()
        job.started = 0.0
        self._clock.after(self._random.uniform(0.1, 2.0), partial(self._advance, site))

    # -- what happens to jobs --------------------------------------------------------------

    def over(self, id_: JobId, noticed: bool) -> None:
        """The pilot of this job has ended. If not `noticed`, lists show it only when it is calm."""
        for site in self.all.values():
            job = site.jobs.get(id_)
            if job is not None and job.alive and job.started:
                job.kill = None
                self._end(site, job)
                job.reported = not noticed

    def requeue(self, id_: JobId, reported: bool) -> None:
        """The job's node failed, and it begins again. The list may not have shown that."""
        for site in self.all.values():
            job = site.jobs.get(id_)
            if job is not None and job.alive and job.started:
                job.started, job.kill = 0.0, None
                self._supervisor.requeued(job.record)
                if reported and not self._is_away(site):
                    self._later(partial(self._say_requeued, job, job.round))
                self._enqueue(site, id_)

    def _say_requeued(self, job: _Job, round_: int) -> None:
        if job.alive and job.round == round_:
            self._report(JobRequeued(job.record.id, "its node failed"))

    def lie(self, random: Random) -> bool:
        """A list leaves out a job whose pilot lives."""
        there = [
            job
            for site in self.all.values()
            for job in site.jobs.values()
            if job.alive and job.started and job.kill is not None
        ]
        if there:
            job = random.choice(there)
            job.lied = True
            self._supervisor.lied(job.record.id)
            self._report(JobVanished(job.record.id, "not listed any more"))
        return bool(there)

    def notice_all(self) -> None:
        for site in self.all.values():
            site.refusing_until = site.away_until = site.unsure_until = 0.0
            for job in site.jobs.values():
                if job.over:
                    job.reported = False

    def waiting(self) -> int:
        """Jobs that have never begun, and about which lists tell the truth."""
        return sum(
            job.alive and not job.round and not job.lied
            for site in self.all.values()
            for job in site.jobs.values()
        )

    # -- the manager -----------------------------------------------------------------------

    def _is_away(self, site: Site) -> bool:
        return self._clock.time < site.away_until

    def _look(self, site: Site) -> None:
        if self._is_away(site):
            site.failed = True
            self._report(SiteFailed(site.name, "connection refused"))
            return
        if site.failed:
            site.failed = False
            self._report(SiteAnswered(site.name))
        for id_, job in site.jobs.items():
            if job.over and not job.reported:
                job.reported = True
                self._report(JobEnded(id_, "it ended"))
        free = max(0, site.nature.capacity - site.running())
        capacity = SiteCapacity(free_nodes=free, queue_length=len(site.queue))
        self._report(SiteMeasured(site.name, capacity))

    def _later(self, do: Callable[[], object]) -> None:
        self._clock.after(self._random.uniform(0.01, 3.0), do)
