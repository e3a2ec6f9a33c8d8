"""Running tasks that get another attempt: GridBot's Algorithm 2.

The rules:
- If an attempt is past its deadline, which counts from sending, its task is offered to other hosts
  before all other tasks. If the late attempt still succeeds, that counts. After a restart of the
  server the task is offered when all pilots have been heard, or adoption ends: one of them may have
  a newer attempt of the task.
- No task has more than `MaxReplicas` attempts at the same time (ten, if all of them are past their
  deadline and `MaxReplicas` is not set). Attempts past their deadline count, too: they are not
  stopped, so each of them still holds a slot. Otherwise one task whose deadline is too short would
  fill every host (GridBot 6.2 limits replicas of a job for that reason).
- Speculation is for closed, idempotent bags in their tail. Every `replicate_seconds` running tasks
  are drawn; a task with n attempts is drawn with weight 1/n. The policy is asked about each, until
  there are as many offers as slots that could take them. Offers hold until the next draw.
- A task that has failed as often as it may gets no more attempts; the running ones are waited for.
- No pilot gets a task that runs on its own host already. The first success counts; the other
  attempts are cancelled.
- Tasks of a bag that is not idempotent are never offered again.

A draw is made in slices, so that pilots that ask for work do not wait for it: the engine calls
`go_on` between requests while `ReplicaWatch.drawing` holds something.
"""

from heapq import heapify, heappop, heappush
from random import Random

from covey.core.match import blame, match_cache, policy_budget, retry_hosts
from covey.core.match.site_access import admits
from covey.core.protocol import host_history
from covey.core.record.actions import Note
from covey.core.record.attempts import Attempt
from covey.core.record.model import AttemptId, BagStatus, PilotStatus
from covey.core.state import Bag, Draw, Pilot, State
from covey.core.state.match_records import Match
from covey.core.state.replicas import FEW_DEADLINES
from covey.core.turn import Turn

MOST_DRAWN = 1024  # tasks of one bag that are looked at in a cycle
SLICE = 32  # tasks that are looked at without a pause


def watch(state: State, attempt: Attempt, seconds: float) -> None:
    """The attempt is to end within this time."""
    attempt.deadline = attempt.sent + seconds
    watched = state.replication
    if len(watched.deadlines) >= watched.most_deadlines:
        _forget_ended(state)
    heappush(watched.deadlines, (attempt.deadline, attempt.id, attempt.bag, attempt.task))


def _forget_ended(state: State) -> None:
    """Most attempts end long before their deadline."""
    bags, watched = state.bags, state.replication
    left = [one for one in watched.deadlines if _attempt(bags.get(one[2]), one[3], one[1])]
    heapify(left)
    watched.deadlines, watched.most_deadlines = left, max(FEW_DEADLINES, 2 * len(left))


def tick(turn: Turn) -> None:
    _expire(turn)
    state, watched = turn.state, turn.state.replication
    if turn.now - watched.drawn_at < state.settings.replicate_seconds or watched.drawing:
        return
    watched.drawn_at = turn.now
    for bag in state.bags.values():
        if bag.policy.replicates and _may_ask(turn, bag) and _may_speculate(turn, bag):
            watched.drawing.append(Draw(bag.id, _room_for_offers(state, bag)))
    go_on(turn)


def _expire(turn: Turn) -> None:
    state, arrivals, deadlines = turn.state, turn.state.arrivals, turn.state.replication.deadlines
    while deadlines and deadlines[0][0] <= turn.now:
        _, id_, bag_id, task = heappop(deadlines)
        bag = state.bags.get(bag_id)
        attempt = _attempt(bag, task, id_)
        if bag is None or attempt is None or attempt.cancelled:
            continue
        if arrivals.unheard and id_.epoch < state.epoch and turn.now < arrivals.adopt_until:
            heappush(deadlines, (arrivals.adopt_until, id_, bag_id, task))
            continue
        attempt.expired = True
        host_history.note_late(turn, state.pilots[attempt.pilot].record)
        words = f"no result {attempt.deadline - attempt.sent:.0f} s after it was sent"
        note = Note("deadline passed", bag=bag.id, task=task, attempt=str(id_), detail=words)
        turn.note(note)
        if task in bag.places.failed or not bag.spec.idempotent:
            continue
        if all(one.expired for one in bag.places.live[task]):
            offer_overdue(bag, task)
            bag.cache.dirty = True
            state.queue.news += 1


def offer_overdue(bag: Bag, task: int) -> None:
    """All attempts of this task are past their deadline: another host gets the task, unless it has
    as many attempts as it may."""
    most = bag.policy.most_late
    if most is None or len(bag.places.live[task]) < most:
        bag.replicas.overdue[task] = None


def _attempt(bag: Bag | None, task: int, id_: AttemptId) -> Attempt | None:
    attempts = bag.places.live.get(task, ()) if bag is not None else ()
    return next((attempt for attempt in attempts if attempt.id == id_), None)


def _may_ask(turn: Turn, bag: Bag) -> bool:
    """Whether the owner's policies may do more work now. A task that is not asked about now may be
    drawn again."""
    left = policy_budget.of(turn.state, turn.now, bag.spec.owner)
    if left.in_turn > 0:
        return True
    policy_budget.put_off(turn.state, bag.spec.owner, left)
    return False


def _may_speculate(turn: Turn, bag: Bag) -> bool:
    bag.replicas.offers.clear()
    if bag.status is not BagStatus.RUNNING or bag.open or not bag.spec.idempotent:
        return False
    if not bag.places.live:
        return False
    match_cache.refresh(turn.state, turn.now, bag)
    return bag.replicas.tail


def _drawn(dice: Random, bag: Bag) -> list[int]:
    """Running tasks in the order in which the policy is asked about them: a task with n attempts is
    drawn with weight 1/n."""
    if len(bag.places.live) > MOST_DRAWN:
        running = bag.places.running()
        drawn: dict[int, None] = {}
        for _ in range(8 * MOST_DRAWN if running else 0):
            task = running[int(dice.random() * len(running))]
            attempts = len(bag.places.live[task])
            if attempts == 1 or dice.random() * attempts < 1.0:
                drawn[task] = None
                if len(drawn) == MOST_DRAWN:
                    break
        return list(drawn)
    # A random number to the power of n, largest first, is such an order (Efraimidis, Spirakis).
    keys = {task: dice.random() ** len(attempts) for task, attempts in bag.places.live.items()}
    return sorted(keys, key=lambda task: -keys[task])


def go_on(turn: Turn) -> None:
    """Do the next slice of a draw."""
    state, drawing = turn.state, turn.state.replication.drawing
    if not drawing:
        return
    draw = drawing.popleft()
    bag = state.bags.get(draw.bag)
    if bag is None or bag.status is not BagStatus.RUNNING or not bag.policy.replicates:
        return
    if draw.tasks is None:
        draw.tasks = _drawn(state.random, bag)
        if len(bag.places.live) > MOST_DRAWN:  # drawing took long enough for this slice
            drawing.appendleft(draw)
            return
    for task in draw.tasks[:SLICE]:
        if len(bag.replicas.offers) >= draw.wanted or not _may_ask(turn, bag):
            return
        offered = task not in bag.replicas.overdue and may_run_twice(bag, task)
        if (
            offered
            and not bag.failures.spent(task, bag.spec)
            and match_cache.wants_replica(state, turn.now, bag, task)
        ):
            bag.replicas.offers[task] = None
            state.queue.news += 1
    del draw.tasks[:SLICE]
    if draw.tasks:
        drawing.append(draw)


def may_run_twice(bag: Bag, task: int) -> bool:
    """Whether the task runs, has no result yet, and its values are here. The late success of a task
    that was given up still counts, but no other attempt is made for it."""
    places, chunks = bag.places, bag.chunks
    settled = task in places.done or task in places.failed
    return task in places.live and not settled and chunks.first_of(task) not in chunks.awaited


def _room_for_offers(state: State, bag: Bag) -> int:
    """How many slots may ask for an offer before the next draw."""
    slots = free = 0
    for pilot in state.pilots.values():
        if pilot.status is PilotStatus.ACTIVE and admits(state, pilot.record, bag):
            slots += pilot.record.slots
            free += max(0, pilot.record.slots - pilot.load)
    return max(1, free, slots // 8)


def may_have(
    turn: Turn, pilot: Pilot, bag: Bag, task: int, alike: list[Match | None] | None
) -> Match | None:
    """The policy's answer about another attempt of the task there; None if there may be none.
    `alike`: the answers by class, if the policy says the same of all tasks of a class."""
    state, host = turn.state, pilot.record.host
    for attempt in bag.places.live[task]:
        if state.pilots[attempt.pilot].record.host == host:
            return None
    if blame.withheld(state, pilot, bag) or retry_hosts.avoids(turn, bag, task, pilot):
        return None
    if len(bag.places.live[task]) >= match_cache.most_replicas(state, turn.now, bag, task):
        return None
    if alike is not None:
        kind = bag.places.live[task][0].kind
        return alike[kind] if kind < len(alike) else None
    face = match_cache.face_of(state, turn.now, pilot, bag.spec.owner)
    return match_cache.match_task(state, turn.now, pilot, bag, face, task)
