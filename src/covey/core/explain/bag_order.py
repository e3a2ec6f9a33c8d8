"""Which bags come before a bag, and which behind it, when a pilot asks for tasks."""

from collections.abc import Iterator

from covey.core.explain.answers import Rival
from covey.core.explain.obstacles import lets
from covey.core.explain.policy_view import PolicyView, cases
from covey.core.match import match_cache, site_preference
from covey.core.match.ranking import has_work
from covey.core.match.site_access import admits
from covey.core.record.model import BagStatus
from covey.core.state import Bag, Candidate, Pilot, State

MOST_ASKED = 20  # bags whose policies are asked, where dispatch has not done so


def _order(state: State, now: float, pilot: Pilot, ours: Bag) -> list[Candidate]:
    """Bags with tasks for this pilot, as it takes them. Ours is among them in any case."""
    found: list[Candidate] = []
    asked = 0
    for bag in state.bags.values():
        if bag is not ours and not _competes(state, pilot, bag):
            continue
        if bag.policy.plain:
            found.append(Candidate(bag))
            continue
        ranks = _known(state, pilot, bag)
        if ranks is None and (asked < MOST_ASKED or bag is ours):
            asked += 1
            ranks = _ranks(state, now, pilot, bag)
        if ranks or bag is ours:
            found.append(Candidate(bag, max(ranks or [0.0])))
    worth = site_preference.decided(state, pilot.record.site)
    return sorted(_in_turn(found), key=lambda one: -worth.get(one.bag.id, 0.0))


def _in_turn(found: list[Candidate]) -> Iterator[Candidate]:
    """As `ranking` has it: owners by the age of their bags, each owner's bags by rank."""
    queues: dict[str, list[Candidate]] = {}
    for one in found:
        queues.setdefault(one.bag.spec.owner, []).append(one)
    for queue in queues.values():
        queue.sort(key=lambda one: one.rank, reverse=True)
    return (queues[one.bag.spec.owner].pop(0) for one in found)


def _known(state: State, pilot: Pilot, bag: Bag) -> list[float] | None:
    """What dispatch found when the pilot last asked, if it has."""
    face = pilot.faces.get(bag.spec.owner)
    found = match_cache.known(state, face, bag) if face is not None else None
    return None if found is None else [one.rank for one in found if one is not None]


def _ranks(state: State, now: float, pilot: Pilot, bag: Bag) -> list[float]:
    view, found = PolicyView(state, now, bag), []
    for case in cases(bag, bag.policy):
        view.at(pilot, case)
        if lets(view):
            found.append(match_cache.as_number(view.named("Rank"), 0.0))
    return found


def _competes(state: State, pilot: Pilot, bag: Bag) -> bool:
    running = bag.status is BagStatus.RUNNING and bag.places.not_before <= state.journal.durable
    work = has_work(bag) or bag.places.next < bag.total
    return running and work and admits(state, pilot.record, bag)


def before(state: State, now: float, pilot: Pilot, ours: Bag) -> Iterator[Rival]:
    for one in _order(state, now, pilot, ours):
        if one.bag is ours:
            return
        yield _rival(one)


def behind(state: State, now: float, pilot: Pilot, ours: Bag) -> list[Rival]:
    order = _order(state, now, pilot, ours)
    place = next(k for k, one in enumerate(order) if one.bag is ours)
    return [_rival(one) for one in order[place + 1 :]]


def _rival(one: Candidate) -> Rival:
    bag, spec = one.bag, one.bag.spec
    return Rival(bag=bag.id, name=spec.name, owner=spec.owner, rank=one.rank, waiting=bag.unsent())
