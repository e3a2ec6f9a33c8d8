"""What stands between a pilot and tasks that wait, in the order in which dispatch asks: is it heard
of, is there disk space, has it the bag's files, is it large enough, there for long enough, let in
by the policy, not banned, not full."""

import math
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from covey.classad import unparse
from covey.classad.nodes import Node
from covey.core.explain.answers import Near
from covey.core.explain.policy_view import PolicyView, SampledClass
from covey.core.match import blame, dispatch
from covey.core.match.pilot_fit import held_of, weight, weight_on
from covey.core.record.model import Need, PilotRecord, PilotStatus
from covey.core.state import Bag, Pilot, State
from covey.core.state.match_records import Match
from covey.core.turn import Turn

MOST_NEAR = 5
MOST_LIMITING = 100  # classes of a bag that are asked for their Concurrency
SILENT, SMALL, ENDING, REFUSED, BANNED, RESTING, TRIED, FULL, LIMITED, FREE = (
    "silent", "small", "ending", "refused", "banned", "resting", "tried", "full", "limited", "free",
)  # fmt: skip
SHORT, FILES = "short", "files"  # of disk space; attempts of this bag wait there for files
AVOIDED = "avoided"  # every waiting task failed there, or needs more time than is left there
ABLE = (FULL, LIMITED, FREE)


class Obstacle(NamedTuple):
    """What stands between a pilot and the tasks that wait. `until`: the end of a ban or of a rest,
    which may be over; 0.0: there is none."""

    pilot: Pilot
    kind: str
    lacking: int = 0  # how many parts of JobRequirements, or resources, it lacks
    until: float = 0.0
    served: tuple[int, ...] = ()  # the classes that it could run, as places in the list of them
    besides: str = ""  # what the kind would be without a ban or a rest


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
    matches = _matches(view, pilot, classes, fits)
    if not matches:
        view.at(pilot, classes[fits[0]])
        return Obstacle(pilot, REFUSED, sum(1 for _ in _lacking(view)))
    there = [
        number for number in matches if _has_task(state, now, bag, classes[number].kind, pilot)
    ]
    if not _may_hold_more(view, pilot, matches):
        kind = LIMITED
    elif not there:
        kind = AVOIDED
    else:
        kind = FREE if room_is_free(pilot, [weights[number] for number in there]) else FULL
    besides, until = kind, blame.withheld(state, pilot, bag)
    if until > now:
        kind = BANNED if bag.spec.owner in state.hosts[record.host].history.bans else RESTING
    elif until and blame.is_tried(state, pilot, bag):
        kind = TRIED
    return Obstacle(pilot, kind, 0, until, tuple(matches), besides)


def _matches(
    view: PolicyView, pilot: Pilot, classes: list[SampledClass], fits: list[int]
) -> dict[int, Match]:
    """What the policy says of those that it lets run there, of the classes that fit there."""
    view.at(pilot, classes[fits[0]])
    if view.refuses():
        return {}
    alike = _is_alike(view)
    matches: dict[int, Match] = {}
    for number in fits[:1] if alike else fits:
        view.at(pilot, classes[number])
        match = view.match()
        if match is not None:
            matches.update(dict.fromkeys(fits if alike else [number], match))
    return matches


def _is_alike(view: PolicyView) -> bool:
    """Whether what the policy says of one class holds for all of them."""
    return "job" not in view.compiled.at_dispatch


def _may_hold_more(view: PolicyView, pilot: Pilot, matches: dict[int, Match]) -> bool:
    """Whether Concurrency lets the pilot hold one more task of one of these classes. As in
    `dispatch`, a class is limited by all classes of the bag that do not rank lower."""
    if not view.compiled.limiting:
        return True
    full = full_ranks(view, pilot, list(matches.values()))
    return any(match.rank > max(full, default=-math.inf) for match in matches.values())


def full_ranks(view: PolicyView, pilot: Pilot, matches: list[Match]) -> list[float]:
    """The ranks of classes of which the pilot holds as many tasks as their Concurrency allows.
    `matches`: what the policy says of classes that were asked about already."""
    found, alike = list(matches), _is_alike(view)
    classes = view.bag.classes[:1] if alike else view.bag.classes[:MOST_LIMITING]
    for kind, class_ in enumerate([] if alike and matches else classes):
        view.at(pilot, SampledClass(kind, class_.sample))
        match = view.match()
        found += [match] if match is not None else []
    held = held_of(view.state, pilot, view.bag.spec.owner)
    return [
        match.rank for match in found if match.concurrency is not None and match.concurrency <= held
    ]


def room_is_free(pilot: Pilot, weights: list[int]) -> bool:
    """Whether a task that takes one of these numbers of slots could start there now."""
    return any(dispatch.room_for(weight, pilot, pilot.record.slots) for weight in weights)


def _has_task(state: State, now: float, bag: Bag, kind: int, pilot: Pilot) -> bool:
    """Whether some task of the class may go to the pilot, which suits the class. Every task may, if
    no task has failed or got more time."""
    if not (bag.failures.failed_on or bag.failures.grown) or (
        bag.classes.classify is None and bag.places.next < bag.chunks.mark
    ):
        return True
    return dispatch.lowest_task(Turn(state, now), bag, kind, pilot) is not None


def lets(view: PolicyView) -> bool:
    """Whether the policy lets tasks run where the view is."""
    return "JobRequirements" not in view.compiled.texts or view.named("JobRequirements") is True


def lenient(view: PolicyView, verdicts: list[Obstacle]) -> list[Obstacle]:
    """No pilot rests or is banned if no pilot of which nothing bad is known can do the tasks."""
    if not any(verdict.until for verdict in verdicts) or any(
        verdict.served and not verdict.until for verdict in verdicts
    ):
        return verdicts
    if blame.somebody_can(view.state, view.bag, lambda pilot: _lets_any(view, pilot)):
        return verdicts
    return [
        verdict._replace(kind=verdict.besides, until=0.0) if verdict.until else verdict
        for verdict in verdicts
    ]


def _lets_any(view: PolicyView, pilot: Pilot) -> bool:
    for kind, class_ in enumerate(view.bag.classes[: 1 if _is_alike(view) else None]):
        if view.tired():
            break
        view.at(pilot, SampledClass(kind, class_.sample))
        if lets(view):
            return True
    return False


def _too_small(need: Need, record: PilotRecord) -> Near:
    missing, values = [], {}
    for wanted, there, unit, name in (
        (need.cores, record.slots, "cores", "Pilot.Slots"),
        (need.gpus, record.gpus, "GPUs", "Host.Gpus"),
        (need.memory_mb, record.memory_mb, "MB of memory", "Host.Memory"),
        (need.disk_mb, record.disk_mb, "MB of disk", "Host.Disk"),
    ):
        is_told = there or unit in ("cores", "GPUs")
        if is_told and wanted > there:
            missing.append(f"{wanted:,} {unit}")
            values[name] = str(there)
    return Near(host=record.host, missing=missing, values=values)


def _lacking(view: PolicyView) -> Iterator[Node]:
    """Parts of JobRequirements that are not true where the view is."""
    return (part.node for part in view.conditions() if view.value(part.node) is not True)


def nearest(
    view: PolicyView, verdicts: Iterable[Obstacle], classes: list[SampledClass]
) -> list[Near]:
    """The hosts that lack the fewest things, each once."""
    hosts: dict[str, Obstacle] = {}
    for verdict in verdicts:
        if verdict.lacking:
            hosts.setdefault(verdict.pilot.record.host, verdict)
    least = min((verdict.lacking for verdict in hosts.values()), default=0)
    closest = [verdict for verdict in hosts.values() if verdict.lacking == least]
    return [_near(view, verdict, classes) for verdict in closest[:MOST_NEAR]]


def _near(view: PolicyView, verdict: Obstacle, classes: list[SampledClass]) -> Near:
    record, bag_classes = verdict.pilot.record, view.bag.classes
    if verdict.kind == SMALL:
        return _too_small(bag_classes[classes[0].kind].need, record)
    view.at(
        verdict.pilot,
        next(case for case in classes if weight(bag_classes[case.kind].need, record)),
    )
    missing, values = [], {}
    for part in _lacking(view):
        missing.append(unparse(part))
        values.update(view.values(part))
    return Near(host=record.host, missing=missing, values=values)
