"""How much work the policies of one owner may do, so that other owners do not wait for them.

Work is counted in *units*: an operation of an expression is one unit, about a tenth of a
microsecond. An owner's policies get `TURN` units in one turn, so that no event takes long. While
other owners have bags too, they get `SECOND` units in a second. A policy whose owner has no units
left is evaluated in a later turn. Until then its earlier answer holds; a class of tasks without an
earlier answer does not run. Time is the time of events and is never measured, so that core stays a
function of its events.

If an owner is short of units for `SHORT_SECONDS` without a break, the owner's most expensive bag is
quarantined, then the next (`quarantine`). A bag whose policy costs less than `EXPENSIVE` for one
pilot is never quarantined for that.
"""

import math
from collections.abc import Iterator

from covey.classad.fast import METER
from covey.core.record.model import BagId, BagStatus
from covey.core.record.suspects import Suspect
from covey.core.state import Bag, Budget, State
from covey.core.turn import Turn

TURN = 100_000  # units: about ten milliseconds
SECOND = 3_000_000  # units of each second, while other owners have bags
RESERVE = SECOND / 2  # that can be saved up, from one tick to the next
STEP = 5  # units of a step that is not in fast code (`classad.fast`)
MANY_CLASSES = 32  # of a bag; looking at fewer classes is not counted as work
SHORT_SECONDS = 30.0
EXPENSIVE = TURN // 10
MOST_LOOKS = 20  # turns after a tick in which postponed policies are evaluated


def of(state: State, now: float, owner: str) -> Budget:
    """The owner's budget in this turn."""
    found = state.budget.owners.get(owner)
    if found is None:
        found = state.budget.owners[owner] = Budget(RESERVE, now)
    if found.turn != state.turns:
        found.turn = state.turns
        found.left = min(RESERVE, found.left + (now - found.at) * SECOND)
        found.at = now
        found.in_turn = min(TURN, found.left) if is_shared(state) else TURN
    return found


def is_shared(state: State) -> bool:
    """Whether several owners have bags here."""
    return len(state.scene.owners) > 1


def spend(budget: Budget, units: float) -> None:
    budget.in_turn -= units
    budget.left -= units


def cost(static: int) -> int:
    """The units of the evaluation that has just been made."""
    used = METER.used
    if used:
        METER.used = 0
        return static + STEP * used
    return static


def put_off(state: State, owner: str, budget: Budget) -> None:
    """A policy of this owner has to wait for a later turn. If only the turn's units are used up,
    that turn comes soon; if the second's units are used up, the owner is short."""
    state.budget.postponed[owner] = None
    budget.ran_out = budget.ran_out or budget.left <= 0
    if budget.overrun != budget.turn:
        budget.overrun = budget.turn
        state.budget.overruns += 1


def may_look(state: State, now: float, bag: Bag) -> bool:
    """Whether all classes of a bag may be looked at now. Looking at many classes uses up units."""
    many = len(bag.classes)
    if many <= MANY_CLASSES:
        return True
    owner = bag.spec.owner
    found = of(state, now, owner)
    if found.in_turn <= 0:
        put_off(state, owner, found)
        return False
    spend(found, many)
    return True


def go_on(turn: Turn) -> None:
    """A later turn has come: pilots that wait for work ask again."""
    if turn.state.budget.postponed:
        turn.state.budget.postponed.clear()
        turn.state.queue.news += 1


def goes_on(state: State, looks: int) -> bool:
    """Whether there is more to do before the next tick: tasks to be drawn (`replication`), or
    policies that were put off. `looks`: how often that was asked since the last tick."""
    if state.replication.drawing:
        return True
    if looks >= MOST_LOOKS or not state.budget.postponed:
        return False
    return not is_shared(state) or any(
        state.budget.owners[one].left > 0 for one in state.budget.postponed
    )


def tick(turn: Turn) -> None:
    """Find owners who were short of units since the last tick, and for how long."""
    state = turn.state
    for owner, found in list(state.budget.owners.items()):
        if not found.ran_out:
            found.short_since = math.inf
            if turn.now - found.at > SHORT_SECONDS:
                del state.budget.owners[owner]
            continue
        found.ran_out = False
        found.short_since = min(found.short_since, turn.now)
        if turn.now - found.short_since >= SHORT_SECONDS and is_shared(state):
            _take_most_expensive(state, owner)
    go_on(turn)


def _take_most_expensive(state: State, owner: str) -> None:
    found = max(_expensive(state, owner), default=None)
    if found is not None:
        expense, id_ = found
        words = (
            f"its policy needs too much work: {expense:,.0f} operations for each pilot that "
            f"asks for tasks, and for {SHORT_SECONDS:.0f} s its owner's policies needed more than "
            "their share of the server; use a simpler policy, or one with fewer parameters"
        )
        state.suspects.setdefault(id_, Suspect(words))


def _expensive(state: State, owner: str) -> Iterator[tuple[float, BagId]]:
    """The owner's bags, each with what it costs."""
    for bag in state.bags.values():
        if bag.status is BagStatus.RUNNING and bag.spec.owner == owner:
            kind = state.scene.kinds.get(bag.policy.said)
            expense = max(bag.cache.expense, kind.cost if kind is not None else 0)
            if expense > EXPENSIVE:
                yield expense, bag.id
