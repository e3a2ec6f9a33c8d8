"""How many pilots, where. For now: this machine's own, kept up while there is work.

A site job is durable before it is submitted, so a restarted server knows of every pilot that may
exist. Jobs that end without having done any good are replaced ever more slowly.
"""

from covey.core import pilots
from covey.core.actions import EndJob, Note, SaveJob, SubmitPilot
from covey.core.model import JobId, JobRecord, PilotStatus
from covey.core.state import Job, Starting
from covey.core.turn import Turn

LOCAL = "local"


def provide(turn: Turn) -> None:
    """Submit the pilots that are missing."""
    state = turn.state
    if state.draining or turn.now < state.job_not_before:
        return
    if not any(bag.unsent() or bag.live or bag.doubt for bag in state.bags.values()):
        return
    for _ in range(state.settings.local_pilots - len(state.jobs)):
        state.next_job += 1
        id_ = JobId(f"{state.epoch}-{state.next_job}")
        slots = state.settings.local_slots
        record = JobRecord(id=id_, site=LOCAL, slots=slots, submitted=turn.now)
        state.jobs[id_] = Job(record, turn.now)
        turn.write(SaveJob(record), Starting(id_))


def start(turn: Turn, id_: JobId) -> None:
    if id_ in turn.state.jobs:
        turn.actions.append(SubmitPilot(turn.state.jobs[id_].record))


def submitted(turn: Turn, id_: JobId) -> None:
    turn.note(Note("pilot submitted", job=id_))


def ended(turn: Turn, id_: JobId, reason: str) -> None:
    """A site's word that a job is over is the surest news of a lost pilot."""
    state = turn.state
    job = state.jobs.pop(id_, None)
    if job is None:
        return
    turn.write(EndJob(id_, turn.now, reason))
    pilot = state.pilots.get(job.pilot) if job.pilot is not None else None
    if pilot is not None:
        # By its own word it would have left first: whatever it held has died with it.
        if pilot.status is not PilotStatus.LOST:
            pilots.lost(turn, pilot, f"its site job ended: {reason}")
        pilots.remove(turn, pilot, PilotStatus.LEFT, f"its site job ended: {reason}")
    if job.pilot is None or pilot is not None:
        state.job_failures += 1
        state.job_problem = reason
    delay = 0.25 * 2 ** min(state.job_failures, 8) if state.job_failures > 1 else 0.0
    state.job_not_before = turn.now + min(delay, 60.0)
    turn.note(Note("site job ended", job=id_, detail=reason))
    provide(turn)
