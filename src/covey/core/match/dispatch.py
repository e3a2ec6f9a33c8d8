"""Which tasks a pilot gets, and when other pilots must give some back.

This is GridBot's Algorithm 1, for classes of tasks. The bags whose policies let tasks run on the
pilot are taken in order, the best first (`ranking`). A bag's `Concurrency` limits the owner's tasks
on the pilot, for this bag and for all that come after it. Each bag sends its overdue tasks first
(`overdue`), then tasks that wait, then running tasks that may run twice (`offers`). Of the tasks
that wait, those with a longer time limit come first, unless the bag says otherwise
(`TaskClasses.turns`), then those with lower numbers.
"""

from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter

from pyroaring import BitMap

from covey.core.bags.lookahead import reserve
from covey.core.match import blame, match_cache, policy_budget, ranking, retry_hosts
from covey.core.match.pilot_fit import held_of, stretch, weight_on
from covey.core.match.ranking import has_work
from covey.core.match.replication import may_have, may_run_twice, watch
from covey.core.match.site_access import admits, last_resorts
from covey.core.protocol.task_recall import recall
from covey.core.record.attempts import Attempt
from covey.core.record.model import AttemptId, BagId, BagStatus, PilotId, PilotStatus, TaskNumber
from covey.core.sites import allowed_sites
from covey.core.state import Bag, Candidate, Pilot, State
from covey.core.state.match_records import ANYWHERE, Match
from covey.core.turn import Turn

MOST_AHEAD = 10_000  # tasks that Concurrency may send to one pilot
MOST_BATCH = 1000  # waiting pilots among which the best are looked for
_WHEN = itemgetter(0)  # when it is the turn of a class (`TaskClasses.turns`)
# Values and commands in one answer, unless a single task has more. Nothing else happens while the
# server writes an answer.
MOST_ANSWER_CHARACTERS = 8 << 20


def take(turn: Turn, pilot: Pilot) -> list[Attempt]:
    """Attempts for this pilot, those of the best bag first. More tasks than the pilot has slots are
    sent only of bags of which it has run a task well: the pilot asks for as many as it needed
    before, and another bag's tasks may be a thousand times longer, or all fail."""
    state = turn.state
    taken: list[Attempt] = []
    if state.draining or not hungry(pilot):
        return taken
    most = pilot.load + _room(state, pilot)
    limits: dict[str, int] = {}  # by owner: the lowest Concurrency of the bags so far
    proven: dict[BagId, None] | None = None  # found out only when it is needed, which is rare
    passed: list[BagId] = []  # bags that have had their turn
    room = MOST_ANSWER_CHARACTERS
    waiting: dict[BagId, set[float]] = {}
    for candidate in _candidates(turn, pilot):
        bag, owner = candidate.bag, candidate.bag.spec.owner
        if bag.id in pilot.waits:
            continue  # the bag's tasks wait for files there: more of them would wait, too
        if candidate.matches is not None and _is_empty(candidate, waiting):
            continue
        limit, ahead = limits.get(owner, MOST_AHEAD), False
        if candidate.matches is not None:
            limit, ahead = _concurrency(candidate, limit)
            limits[owner] = limit
        if limit < MOST_AHEAD:
            limit += len(pilot.attempts) - held_of(state, pilot, owner)
        enough = most if bag.id in pilot.proven else min(most, pilot.record.slots)
        if ahead:  # its policy says how much is sent ahead
            enough = MOST_AHEAD
        passed.append(bag.id)
        if pilot.load >= enough or len(pilot.attempts) >= limit:
            proven = _proven(state, pilot) if proven is None else proven
            while passed:
                proven.pop(passed.pop(), None)
            if pilot.load >= most or _nothing_more(state, pilot, limit, proven):
                break
            continue
        if blame.withheld(state, pilot, bag):
            enough = blame.share(turn, pilot, bag, enough)
        if not policy_budget.may_look(state, turn.now, bag):
            continue
        if room <= 0:
            break  # the answer is full; the pilot asks again when it has it
        before, width = len(taken), bag.width
        if width * (enough - pilot.load) > room:
            enough = pilot.load + max(1, room // width)
        _take_from(turn, pilot, candidate, enough, limit, taken)
        room -= (len(taken) - before) * width
        if len(taken) > before and bag.id not in pilot.bodies:
            room -= bag.body_size
    return taken


def _is_empty(candidate: Candidate, waiting: dict[BagId, set[float]]) -> bool:
    """Whether no task waits in these classes of the bag. A bag whose classes all rank differently
    is a candidate once for each class, and most of its classes are often empty. `waiting`: by bag,
    the ranks of classes in which tasks wait; they are found at the bag's first candidate, which is
    never skipped."""
    bag, matches = candidate.bag, candidate.matches
    if matches is None or len(matches) == 1 or bag.classes.classify is None or bag.policy.limiting:
        return False
    if bag.replicas.overdue or bag.replicas.offers or bag.places.rescue:
        return False
    if bag.id in waiting:
        return candidate.rank not in waiting[bag.id]
    ready = zip(bag.places.ready, matches, strict=False)
    waiting[bag.id] = {match.rank for tasks, match in ready if tasks and match is not None}
    return False


def _proven(state: State, pilot: Pilot) -> dict[BagId, None]:
    """Bags that can send tasks ahead to this pilot, because it has run one of their tasks well."""
    bags = [bag for id_ in pilot.proven if (bag := state.bags.get(id_)) is not None]
    return {bag.id: None for bag in bags if ranking.may_go(state, pilot, bag)}


def _nothing_more(state: State, pilot: Pilot, limit: int, proven: dict[BagId, None]) -> bool:
    """Whether no bag further down the order can send to this pilot, which holds enough of one.
    `proven`: those of them that may send tasks ahead."""
    if len(pilot.attempts) >= limit:
        return bool(pilot.record.owner) or len(state.scene.owners) == 1
    return not proven and not state.scene.limiting and pilot.load >= pilot.record.slots


def _concurrency(candidate: Candidate, limit: int) -> tuple[int, bool]:
    """The lower one of the limit and the candidate's Concurrency, and whether it has any."""
    said = False
    for match in candidate.matches or ():
        if match is not None and match.rank == candidate.rank and match.concurrency is not None:
            limit, said = min(limit, match.concurrency), True
    return limit, said


# -- the order ------------------------------------------------------------------------------


def _candidates(turn: Turn, pilot: Pilot) -> Iterator[Candidate]:
    for candidate in ranking.candidates(turn.state, turn.now, pilot):
        bag = candidate.bag
        replicas = bag.replicas
        if not candidate.barren or replicas.overdue or replicas.offers:
            yield candidate
        elif may_rescue(turn.state, pilot, bag):
            yield candidate  # its rescued tasks are looked at one by one
        elif bag.classes.classify is not None:
            reserve(turn, bag, searching=True)


def hungry_first(turn: Turn) -> list[PilotId]:
    """Pilots that wait for work, in the order in which they get it: the one that has waited longest
    first. With `batch`: the one that ranks best for any bag first."""
    state = turn.state
    waiting = list(state.queue.hungry)
    if state.settings.batch:
        match_cache.set_scene(state, turn.now)
    if not state.settings.batch or not state.scene.ranking or len(waiting) > MOST_BATCH:
        return waiting
    best: dict[PilotId, float] = {}
    for id_ in waiting:
        ranks = [one.rank for one in _candidates(turn, state.pilots[id_]) if has_work(one.bag)]
        best[id_] = max(ranks, default=-float("inf"))
    return sorted(waiting, key=lambda id_: -best[id_])


# -- tasks of one bag -----------------------------------------------------------------------


def _take_from(
    turn: Turn, pilot: Pilot, candidate: Candidate, enough: int, limit: int, taken: list[Attempt]
) -> None:
    bag = candidate.bag
    if _is_reserve(turn.state, pilot):
        _rescue(turn, pilot, bag, enough, limit, taken)
        return
    chunks, places, replicas = bag.chunks, bag.places, bag.replicas
    if replicas.overdue:
        _take_again(turn, pilot, candidate, replicas.overdue, enough, limit, taken)
    weights: dict[int, int] = {}
    turns = bag.classes.turns
    if len(turns) == 1:
        weights[0] = weight_on(bag, 0, pilot, turn.now) if candidate.match(0) is not None else 0
    else:
        weights = _Weights(turn, pilot, candidate)
        ready = places.ready
        turns = [one for one in turns if ready[one[1]] and candidate.match(one[1]) is not None]
    while pilot.load < enough and len(pilot.attempts) < limit:
        kind = _next_class(turn, bag, turns, weights, pilot, enough)
        if kind is None:
            break
        match = candidate.match(kind) or ANYWHERE
        task = _next_task(turn, bag, kind, pilot)
        taken.append(_send(turn, pilot, bag, task, kind, weights[kind], match))
    if places.rescue and may_rescue(turn.state, pilot, bag):
        _rescue(turn, pilot, bag, enough, limit, taken)
    room = pilot.load < enough and len(pilot.attempts) < limit
    sorts = bag.classes.classify is not None or bool(chunks.set_aside)
    reserve(turn, bag, searching=room and sorts)
    idle = room and pilot.load < pilot.record.slots
    if replicas.offers and idle and chunks.asked_mark == bag.total:
        _take_again(turn, pilot, candidate, replicas.offers, enough, limit, taken)


class _Weights(dict[int, int]):
    """By class: how many slots of the pilot a task takes; 0: it may not run there. A weight is
    computed when it is asked for, since a bag may have many classes."""

    def __init__(self, turn: Turn, pilot: Pilot, candidate: Candidate) -> None:
        self.turn, self.pilot, self.candidate = turn, pilot, candidate

    def __missing__(self, kind: int) -> int:
        bag, weight = self.candidate.bag, 0
        if self.candidate.match(kind) is not None:
            weight = weight_on(bag, kind, self.pilot, self.turn.now)
        self[kind] = weight
        return weight


def _next_class(
    turn: Turn,
    bag: Bag,
    turns: list[tuple[float, int]],
    weights: dict[int, int],
    pilot: Pilot,
    enough: int,
) -> int | None:
    """The class of tasks that this pilot gets next. Of several classes that go out at the same
    turn, it is the one with the lowest number that the pilot can run. A task that is larger than
    the pilot's free room may be sent too, if the pilot has nothing else: it waits there for room.
    `turns`: the bag's turns, only of classes in which tasks wait."""
    classes, places, failures = bag.classes, bag.places, bag.failures
    alike = classes.classify is None and len(classes) == 1
    if alike and not (failures.overtimes or failures.raised or failures.failed_on):
        there = weights[0] and (places.next < bag.chunks.mark or places.ready[0])
        return 0 if there and room_for(weights[0], pilot, enough) else None
    for _, group in groupby(turns, _WHEN):
        kinds = [kind for _, kind in group if places.ready[kind]]
        found = _lowest_class(turn, bag, kinds, weights, pilot, enough)
        if found is not None:
            return found
    if classes.classify is None and places.next < bag.chunks.mark and weights[0]:
        return 0 if room_for(weights[0], pilot, enough) else None
    return None


def _lowest_class(
    turn: Turn, bag: Bag, kinds: list[int], weights: dict[int, int], pilot: Pilot, enough: int
) -> int | None:
    """The class of the task with the lowest number that this pilot can run. If no task has failed
    or got more time, the classes are tried in the order of their lowest tasks."""
    ready = bag.places.ready
    if bag.failures.failed_on or bag.failures.grown:
        fits = [one for one in kinds if weights[one] and room_for(weights[one], pilot, enough)]
        found = [(lowest_task(turn, bag, kind, pilot), kind) for kind in fits]
        return min(
            ((least, kind) for least, kind in found if least is not None), default=(0, None)
        )[1]
    for kind in sorted(kinds, key=lambda kind: ready[kind].min()):
        if weights[kind] and room_for(weights[kind], pilot, enough):
            return kind
    return None


def room_for(taken: int, pilot: Pilot, enough: int) -> bool:
    """Whether a task that takes `taken` slots can go to a pilot that may hold `enough`. A pilot
    that holds nothing may get a larger task, which waits there for room."""
    return pilot.load + taken <= enough or pilot.load == 0


def lowest_task(turn: Turn, bag: Bag, kind: int, pilot: Pilot) -> int | None:
    """The lowest task that is ready and may go to the pilot. A task that failed there goes
    elsewhere first (`retry_hosts`). A task that took too long, and needs more time than the pilot
    has left, waits for a pilot with more time, if there can be one."""
    ready, limit = bag.places.ready[kind], bag.classes[kind].need.limit_seconds
    left = pilot.until - turn.now
    if bag.failures.failed_on:
        lowest = retry_hosts.lowest(turn, bag, pilot, ready)
    else:
        lowest = ready.min() if ready else None
    if lowest is None or not bag.failures.grown or limit * stretch(bag, lowest, limit) <= left:
        return lowest
    if left >= allowed_sites.longest_life(turn.state, turn.now, bag, kind):
        return lowest
    short = BitMap(task for task in ready if limit * stretch(bag, task, limit) <= left)
    return retry_hosts.lowest(turn, bag, pilot, short)


def _next_task(turn: Turn, bag: Bag, kind: int, pilot: Pilot) -> TaskNumber:
    places = bag.places
    ready = places.ready[kind]
    task = lowest_task(turn, bag, kind, pilot) if ready else None
    if task is not None:
        ready.remove(task)
        return TaskNumber(task)
    places.next = after = places.next + 1
    return TaskNumber(after - 1)


def _take_again(
    turn: Turn,
    pilot: Pilot,
    candidate: Candidate,
    tasks: dict[int, None],
    enough: int,
    limit: int,
    taken: list[Attempt],
) -> None:
    """Send tasks that run elsewhere already. Each task is looked at by itself, unless the policy
    says the same of all tasks of a class."""
    bag = candidate.bag
    alike = candidate.matches if bag.policy.by_class else None
    if alike is not None and not any(alike):
        return
    for task in list(tasks):
        if pilot.load >= enough or len(pilot.attempts) >= limit:
            break
        if not may_run_twice(bag, task):
            continue
        match = may_have(turn, pilot, bag, task, alike)
        if match is None or _is_full(turn.state, pilot, bag, match):
            continue
        kind = bag.places.live[task][0].kind
        slots = weight_on(bag, kind, pilot, turn.now)
        if slots and room_for(slots, pilot, enough):
            del tasks[task]
            attempt = _send(turn, pilot, bag, TaskNumber(task), kind, slots, match)
            attempt.replica = True
            bag.replicas.sent += 1
            taken.append(attempt)


def _is_full(state: State, pilot: Pilot, bag: Bag, match: Match) -> bool:
    """Whether the pilot holds as many tasks of the owner as Concurrency allows for this task. The
    limit of its class may be another one, or not be known yet."""
    limit = match.concurrency
    return limit is not None and held_of(state, pilot, bag.spec.owner) >= limit


def _is_reserve(state: State, pilot: Pilot) -> bool:
    """Whether its site is only for tasks that failed elsewhere."""
    spec = state.plan.guarded.get(pilot.record.site) if state.plan.guarded else None
    return spec is not None and spec.failover


def has_work_for(state: State, pilot: Pilot, bag: Bag) -> bool:
    """Whether tasks of the bag wait that may go to the pilot's site."""
    if may_rescue(state, pilot, bag):
        return True
    waits = any(bag.places.ready) or bag.places.next < bag.chunks.mark
    again = bag.replicas.overdue or bag.replicas.offers
    return not _is_reserve(state, pilot) and bool(waits or again)


def may_rescue(state: State, pilot: Pilot, bag: Bag) -> bool:
    """Whether tasks of the bag that failed elsewhere have one more chance at the pilot's site."""
    return bool(bag.places.rescue) and pilot.record.site in last_resorts(state, bag)


def _rescue(
    turn: Turn, pilot: Pilot, bag: Bag, enough: int, limit: int, taken: list[Attempt]
) -> None:
    """Send tasks that failed elsewhere to a site where they have one more chance. The bag's
    requirements do not count there."""
    for task in list(bag.places.rescue):
        kind = bag.class_of(task)
        slots = weight_on(bag, kind, pilot, turn.now)
        if pilot.load >= enough or len(pilot.attempts) >= limit:
            break
        if slots and room_for(slots, pilot, enough):
            bag.places.rescue.remove(task)
            taken.append(_send(turn, pilot, bag, TaskNumber(task), kind, slots, ANYWHERE))


def _send(
    turn: Turn, pilot: Pilot, bag: Bag, task: TaskNumber, kind: int, slots: int, match: Match
) -> Attempt:
    state, counters = turn.state, turn.state.counters
    id_ = AttemptId(state.epoch, counters.next_sequence)
    counters.next_sequence += 1
    attempt = Attempt(id_, bag.id, task, pilot.record.id, turn.now, kind, slots, rank=match.rank)
    pilot.add(attempt)
    bag.places.live.setdefault(task, []).append(attempt)
    bag.cache.dirty = True
    if match.deadline:
        watch(state, attempt, match.deadline)
    return attempt


# -- how much ---------------------------------------------------------------------------------


def hungry(pilot: Pilot) -> bool:
    """Whether the pilot can take more tasks. Without disk space it cannot."""
    return pilot.status is PilotStatus.ACTIVE and pilot.load < pilot.want and not pilot.shortage


def work_available(state: State) -> bool:
    return any(
        bag.status is BagStatus.RUNNING
        and bag.places.not_before <= state.journal.durable
        and has_work(bag)
        for bag in state.bags.values()
    )


def _room(state: State, pilot: Pilot) -> int:
    """How many more slots' worth of tasks this pilot may hold. Near the end of the work no pilot
    prefetches more than its share, so that the last tasks do not wait for one slot while other
    slots are idle."""
    room = pilot.want - pilot.load
    idle_slots = pilot.record.slots - pilot.load
    if room <= idle_slots:
        return room
    slots, unsent = max(state.slots(), 1), 0
    for bag in state.bags.values():
        unsent += bag.unsent()
        if unsent * pilot.record.slots >= room * slots:
            return room
    return min(room, max(idle_slots, -(-unsent * pilot.record.slots // slots)))


def recall_surplus(turn: Turn) -> None:
    """If slots are idle and no task is left for them: ask other pilots to give back prefetched
    tasks that could run there."""
    state = turn.state
    idle = [state.pilots[id_] for id_ in state.queue.hungry]
    slots = sum(max(0, one.record.slots - one.load) for one in idle)
    suits: dict[tuple[BagId, int], bool] = {}
    for pilot in state.pilots.values() if slots > 0 else ():
        surplus = pilot.load - pilot.record.slots
        if surplus <= 0 or pilot.status is not PilotStatus.ACTIVE:
            continue
        share = min((surplus + 1) // 2, slots)
        for attempt in reversed(pilot.attempts.values()):
            if share <= 0:
                break
            key = (attempt.bag, attempt.kind)
            if key not in suits:
                suits[key] = _suits(turn, state.bags.get(attempt.bag), attempt.kind, idle)
            if suits[key] and _may_move(turn, attempt, idle) and recall(turn, attempt):
                slots -= attempt.weight
                share -= attempt.weight


def _may_move(turn: Turn, attempt: Attempt, idle: list[Pilot]) -> bool:
    """Whether one of the idle pilots would get this task, given the hosts where it has failed."""
    bag, task = turn.state.bags[attempt.bag], attempt.task
    if task in bag.places.rescued:
        sites = last_resorts(turn.state, bag)
        idle = [pilot for pilot in idle if pilot.record.site in sites]
    elif task not in bag.failures.failed_on:
        return True
    return any(
        _could(turn, pilot, bag, attempt.kind)
        and (task in bag.places.rescued or not retry_hosts.avoids(turn, bag, task, pilot))
        for pilot in idle
    )


def _suits(turn: Turn, bag: Bag | None, kind: int, idle: list[Pilot]) -> bool:
    """Whether an idle pilot could run such a task, and no task of the bag waits."""
    if bag is None or bag.places.next < bag.chunks.mark or any(bag.places.ready):
        return False
    return any(_could(turn, pilot, bag, kind) for pilot in idle)


def _could(turn: Turn, pilot: Pilot, bag: Bag, kind: int) -> bool:
    if not admits(turn.state, pilot.record, bag) or _is_reserve(turn.state, pilot):
        return False
    if not weight_on(bag, kind, pilot, turn.now):
        return False
    if bag.id in pilot.waits or blame.withheld(turn.state, pilot, bag):
        return False
    if bag.policy.plain:
        return True
    face = match_cache.face_of(turn.state, turn.now, pilot, bag.spec.owner)
    return match_cache.matches(turn.state, turn.now, pilot, bag, face)[kind] is not None
