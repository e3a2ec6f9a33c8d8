"""The order in which a pilot is offered bags.

Between one owner's bags `Rank` decides, then age. Ranks of different owners are never compared: an
owner's bags have the places in the order of age that they have together, the best ranked in the
first. Whose turn it is between owners, and what a site prefers, will come before that.

An owner's order on a pilot is kept until something changes that its policies look at.
"""

from collections import Counter
from collections.abc import Iterator
from operator import attrgetter

from covey.core import matching
from covey.core.fitting import admits
from covey.core.model import BagId, BagStatus
from covey.core.state import Bag, Candidate, Face, Pilot, State

LAST = -float("inf")  # where no class may run
_RANK = attrgetter("rank")


def candidates(state: State, now: float, pilot: Pilot) -> Iterator[Candidate]:
    """The best first; of some no task may be there to send, or to send there. Whether a bag may
    go is asked when its turn comes."""
    if state.policies != state.scene.policies:
        matching.set_scene(state, now)
    if not state.scene.asking:
        return (Candidate(bag) for bag in state.bags.values() if may_go(state, pilot, bag))
    if state.comings != state.scene.comings:
        _count(state)
    owners = state.scene.owners
    if pilot.record.owner or len(owners) == 1:
        owner = pilot.record.owner or next(iter(owners))
        return _those(state, pilot, order(state, now, pilot, owner))
    return _in_turn(state, now, pilot)


def may_go(state: State, pilot: Pilot, bag: Bag) -> bool:
    return (
        bag.status is BagStatus.RUNNING
        and bag.not_before <= state.durable
        and pilot.record.owner in ("", bag.spec.owner)
        and (not state.guarded or admits(state, pilot.record, bag))
        and (bag.asked_mark < bag.total or has_work(bag) or bool(bag.set_aside))
    )


def has_work(bag: Bag) -> bool:
    again = bag.overdue or bag.offers or bag.rescue
    return bool(bag.next < bag.mark or any(bag.ready) or again)


def _those(state: State, pilot: Pilot, found: list[Candidate]) -> Iterator[Candidate]:
    return (one for one in found if may_go(state, pilot, one.bag))


def _in_turn(state: State, now: float, pilot: Pilot) -> Iterator[Candidate]:
    queues: dict[str, Iterator[Candidate]] = {}
    places: Counter[BagId] = Counter()
    for bag in state.bags.values():
        if not may_go(state, pilot, bag):
            continue
        owner = bag.spec.owner
        if owner not in queues:
            found = order(state, now, pilot, owner)
            queues[owner] = _those(state, pilot, found)
            places.update(one.bag.id for one in found if not one.barren)
        for _ in range(places[bag.id]):
            one = next(queues[owner], None)
            if one is not None:
                yield one
    for queue in queues.values():
        yield from queue


def order(state: State, now: float, pilot: Pilot, owner: str) -> list[Candidate]:
    """All bags of an owner, by their rank on this pilot."""
    face = matching.face_of(state, now, pilot, owner)
    scene = state.scene
    for bag in scene.inward.get(owner, ()):
        if matching.stale(state, bag):
            matching.refresh(state, now, bag)
    stamps = (face.stamp, scene.stamp, scene.bags, scene.comings, scene.policies)
    if stamps != face.order_at or scene.restless:
        face.order = _ranked(state, now, pilot, face, scene.owners.get(owner, []))
        face.order_at = stamps
    return face.order


def _ranked(state: State, now: float, pilot: Pilot, face: Face, bags: list[Bag]) -> list[Candidate]:
    found: list[Candidate] = []
    for bag in bags:
        if bag.policy.plain:
            found.append(Candidate(bag))
            continue
        matches = matching.matches(state, now, pilot, bag, face)
        if len(matches) == 1 and (match := matches[0]) is not None:
            found.append(Candidate(bag, match.rank, matches))
            continue
        ranks = dict.fromkeys(match.rank for match in matches if match is not None)
        found += [Candidate(bag, rank, matches) for rank in ranks]
        if not ranks:
            found.append(Candidate(bag, LAST, matches, True))
    if len(face.found) > 2 * len(bags) + 100:  # of bags that are over
        face.found = {key: one for key, one in face.found.items() if one.face == face.stamp}
    found.sort(key=_RANK, reverse=True)
    return found


def _count(state: State) -> None:
    """Bags have come or gone, or policies changed."""
    scene = state.scene
    scene.comings = state.comings
    scene.owners, scene.inward, scene.restless = {}, {}, False
    for bag in state.bags.values():
        scene.owners.setdefault(bag.spec.owner, []).append(bag)
        if not bag.policy.plain:
            scene.restless |= bag.policy.erratic
            if bag.policy.inward:
                scene.inward.setdefault(bag.spec.owner, []).append(bag)
