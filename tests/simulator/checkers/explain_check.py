"""Checks that what `explain` says is what `dispatch` does.

Explain names, for a bag and a pilot, what stands between them. Dispatch is then asked in a copy of
the state in which no other bag competes: a pilot that is free for the bag gets a task of it, and a
pilot with an obstacle gets none.
"""

from copy import deepcopy

from covey.core.explain.bag_order import before
from covey.core.explain.obstacles import (
    AVOIDED,
    BANNED,
    ENDING,
    FILES,
    FREE,
    REFUSED,
    RESTING,
    SHORT,
    SMALL,
    Obstacle,
    judge,
    lenient,
)
from covey.core.explain.policy_view import PolicyView, cases, here, waiting_kinds
from covey.core.explain.steps import finish
from covey.core.match import dispatch
from covey.core.record.model import BagId, BagStatus, PilotId
from covey.core.state import Bag, Pilot, State
from covey.core.turn import Turn

# A pilot with one of these obstacles gets no task of the bag.
CERTAIN = (SHORT, FILES, SMALL, ENDING, REFUSED, BANNED, RESTING, AVOIDED)


def can_be_compared(state: State, now: float) -> list[Bag]:
    """Bags with waiting tasks that nothing but a lack of pilots keeps from running. Dispatch looks
    once a second whether a bag is in its tail, explain at once: both must see the same."""
    if state.draining:
        return []
    running = (bag for bag in state.bags.values() if bag.status is BagStatus.RUNNING)
    ready = [
        bag
        for bag in running
        if bag.places.not_before <= state.journal.durable and waiting_kinds(bag)
    ]
    return [bag for bag in ready if PolicyView(state, now, bag).tail == bag.replicas.tail]


def obstacles(state: State, now: float, bag: Bag) -> list[Obstacle]:
    """One for each pilot, as the explanation of the bag finds them."""
    view, classes = PolicyView(state, now, bag), cases(bag, bag.policy)
    pilots = finish(here(state, bag))
    return lenient([judge(state, now, view, pilot, classes) for pilot in pilots])


def disagreement(state: State, now: float, bag: Bag, obstacle: Obstacle) -> str:
    """How explain and dispatch contradict each other; "" if they do not."""
    record = obstacle.pilot.record
    sent, waiting = _tasks_for(state, now, record.id, bag.id)
    where = f"bag {bag.id} on pilot {record.id}"
    if obstacle.kind == FREE and not sent:
        return f"explain says that nothing is in the way of {where}, but dispatch sends no task"
    if obstacle.kind in CERTAIN and waiting:
        return f"explain says {obstacle.kind!r} of {where}, but dispatch sends tasks {waiting}"
    return ""


def disorder(state: State, now: float, bag: Bag, obstacle: Obstacle) -> str:
    """How explain and dispatch contradict each other about which bags come before this one on a
    pilot that is free for it; "" if they do not."""
    if obstacle.kind != FREE:
        return ""
    pilot = obstacle.pilot
    first = [BagId(rival.bag) for rival in before(state, now, pilot, bag)]
    copy = deepcopy(state)
    asker = copy.pilots[pilot.record.id]
    asker.want = 100
    sent = [attempt.bag for attempt in dispatch.take(Turn(copy, now), asker)]
    where = f"bag {bag.id} on pilot {pilot.record.id}"
    if not sent:
        return (
            "" if first else f"explain says that no bag comes before {where}, but it gets nothing"
        )
    if sent[0] not in (bag.id, *first):
        return f"explain says that only bags {first} come before {where}, but bag {sent[0]} does"
    if sent[0] == bag.id and first and _is_free(state, now, state.bags[first[0]], pilot):
        return (
            f"explain says that bag {first[0]} comes before {where}, but dispatch sends the latter"
        )
    return ""


def _is_free(state: State, now: float, bag: Bag, pilot: Pilot) -> bool:
    if not waiting_kinds(bag):
        return False
    found = judge(state, now, PolicyView(state, now, bag), pilot, cases(bag, bag.policy))
    return found.kind == FREE


def _tasks_for(state: State, now: float, pilot: PilotId, bag: BagId) -> tuple[list[int], list[int]]:
    """Tasks of the bag that dispatch would send to the pilot, if no other bag were there and the
    pilot asked for many; and which of these wait. The others run elsewhere, too long already."""
    copy = deepcopy(state)
    for other in copy.bags.values():
        if other.id != bag and other.status is BagStatus.RUNNING:
            other.status = BagStatus.PAUSED
    asker, asked = copy.pilots[pilot], copy.bags[bag]
    asker.want = 100
    waiting = {task for ready in asked.places.ready for task in ready}
    waiting |= set(range(asked.places.next, asked.total))
    sent = [int(one.task) for one in dispatch.take(Turn(copy, now), asker) if one.bag == bag]
    return sent, [task for task in sent if task in waiting]
