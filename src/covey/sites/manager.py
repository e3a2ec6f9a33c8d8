"""Carries out what core decides about sites: the `Sites` port, for all of them.

Each site has its own attendant, with a thread, so that a slow or broken one slows nobody; `ssh` has
one for each of its hosts. Pilots of this machine need no commands; their site is of its own kind.
It decides nothing and remembers nothing that a new one could not find out: jobs carry names made
from the queue's id and their own, and what the record knows is watched.
"""

import itertools
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from covey.core.errors import CoveyError
from covey.core.record.events import JobEnded, JobRefused, JobSubmitted, JobVanished, SiteFailed
from covey.core.record.model import JobId, JobRecord, SiteSpec
from covey.ports import EngineEvent, Post
from covey.sites import ssh
from covey.sites.attending import Attendant, Desk
from covey.sites.driver import Driver
from covey.sites.local import LocalSite
from covey.sites.shell import LocalShell, Shell, SshShell, socket_folder

LOCAL, SSH = "local", "ssh"
CLOSE_SECONDS = 2.0


class Place(Protocol):
    """A site that is attended to."""

    spec: SiteSpec

    def submit(self, jobs: Sequence[JobRecord]) -> None: ...

    def watch(self, jobs: Sequence[JobRecord]) -> None: ...

    def cancel(self, jobs: Sequence[JobRecord]) -> None: ...

    def change(self, spec: SiteSpec) -> bool:
        """Whether it could; if not, another has to be made."""
        ...

    def jobs(self) -> tuple[JobRecord, ...]: ...

    def close(self, seconds: float = 0.0) -> None:
        """Begin nothing more, and wait so long for what has begun."""
        ...


class Manager:
    """`driver_of` gives a site's driver, and raises CoveyError for a site that nothing can be done
    with. `ssh_command` is how `ssh` is called."""

    def __init__(
        self,
        desk: Desk,
        local: LocalSite,
        driver_of: Callable[[SiteSpec], Driver],
        ssh_command: Sequence[str] = ("ssh",),
    ) -> None:
        self._on_record: set[JobId] = set()
        self._vanished: set[JobId] = set()  # of them; core may know better, or give them up
        self._given = desk
        self._desk = desk._replace(post=self._hear, on_record=lambda job: job in self._on_record)
        self._local = local
        self._driver_of = driver_of
        self._ssh_command = ssh_command
        self._sockets: Path | None = None
        self._numbers = itertools.count()
        self._places: dict[str, Place] = {}
        self._here: dict[str, SiteSpec] = {}  # sites of this machine
        self._watched = False

    # -- the Sites port --------------------------------------------------------------------

    def define(self, sites: tuple[SiteSpec, ...]) -> None:
        self._here = {spec.name: spec for spec in sites if spec.driver == LOCAL}
        self._local.define(tuple(self._here.values()))
        elsewhere = {spec.name: spec for spec in sites if spec.driver != LOCAL}
        for name in [name for name in self._places if name not in elsewhere]:
            self._places.pop(name).close()
        for name, spec in elsewhere.items():
            place = self._places.get(name)
            if place is None or place.spec != spec:
                self._define(place, spec)

    def submit(self, jobs: tuple[JobRecord, ...]) -> None:
        site = jobs[0].site
        if site in self._here:
            self._local.submit(jobs)
        elif site in self._places:
            self._on_record.update(job.id for job in jobs)
            self._places[site].submit(jobs)
        else:
            for job in jobs:
                self._desk.post(JobRefused(job.id, f"there is no site {site}"))

    def watch(self, jobs: tuple[JobRecord, ...]) -> None:
        self._watched = True
        self._on_record = {job.id for job in jobs}
        here = tuple(job for job in jobs if job.site in self._here or self._local.holds(job))
        known = {job.id for job in here}
        self._local.watch(here)
        for name, place in self._places.items():
            place.watch([job for job in jobs if job.site == name and job.id not in known])
        for job in jobs:
            if job.id not in known and job.site not in self._places:
                self._desk.post(JobVanished(job.id, f"site {job.site} does not exist any more"))

    def cancel(self, jobs: tuple[JobRecord, ...]) -> None:
        given_up = self._vanished.intersection(job.id for job in jobs)
        self._vanished -= given_up
        self._on_record -= given_up
        site = jobs[0].site
        if site in self._places:
            self._places[site].cancel(jobs)
        else:
            self._local.cancel(jobs)

    # -- the pilots of this machine --------------------------------------------------------

    def terminate(self) -> int:
        return self._local.terminate()

    def alive(self) -> int:
        return self._local.alive()

    def close(self) -> None:
        """Begin nothing more. Jobs stay where they are."""
        for place in self._places.values():  # all at once
            place.close()
        until = time.monotonic() + CLOSE_SECONDS
        for place in self._places.values():
            place.close(max(0.0, until - time.monotonic()))
        self._places.clear()
        self._local.close()
        if self._sockets is not None:
            shutil.rmtree(self._sockets, ignore_errors=True)

    # -- inside ----------------------------------------------------------------------------

    def _hear(self, event: EngineEvent) -> None:
        if isinstance(event, JobEnded | JobRefused):
            self._vanished.discard(event.job)
            self._on_record.discard(event.job)
        elif isinstance(event, JobVanished):
            self._vanished.add(event.job)
        elif isinstance(event, JobSubmitted):
            self._vanished.discard(event.job)
        self._given.post(event)

    def _define(self, place: Place | None, spec: SiteSpec) -> None:
        if place is not None and place.spec.driver == spec.driver and place.change(spec):
            return
        jobs: tuple[JobRecord, ...] = ()
        if place is not None:
            place.close()
            jobs = place.jobs()
        self._places[spec.name] = self._make(spec)
        if self._watched:
            self._places[spec.name].watch(jobs)

    def _make(self, spec: SiteSpec) -> Place:
        try:
            if spec.driver == SSH:
                return ssh.SshSite(spec, self._desk, self._shell_to)
            attendant = Attendant(spec, self._driver_of(spec), self._shell, self._desk)
        except CoveyError as error:
            return _Hopeless(spec, str(error), self._desk.post)
        attendant.start()
        return attendant

    def _shell(self, spec: SiteSpec) -> Shell:
        return self._shell_to(spec.host) if spec.host else LocalShell()

    def _shell_to(self, host: str) -> Shell:
        if self._sockets is None:
            self._sockets = socket_folder()
        path = self._sockets / str(next(self._numbers))
        return SshShell(host, path, self._ssh_command)


class _Hopeless:
    """A site that nothing can be done with, until it is defined otherwise."""

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
