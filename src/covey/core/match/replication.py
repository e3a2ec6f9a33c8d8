"""Running tasks that get another attempt: GridBot's Algorithm 2.

The rules:
- An attempt past its deadline (counted from sending) is no longer waited for: its task is offered
  to others before everything else. Should it end well after all, that counts. After a restart of
  the server this waits until all pilots have been heard, or adoption ends: one of them may have a
  newer attempt of the task.
- No task has more than `MaxReplicas` attempts out at a time (ten, if all of them are past their
  deadline and nobody has set `MaxReplicas`). Those past their deadline count, too:
  they are not stopped, so each of them still holds a slot. A deadline that always passes would
  otherwise fill every host with one task (GridBot 6.2 bounds replicas of a job for that reason).
- Speculation is for closed, idempotent bags in their tail. Once in `replicate_seconds` running
  tasks are drawn, those with fewer live attempts first (weight 1/n), and the policy is asked about
  each, until there are as many offers as slots that could take them. They hold until the next draw.
- A task that has failed as often as it may gets no more: who still has it is waited for.
- Nobody gets a task that its own host has. The first success counts; the others are cancelled.
- A bag that is not idempotent is never offered again, by either way.

A draw is cut into slices, so that nobody who asks for work waits for it: the engine calls `go_on`
between requests while `ReplicaWatch.drawing` holds something.
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
SLICE = 32  # … without a pause


def watch(state: State, attempt: Attempt, seconds: float) -> None:
    """It is to end within so many seconds."""
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
    """All attempts of this task that are out are past their deadline: another host gets it, unless
    there are too many of them."""
    most = bag.policy.most_late
    if most is None or len(bag.places.live[task]) < most:
        bag.replicas.overdue[task] = None


def _attempt(bag: Bag | None, task: int, id_: AttemptId) -> Attempt | None:
    attempts = bag.places.live.get(task, ()) if bag is not None else ()
    return next((one for one in attempts if one.id == id_), None)


def _may_ask(turn: Turn, bag: Bag) -> bool:
    """Whether its owner's policies may do more work now. What is not asked now is drawn again."""
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
    """Running tasks in the order in which they are asked about, by weight 1/(live attempts)."""
    if len(bag.places.live) > MOST_DRAWN:
        running = bag.places.running()
        found: dict[int, None] = {}
        for _ in range(8 * MOST_DRAWN if running else 0):
            task = running[int(dice.random() * len(running))]
            attempts = len(bag.places.live[task])
            if attempts == 1 or dice.random() * attempts < 1.0:
                found[task] = None
                if len(found) == MOST_DRAWN:
                    break
        return list(found)
    # A random number to the power of n, largest first, is such an order (Efraimidis, Spirakis).
    keys = {task: dice.random() ** len(attempts) for task, attempts in bag.places.live.items()}
    return sorted(keys, key=lambda task: -keys[task])


def go_on(turn: Turn) -> None:
    """One slice of a draw that is under way."""
    state, drawing = turn.state, turn.state.replication.drawing
    if not drawing:
        return
    draw = drawing.popleft()
    bag = state.bags.get(draw.bag)
    if bag is None or bag.status is not BagStatus.RUNNING or not bag.policy.replicates:
        return
    if draw.tasks is None:
        draw.tasks = _drawn(state.random, bag)
        if len(bag.places.live) > MOST_DRAWN:  # enough for now
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
    """It runs, its end is of use (of one that was given up a late success is, but nobody asks for
    it), and its values are here."""
    places, chunks = bag.places, bag.chunks
    settled = task in places.done or task in places.failed
    return task in places.live and not settled and chunks.first_of(task) not in chunks.awaited


def _room_for_offers(state: State, bag: Bag) -> int:
    """Slots that may ask for one before the next draw."""
    slots = free = 0
    for pilot in state.pilots.values():
        if pilot.status is PilotStatus.ACTIVE and admits(state, pilot.record, bag):
            slots += pilot.record.slots
            free += max(0, pilot.record.slots - pilot.load)
    return max(1, free, slots // 8)


def may_have(
    turn: Turn, pilot: Pilot, bag: Bag, task: int, alike: list[Match | None] | None
) -> Match | None:
    """What the policy says of another attempt there; nothing if it may not be. `alike`: by class,
    where it says the same of all tasks of one."""
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
