"""Whose turn it is at sites that are full.

A pilot runs the tasks of the owner for whom it was started, unless its site is `shared`. So an
owner who comes late finds no room at a site that others have filled. The rule: an owner who has no
pilot anywhere, and whose tasks could run at a full site, gets the place of one pilot there. It is
taken from the owner who has the most pilots there: a pilot that waits, else one that is idle or has
been there for `TURN_SECONDS`. That pilot gets no more tasks, and leaves when its last task has
ended. Each site makes one such place at a time.

Idle pilots must not keep other owners waiting, either. If a site is full, or pilots of an owner
have waited in its queue for `QUEUE_SECONDS`, idle pilots of owners without waiting tasks leave at
once, as many as the others need, however many pilots the others already have.

These rules do not give each owner a fair share; they see to it that every owner has a pilot.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator

from covey.core.record.model import PilotStatus
from covey.core.sites import site_table
from covey.core.sites.demand import DemandRow, is_late
from covey.core.state import Job, Pilot, Site, State

TURN_SECONDS = 60.0
QUEUE_SECONDS = 5.0  # in which a site that has room starts a pilot


def held(state: State, now: float) -> Counter[str]:
    """Jobs that each owner has, running or about to."""
    return Counter(_owners(state, now))


def _owners(state: State, now: float) -> Iterator[str]:
    """The owner of each job that runs or is about to."""
    return (
        job.record.wanted_by
        for job in state.jobs.values()
        if not job.cancelled
        and (
            job.pilot is not None
            or job.record.site not in state.sites
            or not is_late(state, job, now)
        )
    )


def without(state: State, now: float, found: Iterable[DemandRow]) -> Iterator[DemandRow]:
    """One row of each owner who has no pilot and no job."""
    short = [row for row in found if row.missing > 0 or row.late > 0]
    wanting = dict.fromkeys(row.bag.spec.owner for row in short)
    for pilot in state.pilots.values() if wanting else ():
        if pilot.record.owner in wanting and _is_there(pilot, now):
            del wanting[pilot.record.owner]
            if not wanting:
                return
    for owner in _owners(state, now) if wanting else ():
        if owner in wanting:
            del wanting[owner]
            if not wanting:
                return
    for row in short:
        owner = row.bag.spec.owner
        if owner in wanting:
            del wanting[owner]
            yield row


def who_goes(state: State, now: float, site: Site, row: DemandRow) -> Job | Pilot | None:
    """The waiting job or the pilot that makes place for the row's owner at the site."""
    spec = site.record.spec
    ill = site.failures or site_table.trouble(site, now)
    if spec.shared or ill or site_table.room(state, now, site):
        return None
    jobs = [state.jobs[id_] for id_ in site.jobs if not state.jobs[id_].record.trial]
    if any(_goes(state, job, now) for job in jobs):
        return None
    owners = Counter(job.record.wanted_by for job in jobs)
    del owners[row.bag.spec.owner]  # if he has any there, they are late
    if not owners or not site_table.room_of(state, now, site, row.bag.spec.owner):
        return None
    richest = max(owners, key=lambda one: (owners[one], one))
    theirs = [job for job in jobs if job.record.wanted_by == richest]
    waiting = [job for job in theirs if job.asked and not job.running and job.pilot is None]
    if waiting:
        return waiting[-1]
    there = [state.pilots[job.pilot] for job in theirs if job.pilot in state.pilots]
    ripe = [one for one in there if not one.attempts or now - one.record.enrolled >= TURN_SECONDS]
    return min(ripe, key=lambda one: len(one.attempts), default=None)


def idle_of_others(state: State, now: float, site: Site, wanting: Collection[str]) -> list[Pilot]:
    """Idle pilots at the site of owners who have no tasks that wait."""
    pilots = []
    for id_ in site.jobs:
        job = state.jobs[id_]
        pilot = state.pilots.get(job.pilot) if job.pilot is not None else None
        if pilot is None or job.record.trial or pilot.record.owner in ("", *wanting):
            continue
        if pilot.record.id in state.queue.hungry and not pilot.attempts and _is_there(pilot, now):
            pilots.append(pilot)
    return pilots


def slots_in_queue(state: State, now: float, site: Site, wanting: Collection[str]) -> int:
    """Slots in the site's own queue for owners whose tasks wait, if they have waited there long
    enough to show that the site has no room."""
    jobs = (state.jobs[id_] for id_ in site.jobs)
    return sum(
        job.record.slots
        for job in jobs
        if job.asked and not job.running and not job.cancelled and not job.record.trial
        if job.record.wanted_by in wanting and now - job.since >= QUEUE_SECONDS
    )


def slots_leaving(state: State, now: float, site: Site) -> int:
    """Slots of pilots that have been told to leave, or have just left."""
    jobs = (state.jobs[id_] for id_ in site.jobs)
    return sum(job.record.slots for job in jobs if job.left_at or _goes(state, job, now))


def _goes(state: State, job: Job, now: float) -> bool:
    """Whether the job or its pilot is about to end."""
    if job.cancelled:
        return True
    pilot = state.pilots.get(job.pilot) if job.pilot is not None else None
    return pilot is not None and now >= pilot.until


def _is_there(pilot: Pilot, now: float) -> bool:
    return pilot.status is PilotStatus.ACTIVE and now < pilot.until
