"""The `Sites` port: passes core's decisions about pilots on to all sites.

Each site is opened by its driver and works alone, so a slow or broken site slows down no other. The
manager decides nothing, and all it knows could be found out again: the names of jobs are made from
the queue's id and the job's own, and jobs on record are watched.
"""

import time
from collections.abc import Callable, Sequence

from covey.core.errors import CoveyError
from covey.core.record.events import JobEnded, JobRefused, JobSubmitted, JobVanished, SiteFailed
from covey.core.record.model import JobId, JobRecord, SiteSpec
from covey.ports import EngineEvent, Post
from covey.sites.driver import Driver, OpenSite, SiteContext
from covey.sites.weight_services import WeightServices

CLOSE_SECONDS = 2.0


class Manager:
    """`driver_of` returns a site's driver, and raises CoveyError if the site cannot be used.
    `retired` sites get no new jobs, but may have some that an earlier server submitted.
    `services` are asked what sites are worth, as long as the manager is open."""

    def __init__(
        self,
        context: SiteContext,
        driver_of: Callable[[SiteSpec], Driver],
        retired: Sequence[SiteSpec] = (),
        services: WeightServices | None = None,
    ) -> None:
        self._on_record: set[JobId] = set()
        self._vanished: set[JobId] = set()  # missing in the lists; they may come back
        self._post = context.post
        self._shells = context.shells
        self._context = context._replace(
            post=self._hear, on_record=lambda job: job in self._on_record
        )
        self._driver_of = driver_of
        self._retired = retired
        self._services = services
        self._sites: dict[str, OpenSite] = {}
        self._watched = False

    # -- the Sites port --------------------------------------------------------------------

    def define(self, sites: tuple[SiteSpec, ...]) -> None:
        if self._services is not None:
            self._services.start()
        specs = {spec.name: spec for spec in (*self._retired, *sites)}
        for name in [name for name in self._sites if name not in specs]:
            self._sites.pop(name).close()
        for name, spec in specs.items():
            site = self._sites.get(name)
            if site is None or site.spec != spec:
                self._define(site, spec)

    def submit(self, jobs: tuple[JobRecord, ...]) -> None:
        name = jobs[0].site
        if name in self._sites:
            self._on_record.update(job.id for job in jobs)
            self._sites[name].submit(jobs)
        else:
            for job in jobs:
                self._post(JobRefused(job.id, f"there is no site {name}"))

    def watch(self, jobs: tuple[JobRecord, ...]) -> None:
        self._watched = True
        self._on_record = {job.id for job in jobs}
        for name, site in self._sites.items():
            site.watch([job for job in jobs if job.site == name])
        for job in jobs:
            if job.site not in self._sites:
                self._hear(JobVanished(job.id, f"site {job.site} does not exist any more"))

    def cancel(self, jobs: tuple[JobRecord, ...]) -> None:
        given_up = self._vanished.intersection(job.id for job in jobs)
        self._vanished -= given_up
        self._on_record -= given_up
        if jobs[0].site in self._sites:
            self._sites[jobs[0].site].cancel(jobs)

    # -- the pilots of this machine --------------------------------------------------------

    def terminate(self) -> int:
        return sum(site.terminate() for site in self._sites.values())

    def alive(self) -> int:
        return sum(site.alive() for site in self._sites.values())

    def close(self) -> None:
        """Begin nothing more. Jobs stay where they are."""
        if self._services is not None:
            self._services.close()
        for site in self._sites.values():  # all at once
            site.close()
        until = time.monotonic() + CLOSE_SECONDS
        for site in self._sites.values():
            site.close(max(0.0, until - time.monotonic()))
        self._sites.clear()
        self._shells.close()

    # -- inside ----------------------------------------------------------------------------

    def _hear(self, event: EngineEvent) -> None:
        if isinstance(event, JobEnded | JobRefused):
            self._vanished.discard(event.job)
            self._on_record.discard(event.job)
        elif isinstance(event, JobVanished):
            self._vanished.add(event.job)
        elif isinstance(event, JobSubmitted):
            self._vanished.discard(event.job)
        self._post(event)

    def _define(self, site: OpenSite | None, spec: SiteSpec) -> None:
        if site is not None and site.spec.driver == spec.driver and site.change(spec):
            return
        jobs: tuple[JobRecord, ...] = ()
        if site is not None:
            site.close()
            jobs = site.jobs()
        self._sites[spec.name] = self._open(spec)
        if self._watched:
            self._sites[spec.name].watch(jobs)

    def _open(self, spec: SiteSpec) -> OpenSite:
        try:
            driver = self._driver_of(spec)
            driver.facts(spec)
            return driver.open(spec, self._context)
        except CoveyError as error:
            return _Hopeless(spec, str(error), self._context.post)
        except Exception as error:  # a bug of the driver: the other sites go on
            words = f"driver {spec.driver}: {type(error).__name__}: {error}"
            return _Hopeless(spec, words, self._context.post)


class _Hopeless(OpenSite):
    """A site that cannot be used until its definition changes."""

    def __init__(self, spec: SiteSpec, reason: str, post: Post) -> None:
        self.spec = spec
        self._reason = reason
        self._post = post
        self._jobs: tuple[JobRecord, ...] = ()
        post(SiteFailed(spec.name, reason))

    def submit(self, jobs: Sequence[JobRecord]) -> None:
        self._post(SiteFailed(self.spec.name, self._reason))
        for job in jobs:
            self._post(JobRefused(job.id, self._reason))

    def watch(self, jobs: Sequence[JobRecord]) -> None:
        self._jobs = tuple(jobs)
        self._post(SiteFailed(self.spec.name, self._reason))

    def cancel(self, jobs: Sequence[JobRecord]) -> None:
        pass

    def change(self, spec: SiteSpec) -> bool:
        return False

    def jobs(self) -> tuple[JobRecord, ...]:
        return self._jobs

    def close(self, seconds: float = 0.0) -> None:
        pass
