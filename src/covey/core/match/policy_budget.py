"""How much work one owner's policies may be, so that nobody else waits for them.

Work is counted in *units*, an operation of an expression being one (about a tenth of a
microsecond). An owner's policies get `TURN` units in one turn, so that no event takes long. While
others have bags too, they get `SECOND` units in a second. What they may not do now they do in a
later turn; until then holds what they said before, and of what was never asked, nothing runs. Time
is that of the events, never measured: core stays a function of what it is told.

Of an owner who is short for `SHORT_SECONDS` on end the most expensive bag is quarantined, then the
next (`quarantine`). Bags whose policies cost less than `EXPENSIVE` for a pilot never are.
"""

import math
from collections.abc import Iterator

from covey.classad.fast import METER
from covey.core.record.model import BagId, BagStatus
from covey.core.record.suspects import Suspect
from covey.core.state import Bag, Budget, State
from covey.core.turn import Turn

TURN = 100_000  # units: about ten milliseconds
SECOND = 3_000_000  # … of each second, while others have bags
RESERVE = SECOND / 2  # that can be saved up, from one tick to the next
STEP = 5  # units of a step that is not in fast code (`classad.fast`)
MANY_CLASSES = 32  # of a bag: to look at fewer is not counted
SHORT_SECONDS = 30.0
EXPENSIVE = TURN // 10
MOST_LOOKS = 20  # turns after a tick in which what was put off is looked at


def of(state: State, now: float, owner: str) -> Budget:
    """The owner's, as it is in this turn."""
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
    """Of the evaluation that has just been made."""
    used = METER.used
    if used:
        METER.used = 0
        return static + STEP * used
    return static


def put_off(state: State, owner: str, budget: Budget) -> None:
    """Something of this owner's has to wait for a later turn. Where only the turn's budget is used
    up, that comes soon; where the second's is, the owner is short."""
    state.budget.postponed[owner] = None
    budget.ran_out = budget.ran_out or budget.left <= 0
    if budget.overrun != budget.turn:
        budget.overrun = budget.turn
        state.budget.overruns += 1


def may_look(state: State, now: float, bag: Bag) -> bool:
    """Whether all classes of a bag may be looked at now. That is counted where there are many."""
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
    """A later turn has come: let those who wait for work ask again."""
    if turn.state.budget.postponed:
        turn.state.budget.postponed.clear()
        turn.state.queue.news += 1


def goes_on(state: State, looks: int) -> bool:
    """Whether there is more to do before the next tick, after so many looks since the last one:
    tasks to be drawn (`replication`), or policies that were put off."""
    if state.replication.drawing:
        return True
    if looks >= MOST_LOOKS or not state.budget.postponed:
        return False
    return not is_shared(state) or any(
        state.budget.owners[one].left > 0 for one in state.budget.postponed
    )


def tick(turn: Turn) -> None:
    """Who was short of work since the last tick, and for how long?"""
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
