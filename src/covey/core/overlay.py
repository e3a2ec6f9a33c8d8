"""How many pilots, where. `docs/decisions/0014-pilots-by-demand.md` has the rules.

Each time: what tasks wait, and what of it do pilots and waiting jobs cover (`demand`)? What is
missing is shared out over the sites that may have it, in proportion to their room; what waits at
sites and is not needed for `SURPLUS_SECONDS` is taken back, the latest first, so many at a time.

A site job is durable before it is submitted, so a restarted server knows of every pilot that may
exist. Its end, as told by the site, is the surest news of a lost pilot.
"""

import math

from msgspec.structs import replace

from covey.core import demand, pilots, sites, suiting
from covey.core.actions import (
    CancelJobs,
    Done,
    EndJob,
    Note,
    Problem,
    SaveJob,
    SubmitPilots,
    Tried,
)
from covey.core.demand import Row, Serves
from covey.core.model import JobId, JobRecord, PilotStatus, RequestId, SiteSpec, SiteStatus
from covey.core.state import Job, Replying, Site, Starting
from covey.core.turn import Turn

SURPLUS_SECONDS = 10.0
MOST_CANCELS = 100  # at one site, in one go
SHORTEST_WALL = 600.0
ROUND_WALL = 60.0
TRIAL_SECONDS = 24 * 3600.0  # that one waits for whoever looks at it


def provide(turn: Turn) -> None:
    """Submit the pilots that are missing, take back those that are too many."""
    state = turn.state
    if state.draining or not state.sites:
        return
    found = demand.rows(state)
    if not found and not state.jobs:
        return
    allowed = suiting.allowed(state, turn.now, found)
    supply = demand.supplies(state, turn.now)
    demand.cover(found, supply.values(), Serves(allowed))
    rooms = {name: room for name, site in state.sites.items() if (room := _room(turn, site)) > 0}
    for row in found:
        if row.missing > 0 and rooms:
            _share_out(turn, row, rooms, allowed)
    left = {shape: one.queued for shape, one in supply.items() if one.queued > 0}
    for site in state.sites.values():
        _take_back(turn, site, left)


# -- more -----------------------------------------------------------------------------------


def _room(turn: Turn, site: Site) -> int:
    """Pilots that may be started there now."""
    spec, state = site.record.spec, turn.state
    if sites.trouble(site, turn.now) or spec.driver == sites.MANUAL:
        return 0
    there = [state.jobs[id_] for id_ in site.jobs]
    waiting = sum(not job.running for job in there)
    if site.failures:  # one job finds out whether it is well again
        return 1 if not waiting else 0
    room = min(site.ramp, spec.queued) - waiting
    if spec.running:
        room = min(room, spec.running - len(there))
    for budget, each, used in (
        (spec.all_memory_mb, spec.memory_mb, sum(job.record.memory_mb for job in there)),
        (spec.all_disk_mb, spec.disk_mb, sum(job.record.disk_mb for job in there)),
    ):
        if budget and each:
            room = min(room, (budget - used) // each)
    return max(0, room)


def _share_out(
    turn: Turn, row: Row, rooms: dict[str, int], allowed: dict[tuple[int, str], bool]
) -> None:
    """Jobs for what the row misses, in proportion to the room that sites have."""
    state = turn.state
    able = []
    for name in rooms:
        spec = state.sites[name].record.spec
        if allowed[row.bag.id, name] and (taken := suiting.fits(row, spec)):
            able.append((name, spec, taken))
    able.sort(key=lambda one: (-rooms[one[0]] * one[1].slots, one[0]))
    places = row.missing / max(1.0, row.in_time)
    whole = float(sum(rooms[name] * spec.slots for name, spec, _ in able))
    for name, spec, taken in able:
        if places <= 1e-9:
            break
        room = rooms[name]
        wanted = places * taken * (room * spec.slots / whole)  # slots
        whole -= room * spec.slots
        count = min(room, max(1, math.ceil(wanted / spec.slots - 1e-9)))
        slots = _slots(spec, taken, min(wanted, places * taken) if count == 1 else spec.slots)
        _submit(turn, state.sites[name], count, slots, _wall(spec, row))
        rooms[name] = room - count
        if not rooms[name]:
            del rooms[name]
        places -= count * (slots // taken)


def _slots(spec: SiteSpec, taken: int, wanted: float) -> int:
    """As many as there is work for, unless the site gives whole nodes only."""
    if spec.driver == sites.LOCAL or spec.options.get("whole_nodes"):
        return spec.slots
    return min(spec.slots, max(taken, -(-math.ceil(wanted) // taken) * taken))


def _wall(spec: SiteSpec, row: Row) -> float:
    """As long as what is known of the work wants, for a short job starts sooner."""
    if not row.seconds or not spec.wall_seconds:
        return spec.wall_seconds
    spans = (SHORTEST_WALL, 3 * row.life, 2 * row.tasks * row.seconds / max(1, spec.running))
    wanted = max(spans)
    return min(spec.wall_seconds, math.ceil(wanted / ROUND_WALL) * ROUND_WALL)


def _submit(
    turn: Turn, site: Site, count: int, slots: int, wall: float, trial: bool = False
) -> tuple[JobId, ...]:
    state, spec = turn.state, site.record.spec
    state.next_job += 1
    stem = f"{state.epoch}-{state.next_job}"
    share = slots / spec.slots
    made = []
    for number in range(count):
        record = JobRecord(
            id=JobId(f"{stem}.{number}" if count > 1 else stem),
            site=spec.name,
            slots=slots,
            submitted=turn.now,
            wall_seconds=wall,
            memory_mb=math.ceil(spec.memory_mb * share),
            disk_mb=math.ceil(spec.disk_mb * share),
            gpus=spec.gpus,
            trial=trial,
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
    """They are durable."""
    jobs = [turn.state.jobs[id_] for id_ in ids if id_ in turn.state.jobs]
    if jobs:
        turn.actions.append(SubmitPilots(tuple(job.record for job in jobs)))


def try_out(turn: Turn, request: RequestId, name: str) -> None:
    """One pilot, for somebody who wants to see whether that works."""
    site = turn.state.sites.get(name)
    if site is None or site.removed:
        turn.refuse(request, Problem.NOT_FOUND, f"there is no site {name}")
        return
    spec = site.record.spec  # as large as any: a small one may start where those do not
    (id_,) = _submit(turn, site, 1, spec.slots, spec.wall_seconds, trial=True)
    turn.when_durable(Replying(request, Tried(id_)))


def end_trial(turn: Turn, request: RequestId, id_: JobId) -> None:
    """It has shown what it could; whether it had ended before is no matter."""
    job = turn.state.jobs.get(id_)
    if job is None or not job.record.trial:
        turn.when_durable(Replying(request, Done(0)))
    elif job.pilot is not None and job.pilot in turn.state.pilots:
        pilots.dismiss(turn, request, job.pilot)
    else:
        cancel(turn, job.record.site, [job])
        turn.when_durable(Replying(request, Done(1)))


# -- fewer ----------------------------------------------------------------------------------


def _take_back(turn: Turn, site: Site, left: dict[demand.Shape, float]) -> None:
    state, spec = turn.state, site.record.spec
    waiting = [job for id_ in site.jobs if not (job := state.jobs[id_]).running]
    waiting = [job for job in waiting if not job.cancelled and not job.record.trial]
    draining = site.record.status is SiteStatus.DRAINING
    surplus = []
    for job in reversed(waiting):
        shape = demand.shape_of(job)
        if draining or left.get(shape, 0.0) >= shape.slots - 1e-6:
            left[shape] = left.get(shape, 0.0) - shape.slots
            surplus.append(job)
    if not surplus:
        site.surplus_since = math.inf
        return
    site.surplus_since = min(site.surplus_since, turn.now)
    if draining or turn.now - site.surplus_since >= SURPLUS_SECONDS:
        cancel(turn, spec.name, surplus[:MOST_CANCELS])


def cancel(turn: Turn, site: str, jobs: list[Job]) -> None:
    """They are there until the site says that they are over."""
    for job in jobs:
        job.cancelled = True
    turn.actions.append(CancelJobs(tuple(job.record for job in jobs)))
    turn.note(Note("site jobs taken back", detail=f"{len(jobs)} at {site}"))


def drain(turn: Turn) -> None:
    """Pilots of sites that are to be drained go when their tasks have ended."""
    state = turn.state
    away = {n for n, site in state.sites.items() if site.record.status is SiteStatus.DRAINING}
    for pilot in state.pilots.values() if away else ():
        if pilot.record.site in away and pilot.until > turn.now:
            pilot.until = turn.now
            state.signalled[pilot.record.id] = None


# -- news of jobs ---------------------------------------------------------------------------


def submitted(turn: Turn, id_: JobId, handle: str) -> None:
    job = turn.state.jobs.get(id_)
    if job is None:
        return
    if handle and handle != job.record.handle:
        job.record = replace(job.record, handle=handle)
        turn.write(SaveJob(job.record))
    turn.note(Note("pilot submitted", job=id_, detail=handle))


def started(turn: Turn, id_: JobId) -> None:
    if (job := turn.state.jobs.get(id_)) is not None and not job.running:
        job.running = True
        turn.note(Note("site job started", job=id_))


def requeued(turn: Turn, id_: JobId, reason: str) -> None:
    """It waits again; whatever its pilot held has died with it."""
    job = turn.state.jobs.get(id_)
    if job is None:
        return
    _lose_pilot(turn, job, f"its site job was requeued: {reason}")
    job.running, job.pilot = False, None
    turn.note(Note("site job requeued", job=id_, detail=reason))


def vanished(turn: Turn, id_: JobId, reason: str) -> None:
    """Not listed any more. A pilot that is heard proves the list wrong."""
    job = turn.state.jobs.get(id_)
    if job is None:
        return
    job.vanished = reason
    _end_vanished(turn, id_, job)


def tick(turn: Turn) -> None:
    for id_, job in list(turn.state.jobs.items()):
        if job.vanished:
            _end_vanished(turn, id_, job)
        elif job.record.trial and _forgotten(turn.now, job):
            cancel(turn, job.record.site, [job])
    sites.forget_removed(turn)
    drain(turn)
    provide(turn)


def _forgotten(now: float, job: Job) -> bool:
    """Whoever looked at this trial does so no longer."""
    late = now - job.record.submitted > TRIAL_SECONDS
    return late and job.pilot is None and not job.cancelled


def _end_vanished(turn: Turn, id_: JobId, job: Job) -> None:
    pilot = turn.state.pilots.get(job.pilot) if job.pilot is not None else None
    if pilot is None or pilot.status is PilotStatus.LOST:
        ended(turn, id_, job.vanished)


def ended(turn: Turn, id_: JobId, reason: str) -> None:
    state = turn.state
    job = state.jobs.pop(id_, None)
    if job is None:
        return
    turn.write(EndJob(id_, turn.now, reason))
    there = _lose_pilot(turn, job, f"its site job ended: {reason}")
    site = state.sites.get(job.record.site)
    if site is not None:
        site.jobs.pop(id_, None)
        if not job.useful and not job.cancelled and (job.pilot is None or there):
            sites.failed(turn, site, reason)
    turn.note(Note("site job ended", job=id_, detail=reason))
    provide(turn)


def _lose_pilot(turn: Turn, job: Job, reason: str) -> bool:
    """Whether there was one. By its own word it would have left first."""
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
        provide(turn)
