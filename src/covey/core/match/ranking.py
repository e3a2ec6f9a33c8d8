"""The order in which a pilot is offered bags.

Between one owner's bags `Rank` decides, then age. Ranks of different owners are never compared: all
bags stand in the order of age, and each owner puts the best ranked of its bags into the first of
its places (`in_turn`). What a site's owners prefer comes before all that (`by_preference`).
`why_first` says which of these rules put one bag before another. Explanations use these three
functions, too.

An owner's order on a pilot is kept until something changes that its policies look at.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from itertools import islice
from operator import itemgetter
from typing import NamedTuple

from covey.core.match import match_cache, policy_budget, site_preference
from covey.core.match.site_access import admits
from covey.core.record.model import BagId, BagStatus
from covey.core.state import Bag, Candidate, Pilot, State
from covey.core.state.match_records import PilotFace, Placed

LAST = -float("inf")  # where no class may run
_RANK = itemgetter(0)


class TurnReason(StrEnum):
    """Why one bag comes before another on a pilot."""

    PREFERENCE = "preference"  # the site's owners prefer it
    OWNER = "owner"  # it has the place of an older bag of its owner
    RANK = "rank"  # it ranks higher; both are of one owner
    AGE = "age"  # it is older; both are of one owner, and rank alike


class OwnerQueue(NamedTuple):
    """The bags of one owner, the best first, and how many candidates each bag contributes."""

    candidates: Iterator[Candidate]
    places: Mapping[BagId, int]


def in_turn(bags: Iterable[Bag], queue_of: Callable[[str], OwnerQueue]) -> Iterator[Candidate]:
    """The candidates of all owners. `bags`: the oldest first."""
    queues: dict[str, OwnerQueue] = {}
    for bag in bags:
        owner = bag.spec.owner
        queue = queues.get(owner)
        if queue is None:
            queue = queues[owner] = queue_of(owner)
        yield from islice(queue.candidates, queue.places.get(bag.id, 0))
    for queue in queues.values():
        yield from queue.candidates


def by_preference(
    candidates: Iterator[Candidate], worth: Mapping[BagId, float]
) -> Iterator[Candidate]:
    """`worth`: of each bag to the owners of the pilot's site (`site_preference`)."""
    if not worth:
        return candidates
    return iter(sorted(candidates, key=lambda one: -worth.get(one.bag.id, 0.0)))


def why_first(first: Candidate, second: Candidate, worth: Mapping[BagId, float]) -> TurnReason:
    """Why the first one comes before the second, in the order of `by_preference`."""
    if worth.get(first.bag.id, 0.0) > worth.get(second.bag.id, 0.0):
        return TurnReason.PREFERENCE
    if first.bag.spec.owner != second.bag.spec.owner:
        return TurnReason.OWNER
    return TurnReason.RANK if first.rank > second.rank else TurnReason.AGE


def _best(one: Placed) -> tuple[float, int]:
    """As `_ranked` sorts: the highest rank first, then the oldest bag."""
    return -one[0], one[1]


def candidates(state: State, now: float, pilot: Pilot) -> Iterator[Candidate]:
    """The best first. Some candidates may have no task that can go there. Whether a bag may send
    tasks (`may_go`) is asked when its turn comes."""
    worth = site_preference.worth(state, now, pilot.record.site)
    return by_preference(_by_owners(state, now, pilot), worth)


def _by_owners(state: State, now: float, pilot: Pilot) -> Iterator[Candidate]:
    scene, changes = state.scene, state.changes
    if changes.policies != scene.policies:
        match_cache.set_scene(state, now)
    if not scene.asking:
        return (Candidate(bag) for bag in state.bags.values() if may_go(state, pilot, bag))
    if changes.comings != scene.comings:
        _count(state)
    owners = scene.owners
    if pilot.record.owner or len(owners) == 1:
        owner = pilot.record.owner or next(iter(owners))
        return _those(state, pilot, owner, order(state, now, pilot, owner))

    def queue_of(owner: str) -> OwnerQueue:
        placed, bags = order(state, now, pilot, owner), scene.owners[owner]
        places = Counter(bags[place].id for rank, place, _ in placed if rank != LAST)
        return OwnerQueue(_those(state, pilot, owner, placed), places)

    return in_turn((bag for bag in state.bags.values() if may_go(state, pilot, bag)), queue_of)


def may_go(state: State, pilot: Pilot, bag: Bag) -> bool:
    places, chunks, owner = bag.places, bag.chunks, pilot.record.owner
    if bag.status is not BagStatus.RUNNING or places.not_before > state.journal.durable:
        return False
    if owner and owner != bag.spec.owner:
        return False
    if state.plan.guarded and not admits(state, pilot.record, bag):
        return False
    if places.next < chunks.mark or has_work(bag):
        return True
    return chunks.asked_mark < bag.total or bool(chunks.set_aside)


def has_work(bag: Bag) -> bool:
    places = bag.places
    if places.next < bag.chunks.mark:
        return True
    replicas = bag.replicas
    return bool(any(places.ready) or replicas.overdue or replicas.offers or places.rescue)


def _those(state: State, pilot: Pilot, owner: str, found: list[Placed]) -> Iterator[Candidate]:
    bags = state.scene.owners.get(owner, [])
    for rank, place, matches in found:
        bag = bags[place]
        if may_go(state, pilot, bag):
            yield Candidate(bag, rank, matches, rank == LAST)


def order(state: State, now: float, pilot: Pilot, owner: str) -> list[Placed]:
    """All bags of an owner, by their rank on this pilot."""
    face = match_cache.face_of(state, now, pilot, owner)
    scene = state.scene
    for bag in scene.inward.get(owner, ()):
        if match_cache.stale(state, now, bag):
            left = policy_budget.of(state, now, owner)
            if left.in_turn <= 0:
                policy_budget.put_off(state, owner, left)
                break
            match_cache.refresh(state, now, bag)
    stamps = (face.stamp, scene.stamp, scene.bags, scene.comings, scene.policies)
    if stamps != face.order_at or scene.restless:
        left = policy_budget.of(state, now, owner)
        if left.in_turn <= 0 and face.order_at[3:4] == (scene.comings,):  # of the same bags
            policy_budget.put_off(state, owner, left)
            return face.order
        changed = _changed_bags(state, face.order_at, stamps)
        if changed is None or scene.restless:
            face.order = _ranked(state, now, pilot, face, owner)
        else:
            _rank_again(state, now, pilot, face, owner, changed)
        whole = not face.owing and not face.start
        face.order_at = stamps if whole else (-1, *stamps[1:])
    return face.order


def _ranked(state: State, now: float, pilot: Pilot, face: PilotFace, owner: str) -> list[Placed]:
    """Bags that share their answer with others are not even touched: a thousand of them would not
    fit into the processor's cache."""
    placed: list[Placed] = []
    scene = state.scene
    bags = scene.owners.get(owner, [])
    for bag in bags[face.start :] if face.start else ():  # bags that were put off the last time
        if not bag.policy.plain and match_cache.shared_policy(state, bag) is None:
            match_cache.own_answer(state, now, pilot, bag, face)
    face.start = 0
    for place, answer in enumerate(match_cache.shared_answers(state, now, pilot, face, owner)):
        if answer is not None:
            match, matches = answer[0], answer
            placed.append((LAST if match is None else match.rank, place, matches))
            continue
        bag = bags[place]
        if bag.policy.plain:
            placed.append((0.0, place, None))
            continue
        own = match_cache.own_answer(state, now, pilot, bag, face)
        if not own.whole() and not face.start:
            face.start = max(1, place)
        placed += [(rank, place, own.matches) for rank in own.ranks or (LAST,)]
    if len(face.found) > 2 * len(bags) + 100:  # of bags that are over
        face.found = {key: one for key, one in face.found.items() if one.face == face.stamp}
    placed.sort(key=_RANK, reverse=True)
    return placed


def _changed_bags(
    state: State, before: tuple[int, ...], stamps: tuple[int, ...]
) -> dict[BagId, None] | None:
    """The bags whose ads have changed, if nothing else has changed since `before`. None: all bags
    must be asked again."""
    scene = state.scene
    if before[:2] != stamps[:2] or before[3:] != stamps[3:]:
        return None
    latest = scene.latest_bags
    if not latest or latest[0][0] > before[2] + 1:  # more than are remembered
        return None
    return dict.fromkeys(id_ for stamp, id_ in latest if stamp > before[2])


def _rank_again(
    state: State, now: float, pilot: Pilot, face: PilotFace, owner: str, changed: dict[BagId, None]
) -> None:
    """Put these bags into their new places in the order. The others stay where they are."""
    bags, places = state.scene.owners.get(owner, []), state.scene.places
    placed: list[Placed] = []
    moved: set[int] = set()
    for id_ in changed:
        place = places.get(id_)
        if place is None or place >= len(bags) or bags[place].id != id_:
            continue  # another owner's
        moved.add(place)
        own = match_cache.own_answer(state, now, pilot, bags[place], face)
        if not own.whole() and not face.start:
            face.start = max(1, place)
        placed += [(rank, place, own.matches) for rank in own.ranks or (LAST,)]
    if moved:
        rest = [earlier for earlier in face.order if earlier[1] not in moved]
        face.order = sorted(rest + placed, key=_best)


def _count(state: State) -> None:
    """Bags have come or gone, or policies changed."""
    scene = state.scene
    scene.comings = state.changes.comings
    scene.owners, scene.asked, scene.inward, scene.restless = {}, {}, {}, False
    scene.places = {}
    before, scene.kinds = scene.kinds, {}
    for bag in state.bags.values():
        if bag.policy.said in before:
            scene.kinds[bag.policy.said] = before[bag.policy.said]
        bags = scene.owners.setdefault(bag.spec.owner, [])
        scene.places[bag.id] = len(bags)
        bags.append(bag)
        kind = match_cache.shared_policy(state, bag)
        scene.asked.setdefault(bag.spec.owner, []).append(kind)
        if not bag.policy.plain:
            scene.restless |= bag.policy.erratic
            if bag.policy.inward:
                scene.inward.setdefault(bag.spec.owner, []).append(bag)
