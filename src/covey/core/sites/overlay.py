"""How many pilots, where. `docs/decisions/0014-pilots-by-demand.md` has the rules.

Each time: which tasks wait, and which of them do pilots and waiting jobs cover (`demand`)? What is
missing is shared out over the sites that may have it (`pilot_shares`); what waits at sites and is
not needed for `SURPLUS_SECONDS` is taken back, the latest first, so many at a time.

A site job is durable before it is submitted, so a restarted server knows of every pilot that may
exist. When a site reports the end of a job, its pilot is certainly lost.

A site may report late that a job was requeued, when the job's next pilot has already called. Then
the report is about the pilot before. A site reports it once, however often the job was requeued
since the last report. So if a second pilot of a job has called, the next such report does not end
that pilot. If the report was about the second pilot after all, that pilot is noticed like any lost
one: it is silent, or another takes its place.
"""

import math
from collections import defaultdict

from msgspec.structs import replace

from covey.core.after_commit import Replying, Starting
from covey.core.broker import choices
from covey.core.protocol import pilots
from covey.core.record.actions import (
    CancelJobs,
    Done,
    Note,
    Problem,
    Refuse,
    SaveJob,
    SubmitPilots,
    Tried,
)
from covey.core.record.model import JobId, JobRecord, PilotStatus, RequestId, SiteSpec, SiteStatus
from covey.core.sites import (
    allowed_sites,
    demand,
    job_history,
    owner_turns,
    pilot_shares,
    site_fit,
    site_table,
)
from covey.core.sites.allowed_sites import Allowed, PilotSize
from covey.core.sites.demand import DemandRow, Key, Lives, Serves, Shape, Supply
from covey.core.state import Job, Site, State
from covey.core.turn import Turn

SURPLUS_SECONDS = 10.0
MOST_CANCELS = 100  # at one site, in one go
CANCEL_AGAIN = 60.0  # seconds after which a site is asked once more
MUTE_SECONDS = 300.0  # in which the pilot of a job that runs has spoken
SHORTEST_WALL = 600.0
ROUND_WALL = 60.0
TRIAL_SECONDS = 24 * 3600.0  # that one waits for whoever looks at it
FEW_LOOKS = 2_000  # at pilots, jobs, and bags at sites: these cost nothing
LOOKS = 20_000  # … and so many are taken in a second, besides ticks


def soon(turn: Turn) -> None:
    """`provide`, after an event that was not refused. If there is much to look at, that waits for
    the next tick."""
    refused = any(isinstance(action, Refuse) for action in turn.actions)
    if turn.now >= turn.state.plan.provide_at and not refused:
        provide(turn)


def provide(turn: Turn, *, fewer: bool = False) -> None:
    """Submit the pilots that are missing; take back those that are too many."""
    state = turn.state
    if state.draining or not state.sites:
        return
    looks = len(state.pilots) + len(state.jobs) + len(state.bags) * len(state.sites)
    state.plan.provide_at = turn.now + max(0, looks - FEW_LOOKS) / LOOKS
    demand.notice(state, turn.now)
    found = demand.rows(state, turn.now)
    if not found and not state.jobs:
        return
    allowed_sites.shorten(state, turn.now, found)
    allowed = allowed_sites.allowed(state, turn.now, found)
    lives = Lives(found)
    supply = demand.supplies(state, turn.now, lives)
    demand.cover(found, supply.values(), Serves(allowed, state.sites))
    _start_missing(turn, found, allowed, supply)
    if fewer:
        _take_back_all(turn, supply, lives)
        site_fit.notice(state, turn.now, found)
        _make_place(turn, found, allowed)
        _send_idle_home(turn, found, allowed)


def _take_back_all(turn: Turn, supply: dict[Shape, Supply], lives: Lives) -> None:
    state = turn.state
    spare: dict[str, dict[Key, float]] = {}
    for shape, one in supply.items():
        if one.queued + one.late > 0:
            spare.setdefault(shape.site, {})[shape] = one.queued + one.late
    waiting = defaultdict[str, list[Job]](list)
    for job in state.jobs.values():
        if job.asked and not job.running:
            waiting[job.record.site].append(job)
    for name, site in state.sites.items():
        if site.jobs:
            _take_back(turn, site, waiting[name], spare.get(name, {}), lives)


# -- more -----------------------------------------------------------------------------------


def _start_missing(
    turn: Turn, found: list[DemandRow], allowed: Allowed, supply: dict[Shape, Supply]
) -> None:
    for share in pilot_shares.shares(turn.state, turn.now, found, allowed, supply):
        row, site = share.row, turn.state.sites[share.site]
        _submit(turn, site, share.pilots, share.slots, row.bag.spec.owner, row)


def _wall(spec: SiteSpec, row: DemandRow | None) -> float:
    """As long as what is known of the work wants, for a short job starts sooner."""
    if row is None or not row.seconds or not spec.wall_seconds:
        return spec.wall_seconds
    spans = (SHORTEST_WALL, 3 * row.life, 2 * row.tasks * row.seconds / max(1, spec.running))
    wanted = max(spans)
    return min(spec.wall_seconds, math.ceil(wanted / ROUND_WALL) * ROUND_WALL)


def _submit(
    turn: Turn, site: Site, count: int, slots: int, owner: str, row: DemandRow | None = None
) -> tuple[JobId, ...]:
    """Without a row: for the owner to see."""
    state, spec = turn.state, site.record.spec
    state.counters.next_job += 1
    state.plan.asked_for[owner] = turn.now
    stem = f"{state.epoch}-{state.counters.next_job}"
    size = PilotSize(spec, row.need if row is not None else None, slots)
    made = []
    for number in range(count):
        record = JobRecord(
            id=JobId(f"{stem}.{number}" if count > 1 else stem),
            site=spec.name,
            slots=slots,
            submitted=turn.now,
            wall_seconds=_wall(spec, row),
            memory_mb=size.memory_mb,
            disk_mb=size.disk_mb,
            gpus=size.gpus,
            trial=row is None,
            wanted_by=owner,
        )
        state.jobs[record.id] = Job(record, turn.now)
        site.jobs[record.id] = None
        made.append(record.id)
        if number < count - 1:
            turn.write(SaveJob(record))
        else:
            turn.write(SaveJob(record), Starting(tuple(made)))
    return tuple(made)


def start(turn: Turn, ids: tuple[JobId, ...]) -> None:
    """The records of these jobs are durable: submit them."""
    jobs = [turn.state.jobs[id_] for id_ in ids if id_ in turn.state.jobs]
    for job in jobs:
        job.asked = True
    if jobs:
        turn.actions.append(SubmitPilots(tuple(job.record for job in jobs)))


def try_out(turn: Turn, request: RequestId, name: str, owner: str) -> None:
    """Start one pilot for a person who tests the site."""
    site = turn.state.sites.get(name)
    if site is None or site.record.removed:
        turn.refuse(request, Problem.NOT_FOUND, f"there is no site {name}")
        return
    spec = site.record.spec  # as large as any: a small one may start where those do not
    (id_,) = _submit(turn, site, 1, spec.slots, owner)
    turn.when_durable(Replying(request, Tried(id_)))


def end_trial(turn: Turn, request: RequestId, id_: JobId) -> None:
    """End the test. It may have ended before."""
    job = turn.state.jobs.get(id_)
    if job is None or not job.record.trial:
        turn.when_durable(Replying(request, Done(0)))
    elif job.pilot is not None and job.pilot in turn.state.pilots:
        pilots.dismiss(turn, request, job.pilot)
    else:
        cancel(turn, job.record.site, [job])
        turn.when_durable(Replying(request, Done(1)))


# -- fewer ----------------------------------------------------------------------------------


def _take_back(
    turn: Turn, site: Site, waiting: list[Job], spare: dict[Key, float], lives: Lives
) -> None:
    """Cancel waiting jobs that are not needed, the latest first."""
    again = [job for job in waiting if 0.0 < job.cancelled <= turn.now - CANCEL_AGAIN]
    surplus = _surplus(site, waiting, spare, lives)
    if not surplus:
        site.surplus_since = math.inf
    site.surplus_since = min(site.surplus_since, turn.now if surplus else math.inf)
    draining = site.record.status is SiteStatus.DRAINING
    if not draining and turn.now - site.surplus_since < SURPLUS_SECONDS:
        surplus = []
    if surplus or again:
        cancel(turn, site.record.spec.name, (again + surplus)[:MOST_CANCELS])


def _surplus(site: Site, waiting: list[Job], spare: dict[Key, float], lives: Lives) -> list[Job]:
    if site.record.status is SiteStatus.DRAINING:
        return [job for job in waiting if not job.cancelled]
    shared, found = site.record.spec.shared, []
    for job in reversed(waiting) if spare else ():
        if job.cancelled or job.record.trial:
            continue
        key, slots = demand.key_of(job.record, shared, lives), job.record.slots
        if spare.get(key, 0.0) >= slots - 1e-6:
            spare[key] -= slots
            found.append(job)
    return found


def _make_place(turn: Turn, found: list[DemandRow], allowed: Allowed) -> None:
    """Send pilots of others home for owners who have none, at sites that are full."""
    state, idle = turn.state, allowed_sites.idle_at(turn.state)
    for row in owner_turns.without(state, turn.now, found):
        for name, site in state.sites.items():
            if allowed_sites.obstacle(state, turn.now, site, row, allowed, idle) is not None:
                continue
            one = owner_turns.who_goes(state, turn.now, site, row)
            if isinstance(one, Job):
                cancel(turn, name, [one])
                break
            if one is not None:
                one.until = turn.now
                state.queue.signalled[one.record.id] = None
                words = f"for tasks of {row.bag.spec.owner or 'anybody'}, at {name}"
                turn.note(Note("pilot makes place", pilot=one.record.id, detail=words))
                break


def _send_idle_home(turn: Turn, found: list[DemandRow], allowed: Allowed) -> None:
    """Idle pilots of owners without work, where others wait (`owner_turns`)."""
    state, now = turn.state, turn.now
    wanting = dict.fromkeys(row.bag.spec.owner for row in found)
    for name, site in state.sites.items() if wanting and state.queue.hungry else ():
        if site.record.spec.shared or site_table.trouble(site, now):
            continue
        idle = owner_turns.idle_of_others(state, now, site, wanting)
        if not idle:
            continue
        wanted = owner_turns.slots_in_queue(state, now, site, wanting)
        if not site_table.room(state, now, site):
            wanted += _slots_missing(state, now, site, found, allowed)
        wanted -= owner_turns.slots_leaving(state, now, site)
        for pilot in idle:
            if wanted <= 0:
                break
            wanted -= pilot.record.slots
            pilot.until = now
            state.queue.signalled[pilot.record.id] = None
            words = f"it is idle, and tasks of other owners wait at {name}"
            turn.note(Note("pilot makes place", pilot=pilot.record.id, detail=words))


def _slots_missing(
    state: State, now: float, site: Site, found: list[DemandRow], allowed: Allowed
) -> int:
    """Slots for tasks that could run there and for which nothing is there or asked for."""
    wanted, idle = 0, allowed_sites.idle_at(state)
    for row in found:
        if row.missing <= 0 or allowed_sites.obstacle(state, now, site, row, allowed, idle):
            continue
        taken = allowed_sites.fits(row, site.record.spec)
        wanted += taken * math.ceil(row.missing / max(1.0, row.in_time) - 1e-9)
    return wanted


def cancel(turn: Turn, site: str, jobs: list[Job]) -> None:
    """Ask the site to cancel them. They stay until the site says that they have ended."""
    job_history.cancelled(turn, jobs)
    for job in jobs:
        job.cancelled = turn.now
    turn.actions.append(CancelJobs(tuple(job.record for job in jobs)))
    turn.note(Note("site jobs taken back", detail=f"{len(jobs)} at {site}"))


def drain(turn: Turn) -> None:
    """Pilots of sites that are to be drained go when their tasks have ended."""
    state = turn.state
    away = {n for n, site in state.sites.items() if site.record.status is SiteStatus.DRAINING}
    for pilot in state.pilots.values() if away else ():
        if pilot.record.site in away and pilot.until > turn.now:
            pilot.until = turn.now
            state.queue.signalled[pilot.record.id] = None


# -- news of jobs ---------------------------------------------------------------------------


def submitted(turn: Turn, id_: JobId, handle: str) -> None:
    job = turn.state.jobs.get(id_)
    if job is None:
        return
    if handle and handle != job.record.handle:
        job.record = replace(job.record, handle=handle)
        turn.write(SaveJob(job.record))
    turn.note(Note("pilot submitted", job=id_, detail=handle))


def started(turn: Turn, id_: JobId, seconds: float = 0.0) -> None:
    if (job := turn.state.jobs.get(id_)) is not None and not job.running:
        job.running, job.started, job.vanished = True, turn.now, ""
        turn.note(Note("site job started", job=id_))
    if job is not None:
        job_history.started(turn, job, seconds)


def suspended(turn: Turn, id_: JobId, now_so: bool) -> None:
    if (job := turn.state.jobs.get(id_)) is not None:
        job.suspended = now_so
        turn.note(Note("site job suspended" if now_so else "site job goes on", job=id_))


def requeued(turn: Turn, id_: JobId, reason: str) -> None:
    """The job waits again, and its pilot is lost with all it held. Or this was so earlier, and the
    job's next pilot is there already."""
    job = turn.state.jobs.get(id_)
    if job is None:
        return
    turn.note(Note("site job requeued", job=id_, detail=reason))
    if job.succeeded and job.pilot in turn.state.pilots:
        job.succeeded, job.vanished = False, ""
        job_history.requeued(turn, job, replaced=True)
        return
    job_history.requeued(turn, job, replaced=False)
    _lose_pilot(turn, job, f"its site job was requeued: {reason}")
    job.running, job.suspended, job.pilot, job.vanished = False, False, None, ""
    job.voice, job.succeeded, job.holder = "", False, ""
    job.since, job.started, job.left_at = turn.now, 0.0, 0.0


def vanished(turn: Turn, id_: JobId, reason: str) -> None:
    """The site lists the job no longer. If its pilot still calls, the list is wrong."""
    job = turn.state.jobs.get(id_)
    if job is None:
        return
    job.vanished = reason
    _end_vanished(turn, id_, job)


def tick(turn: Turn) -> None:
    mute: dict[str, list[Job]] = {}
    for id_, job in [
        (id_, job)
        for id_, job in turn.state.jobs.items()
        if job.vanished or (job.pilot is None and (job.running or job.record.trial))
    ]:
        if job.vanished:
            _end_vanished(turn, id_, job)
        elif job.record.trial and _forgotten(turn.now, job):
            cancel(turn, job.record.site, [job])
        elif _is_mute(turn, job):
            mute.setdefault(job.record.site, []).append(job)
    for name, jobs in mute.items():
        _give_up(turn, name, jobs)
    _disown(turn)
    site_table.look_for_good(turn)
    site_table.forget_removed(turn)
    site_table.look_at_owners(turn)
    choices.tick(turn.state, turn.now)
    drain(turn)
    provide(turn, fewer=True)


def _is_mute(turn: Turn, job: Job) -> bool:
    waits = job.running and job.pilot is None and not job.cancelled
    return waits and turn.now - job.started >= MUTE_SECONDS


def _give_up(turn: Turn, name: str, jobs: list[Job]) -> None:
    """These jobs run, and their pilots have not called: the site has failed."""
    site = turn.state.sites.get(name)
    if site is not None:
        last = jobs[-1].record
        words = f"job {last.handle or last.id} is running, but its pilot has not called"
        words += f" for {MUTE_SECONDS:.0f} s: can it reach the server?"
        site_table.failed(turn, site, last.submitted, words)
        cancel(turn, name, jobs[:MOST_CANCELS])


def _disown(turn: Turn) -> None:
    """Cancel jobs that were given up, in case they still exist: others were started instead."""
    state = turn.state
    found: dict[str, list[JobRecord]] = {}
    for record in state.plan.given_up.values():
        found.setdefault(record.site, []).append(record)
    for records in found.values():
        for record in records[:MOST_CANCELS]:
            del state.plan.given_up[record.id]
        turn.actions.append(CancelJobs(tuple(records[:MOST_CANCELS])))


def _forgotten(now: float, job: Job) -> bool:
    """Whether nobody looks at this trial any more."""
    late = now - job.record.submitted > TRIAL_SECONDS
    return late and job.pilot is None and not job.cancelled


def _end_vanished(turn: Turn, id_: JobId, job: Job) -> None:
    pilot = turn.state.pilots.get(job.pilot) if job.pilot is not None else None
    if pilot is None or pilot.status is PilotStatus.LOST:
        ended(turn, id_, job.vanished, sure=False)


def refused(turn: Turn, id_: JobId, reason: str) -> None:
    """Its site would not take it."""
    ended(turn, id_, reason, refused=True)


def ended(turn: Turn, id_: JobId, reason: str, *, sure: bool = True, refused: bool = False) -> None:
    """The job has ended. If that is not `sure`, its lost pilot may still come back."""
    state = turn.state
    job = state.jobs.pop(id_, None)
    if job is None:
        return
    job_history.ended(turn, job, reason, refused=refused)
    if sure:
        there = _lose_pilot(turn, job, f"its site job ended: {reason}")
    else:
        there = job.pilot in state.pilots
        if not there:
            state.plan.given_up[id_] = job.record
    site = state.sites.get(job.record.site)
    if site is not None:
        site.jobs.pop(id_, None)
        if not job.useful and not job.cancelled and (job.pilot is None or there):
            site_table.failed(turn, site, job.record.submitted, reason)
    turn.note(Note("site job ended", job=id_, detail=reason))
    soon(turn)


def _lose_pilot(turn: Turn, job: Job, reason: str) -> bool:
    """Remove the job's pilot, which has not said goodbye; returns whether there was one."""
    state = turn.state
    pilot = state.pilots.get(job.pilot) if job.pilot is not None else None
    if pilot is None:
        return False
    if pilot.status is not PilotStatus.LOST:
        pilots.lost(turn, pilot, reason)
    pilots.remove(turn, pilot, PilotStatus.LEFT, reason)
    return True


def site_failed(turn: Turn, name: str, reason: str) -> None:
    if (site := turn.state.sites.get(name)) is not None:
        if site.unanswered != reason:
            turn.note(Note("site does not answer", detail=f"{name}: {reason}"))
        site.unanswered = reason


def site_answered(turn: Turn, name: str) -> None:
    if (site := turn.state.sites.get(name)) is not None:
        if site.unanswered:
            turn.note(Note("site answers again", detail=name))
        site.unanswered = ""
        soon(turn)
