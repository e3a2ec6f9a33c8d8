"""Which bags come before a bag, and which behind it, when a pilot asks for tasks.

The rules are those of `ranking`: `in_turn`, `by_preference`, `why_first`. Only bags count that the
pilot could have tasks of now (`obstacles`).
"""

from collections import Counter
from typing import NamedTuple

from covey.core.explain import obstacles
from covey.core.explain.answers import Rival
from covey.core.explain.obstacles import FREE, FULL, LIMITED, judge
from covey.core.explain.policy_view import PolicyView, SampledClass, cases
from covey.core.match import blame, dispatch, match_cache, ranking, site_preference
from covey.core.match.pilot_fit import weight_on
from covey.core.match.ranking import OwnerQueue, TurnReason
from covey.core.state import Bag, Candidate, Pilot, State
from covey.core.turn import Turn

MOST_RANKED = 100  # classes of a bag whose rescued tasks may go to the pilot
MOST_ASKED = 20  # bags whose policies are asked now; of others counts what dispatch was told last

_WORDS = {
    TurnReason.PREFERENCE: "the owners of its site prefer it",
    TurnReason.OWNER: "its owner has an older bag",
    TurnReason.RANK: "it ranks higher there",
    TurnReason.AGE: "it is older",
}


class _Order(NamedTuple):
    """Before and behind a bag: the best candidate of each other bag."""

    before: list[Rival]
    behind: list[Rival]


def before(state: State, now: float, pilot: Pilot, ours: Bag) -> list[Rival]:
    return _order(state, now, pilot, ours).before


def behind(state: State, now: float, pilot: Pilot, ours: Bag) -> list[Rival]:
    return _order(state, now, pilot, ours).behind


def _order(state: State, now: float, pilot: Pilot, ours: Bag) -> _Order:
    bags: list[Bag] = []
    queues: dict[str, list[Candidate]] = {}
    asked = 0
    for bag in state.bags.values():
        competes = bag is ours or _competes(state, now, pilot, bag)
        if not competes and not _may_limit(state, pilot, bag, ours):
            continue
        asked += not bag.policy.plain
        if not competes:
            ranks = obstacles.full_ranks(PolicyView(state, now, bag), pilot, [])
        elif asked <= MOST_ASKED or bag is ours or bag.policy.plain:
            ranks = _ranks(state, now, pilot, bag, ours)
        else:
            ranks = _last_ranks(state, pilot, bag)
        bags.append(bag)
        queues.setdefault(bag.spec.owner, []).extend(Candidate(bag, rank) for rank in ranks)
    worth = site_preference.worth_now(state, now, pilot.record.site)
    in_turn = ranking.in_turn(bags, lambda owner: _queue(queues[owner]))
    candidates = list(ranking.by_preference(in_turn, worth))
    place = next(k for k, candidate in enumerate(candidates) if candidate.bag is ours)
    rivals: dict[int, Rival] = {}
    for candidate in candidates[:place]:
        why = _WORDS[ranking.why_first(candidate, candidates[place], worth)]
        rivals.setdefault(candidate.bag.id, _rival(candidate, why))
    later: dict[int, Rival] = {}
    for candidate in candidates[place + 1 :]:
        if candidate.bag is not ours and candidate.bag.id not in rivals:
            later.setdefault(candidate.bag.id, _rival(candidate))
    return _Order(list(rivals.values()), list(later.values()))


def _queue(candidates: list[Candidate]) -> OwnerQueue:
    """`candidates`: of one owner, the oldest bags first."""
    places = Counter(candidate.bag.id for candidate in candidates if candidate.rank != ranking.LAST)
    best_first = sorted(candidates, key=lambda candidate: candidate.rank, reverse=True)
    return OwnerQueue(iter(best_first), places)


def _competes(state: State, now: float, pilot: Pilot, bag: Bag) -> bool:
    """Whether dispatch looks for tasks of the bag that this pilot can have."""
    if not _has_turn(state, pilot, bag):
        return False
    held = blame.withheld(state, pilot, bag)
    return not held or blame.share(Turn(state, now), pilot, bag, pilot.load + 1) > 0


def _has_turn(state: State, pilot: Pilot, bag: Bag) -> bool:
    if not ranking.may_go(state, pilot, bag) or not dispatch.has_work_for(state, pilot, bag):
        return False
    return bag.id not in pilot.waits


def _may_limit(state: State, pilot: Pilot, bag: Bag, ours: Bag) -> bool:
    """Whether the bag's concurrency may limit ours, although the bag rests there or is banned."""
    shared = bag.spec.owner == ours.spec.owner
    return shared and bag.policy.limiting and _has_turn(state, pilot, bag)


def _ranks(state: State, now: float, pilot: Pilot, bag: Bag, ours: Bag) -> list[float]:
    """Of its waiting classes that may run there: each rank once. A bag that holds as many tasks
    there as its concurrency allows still limits the other bags of its owner."""
    classes = cases(bag, bag.policy)
    if bag.policy.plain:
        fits = any(weight_on(bag, case.kind, pilot, now) for case in classes)
        fits = fits or _rescues(state, now, pilot, bag)
        return [0.0] if fits or bag is ours else []
    view = PolicyView(state, now, bag)
    if _rescues(state, now, pilot, bag):
        return _ranks_of_all(view, pilot) or [ranking.LAST]
    obstacle = judge(state, now, view, pilot, classes)
    limits = obstacle.besides == LIMITED and bag.spec.owner == ours.spec.owner
    if bag is not ours and not limits and obstacle.besides not in (FREE, FULL):
        return []
    ranks: dict[float, None] = {}
    for number in obstacle.served:
        view.at(pilot, classes[number])
        match = view.match()
        if match is not None:
            ranks[match.rank] = None
    return list(ranks) or ([0.0] if bag is ours else [])


def _rescues(state: State, now: float, pilot: Pilot, bag: Bag) -> bool:
    """Whether a task of the bag that failed elsewhere may go to the pilot, whatever the bag's
    requirements are."""
    return dispatch.may_rescue(state, pilot, bag) and any(
        weight_on(bag, bag.class_of(task), pilot, now) for task in bag.places.rescue
    )


def _ranks_of_all(view: PolicyView, pilot: Pilot) -> list[float]:
    """The ranks of the bag's classes that meet its requirements there, with waiting tasks or
    without."""
    ranks: dict[float, None] = {}
    for kind, class_ in enumerate(view.bag.classes[:MOST_RANKED]):
        view.at(pilot, SampledClass(kind, class_.sample))
        match = view.match()
        if match is not None:
            ranks[match.rank] = None
    return list(ranks)


def _last_ranks(state: State, pilot: Pilot, bag: Bag) -> list[float]:
    """The same, as dispatch found it when the pilot last asked."""
    face = pilot.faces.get(bag.spec.owner)
    known = match_cache.last_answer(state, face, bag) if face is not None else None
    if known is None:
        return []
    kinds = [case.kind for case in cases(bag, bag.policy) if case.kind < len(known)]
    ranks = [match.rank for kind in kinds if (match := known[kind]) is not None]
    return list(dict.fromkeys(ranks))


def _rival(candidate: Candidate, why: str = "") -> Rival:
    bag, spec = candidate.bag, candidate.bag.spec
    waiting = bag.unsent()
    return Rival(
        bag=bag.id, name=spec.name, owner=spec.owner, rank=candidate.rank, waiting=waiting, why=why
    )
