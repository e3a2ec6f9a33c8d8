"""Which pilots may enrol."""

from covey.core.protocol import job_secrets, report_check
from covey.core.protocol.tokens import ANYBODY, WALLS_NEEDED, read_hand_job
from covey.core.record.actions import Problem
from covey.core.record.model import JobId, PilotId
from covey.core.record.owner_share import owner_share
from covey.core.sites import site_table
from covey.core.state import State
from covey.core.turn import Turn
from covey.pilot.protocol.messages import Enrol


def refusal(turn: Turn, enrol_: Enrol, known: PilotId | None, owner: str) -> tuple[Problem, str]:
    """Why the pilot may not enrol; with "" as the reason, it may."""
    state, job = turn.state, JobId(enrol_.job)
    if problem := report_check.enrol_problem(enrol_):
        return Problem.INVALID, problem
    if known is None and (words := _too_many(state, owner)):
        return Problem.TOO_MANY, words
    if _is_fenced(turn, enrol_):
        words = "another pilot with the same secret has taken its place; each needs its own"
        return Problem.SUPERSEDED, words
    if known is not None and state.pilots[known].record.job != job:
        words = "a pilot of another site job uses this key: start the pilot again, for another key"
        return Problem.INVALID, words
    if known is None and not site_table.knows(state, job):
        return Problem.NOT_FOUND, f"there is no site job {job} any more"
    hand = read_hand_job(job)
    if hand is not None and hand.owner == ANYBODY and not enrol_.shared:
        return Problem.INVALID, f"a pilot for {WALLS_NEEDED}"
    return Problem.TOO_MANY, job_secrets.refusal(turn, enrol_)


def _too_many(state: State, owner: str) -> str:
    """Why no more pilots of this owner ("": pilots for everybody) are taken; "" if they are."""
    count, most = len(state.pilots), state.settings.most_pilots
    if count >= most:
        return f"the server has {most:,} pilots, and takes no more"
    if not owner or count < owner_share(most, 0):
        return ""
    held = sum(pilot.record.owner == owner for pilot in state.pilots.values())
    share = owner_share(most, count - held)
    if held < share:
        return ""
    return (
        f"{owner} has {held:,} pilots, and its share is {share:,} now, of {most:,} for everybody: "
        "end some of them"
    )


def _is_fenced(turn: Turn, enrol_: Enrol) -> bool:
    """Whether another pilot has taken the place of this one in its job. Otherwise two living pilots
    would replace each other for ever."""
    if enrol_.key not in turn.state.arrivals.fenced:
        return False
    pilots = turn.state.pilots.values()
    return any(pilot.last > 0 for pilot in pilots if pilot.record.job == enrol_.job)
