"""The secret of a site job lets in one pilot: only that pilot may show it again.

Others may find the secret: it stands in the job's script, which the spool of a batch system shows
to everybody who uses the same account. So once a pilot has enrolled, the secret alone is not
enough: the pilot must also show the key that it drew when it started. Only its memory has the key.

A job that its site starts again has a new pilot, with the same script and another key. That pilot
is let in when the site has said that the job was requeued, or when nothing has been heard of the
earlier pilot for as long as its lease lasts. Until then it is told to wait, and asks again.
docs/decisions/0019-secrets-of-site-jobs.md says why.
"""

from covey.core.record.actions import Note
from covey.core.record.model import JobId, PilotRecord
from covey.core.state import State
from covey.core.turn import Turn
from covey.pilot.protocol.messages import Enrol


def refusal(turn: Turn, enrol: Enrol) -> str:
    """Why this pilot must wait before its secret lets it in; "" if it need not wait."""
    state = turn.state
    job = state.jobs.get(JobId(enrol.job))
    heard = _holder_heard(state, enrol)
    if heard is None or turn.now - heard >= state.settings.lease_seconds:
        return ""
    if job is None or job.refused_key != enrol.key:
        words = f"{enrol.host[:100]}: it shows the secret of a pilot that was just heard"
        turn.note(Note("second pilot of a site job must wait", job=JobId(enrol.job), detail=words))
    if job is not None:
        job.refused_key = enrol.key
    left = heard + state.settings.lease_seconds - turn.now
    return (
        "another pilot uses this secret, and each secret is for one pilot. If the site job was "
        f"started again, this pilot may enrol when the site reports it, or in {left:.0f} s if the "
        "other pilot does not call"
    )


def used(state: State, record: PilotRecord) -> None:
    """This pilot was let in: from now on the secret of its job is for this pilot only."""
    job = state.jobs.get(record.job)
    if job is not None:
        job.holder = record.key


def left(state: State, record: PilotRecord, now: float) -> None:
    """This pilot is gone. Its secret stays used: its process may not be over yet."""
    job = state.jobs.get(record.job)
    if job is not None and job.holder == record.key:
        job.holder_left = now


def _holder_heard(state: State, enrol: Enrol) -> float | None:
    """When another pilot that used this secret was last heard; None if there is no other."""
    job = state.jobs.get(JobId(enrol.job))
    if job is None:  # a person started the pilot: only pilots that are there now are known
        pilots = state.pilots.values() if enrol.job else ()
        of_job = (pilot for pilot in pilots if pilot.record.job == enrol.job)
        return max((pilot.heard for pilot in of_job if pilot.record.key != enrol.key), default=None)
    if job.holder in ("", enrol.key):
        return None
    id_ = state.arrivals.keys.get(job.holder)
    return state.pilots[id_].heard if id_ is not None else job.holder_left
