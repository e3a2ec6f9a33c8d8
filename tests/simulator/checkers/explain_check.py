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
    LIMITED,
    REFUSED,
    RESTING,
    SHORT,
    SMALL,
    TRIED,
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
CERTAIN = (SHORT, FILES, SMALL, ENDING, REFUSED, BANNED, RESTING, AVOIDED, TRIED, LIMITED)


def can_be_compared(state: State, now: float) -> list[Bag]:
    """Bags with waiting tasks that nothing but a lack of pilots keeps from running."""
    if state.draining:
        return []
    running = (bag for bag in state.bags.values() if bag.status is BagStatus.RUNNING)
    return [
        bag
        for bag in running
        if bag.places.not_before <= state.journal.durable and waiting_kinds(bag)
    ]


def obstacles(state: State, now: float, bag: Bag) -> list[Obstacle]:
    """One for each pilot, as the explanation of the bag finds them."""
    view, classes = PolicyView(state, now, bag), cases(bag, bag.policy)
    pilots = finish(here(state, bag))
    return lenient(view, [judge(state, now, view, pilot, classes) for pilot in pilots])


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
    copy = copy_of(state)
    asker = copy.pilots[pilot.record.id]
    asker.want = 100
    sent = [attempt.bag for attempt in dispatch.take(Turn(copy, now), asker)]
    words = f"explain says that bags {first} come before bag {bag.id} on pilot {pilot.record.id}"
    if not sent:
        return "" if first else f"{words}, but dispatch sends no task"
    wrong = sent[0] not in (bag.id, *first)
    late = sent[0] == bag.id and first and _is_free(state, now, state.bags[first[0]], pilot)
    return f"{words}, but dispatch sends a task of bag {sent[0]} first" if wrong or late else ""


def copy_of(state: State) -> State:
    """A copy that shares nothing with the state. Code of a policy belongs to the ad for which it
    was made, so it is made again. Policies may do as much work as at the next event."""
    copy = deepcopy(state)
    copy.turns += 1
    for bag in copy.bags.values():
        policy = bag.policy
        for code in (policy.dispatch, policy.replication, policy.tail, policy.grid):
            code.compile()
    for site in copy.sites.values():
        if site.preference is not None:
            site.preference.policy.compile()
    return copy


def _is_free(state: State, now: float, bag: Bag, pilot: Pilot) -> bool:
    if not waiting_kinds(bag):
        return False
    found = judge(state, now, PolicyView(state, now, bag), pilot, cases(bag, bag.policy))
    return found.kind == FREE


def _tasks_for(state: State, now: float, pilot: PilotId, bag: BagId) -> tuple[list[int], list[int]]:
    """Tasks of the bag that dispatch would send to the pilot, if no other bag were there and the
    pilot asked for many; and which of these wait. The others run elsewhere, too long already."""
    copy = copy_of(state)
    for other in copy.bags.values():
        if other.id != bag and other.status is BagStatus.RUNNING:
            other.status = BagStatus.PAUSED
    asker, asked = copy.pilots[pilot], copy.bags[bag]
    asker.want = 100
    waiting = {task for ready in asked.places.ready for task in ready}
    waiting |= set(range(asked.places.next, asked.total))
    sent = [int(one.task) for one in dispatch.take(Turn(copy, now), asker) if one.bag == bag]
    return sent, [task for task in sent if task in waiting]
