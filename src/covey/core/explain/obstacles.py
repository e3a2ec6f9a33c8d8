"""What stands between a pilot and tasks that wait, in the order in which dispatch asks: is it heard
of, is there disk space, has it the bag's files, is it large enough, there for long enough, let in
by the policy, not banned, not full."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from covey.classad import unparse
from covey.classad.nodes import Node
from covey.core.explain.answers import Near
from covey.core.explain.policy_view import PolicyView, SampledClass
from covey.core.match import blame, dispatch, match_cache
from covey.core.match.pilot_fit import held_of, weight, weight_on
from covey.core.record.model import Need, PilotRecord, PilotStatus
from covey.core.state import Bag, Pilot, State
from covey.core.turn import Turn

MOST_NEAR = 5
SILENT, SMALL, ENDING, REFUSED, BANNED, RESTING, TRIED, FULL, LIMITED, FREE = (
    "silent", "small", "ending", "refused", "banned", "resting", "tried", "full", "limited", "free",
)  # fmt: skip
SHORT, FILES = "short", "files"  # of disk space; attempts of this bag wait there for files
AVOIDED = "avoided"  # every waiting task failed there, or needs more time than is left there
ABLE = (FULL, LIMITED, FREE)


class Obstacle(NamedTuple):
    """What stands between a pilot and the tasks that wait. `until`: of a ban or a rest, which may
    be over."""

    pilot: Pilot
    kind: str
    lacking: int = 0  # parts of JobRequirements, or resources
    until: float = 0.0
    served: tuple[int, ...] = ()  # which of the cases it could run
    besides: str = ""  # of a ban or a rest: what the kind would be without it


def judge(
    state: State, now: float, view: PolicyView, pilot: Pilot, classes: list[SampledClass]
) -> Obstacle:
    bag, record = view.bag, pilot.record
    if pilot.status is not PilotStatus.ACTIVE:
        return Obstacle(pilot, SILENT)
    if pilot.shortage:
        return Obstacle(pilot, SHORT)
    if bag.id in pilot.waits:
        return Obstacle(pilot, FILES)
    needs = [bag.classes[case.kind].need for case in classes]
    fits = [number for number, need in enumerate(needs) if weight(need, record)]
    if not fits:
        lacking = len(_too_small(needs[0], record).missing)
        return Obstacle(pilot, SMALL, lacking)
    weights = {number: weight_on(bag, classes[number].kind, pilot, now) for number in fits}
    fits = [number for number in fits if weights[number]]
    if not fits:
        return Obstacle(pilot, ENDING)
    served, limit = [], float("inf")
    alike = "job" not in view.compiled.at_dispatch  # then one answer holds for all
    view.at(pilot, classes[fits[0]])
    for number in [] if view.refuses() else fits[:1] if alike else fits:
        view.at(pilot, classes[number])
        if lets(view):
            served += fits if alike else [number]
            said = match_cache.as_number(view.named("Concurrency"), -1.0)
            limit = min(limit, said) if said >= 0 else limit
    if not served:
        view.at(pilot, classes[fits[0]])
        return Obstacle(pilot, REFUSED, sum(1 for _ in _lacking(view)))
    free = room_is_free(pilot, [weights[number] for number in served])
    kind, until = FREE if free else FULL, blame.withheld(state, pilot, bag)
    if held_of(state, pilot, bag.spec.owner) >= limit:
        kind = LIMITED
    elif not any(_has_task(state, now, bag, classes[number].kind, pilot) for number in served):
        kind = AVOIDED
    besides = kind
    if until > now:
        kind = BANNED if bag.spec.owner in state.hosts[record.host].history.bans else RESTING
    elif until and blame.is_tried(state, pilot, bag):
        kind = TRIED
    return Obstacle(pilot, kind, 0, until, tuple(served), besides)


def room_is_free(pilot: Pilot, weights: list[int]) -> bool:
    """Whether a task that takes one of these numbers of slots could start there now."""
    return any(dispatch.room_for(weight, pilot, pilot.record.slots) for weight in weights)


def _has_task(state: State, now: float, bag: Bag, kind: int, pilot: Pilot) -> bool:
    """Whether some task of the class may go to the pilot, which suits the class. If nothing is
    known of single tasks, every one may."""
    if not (bag.failures.failed_on or bag.failures.grown) or (
        bag.classes.classify is None and bag.places.next < bag.chunks.mark
    ):
        return True
    return dispatch.lowest_task(Turn(state, now), bag, kind, pilot) is not None


def lets(view: PolicyView) -> bool:
    """Whether the policy lets tasks run where the view is."""
    return "JobRequirements" not in view.compiled.texts or view.named("JobRequirements") is True


def lenient(verdicts: list[Obstacle]) -> list[Obstacle]:
    """Nobody rests or is banned where nobody else, of whom nothing bad is known, can do it."""
    if any(one.served and not one.until for one in verdicts):
        return verdicts
    return [one._replace(kind=one.besides, until=0.0) if one.until else one for one in verdicts]


def _too_small(need: Need, record: PilotRecord) -> Near:
    missing, values = [], {}
    for wanted, there, unit, name in (
        (need.cores, record.slots, "cores", "Pilot.Slots"),
        (need.gpus, record.gpus, "GPUs", "Host.Gpus"),
        (need.memory_mb, record.memory_mb, "MB of memory", "Host.Memory"),
        (need.disk_mb, record.disk_mb, "MB of disk", "Host.Disk"),
    ):
        said = there or unit in ("cores", "GPUs")
        if said and wanted > there:
            missing.append(f"{wanted:,} {unit}")
            values[name] = str(there)
    return Near(host=record.host, missing=missing, values=values)


def _lacking(view: PolicyView) -> Iterator[Node]:
    """Parts of JobRequirements that do not hold where the view is."""
    return (one.node for one in view.conditions() if view.value(one.node) is not True)


def nearest(
    view: PolicyView, verdicts: Iterable[Obstacle], classes: list[SampledClass]
) -> list[Near]:
    """Who lacks the fewest things, a host once."""
    hosts: dict[str, Obstacle] = {}
    for one in verdicts:
        if one.lacking:
            hosts.setdefault(one.pilot.record.host, one)
    least = min((one.lacking for one in hosts.values()), default=0)
    closest = [one for one in hosts.values() if one.lacking == least]
    return [_near(view, one, classes) for one in closest[:MOST_NEAR]]


def _near(view: PolicyView, verdict: Obstacle, classes: list[SampledClass]) -> Near:
    record, known = verdict.pilot.record, view.bag.classes
    if verdict.kind == SMALL:
        return _too_small(known[classes[0].kind].need, record)
    view.at(verdict.pilot, next(one for one in classes if weight(known[one.kind].need, record)))
    missing, values = [], {}
    for part in _lacking(view):
        missing.append(unparse(part))
        values.update(view.values(part))
    return Near(host=record.host, missing=missing, values=values)
