"""Pilots that fail what others do well get less to spoil.

The rules, for each bag and each pilot:
- So many failures in a row there, with no success, and the pilot rests from the bag: for a moment,
  then for longer each time. Then it is tried with one task; a success makes it as good as new.
- Nobody rests when there is nobody else for the bag: then it may be the bag that is broken, which
  the failures that go on will show (`ends`: they pause it).
- A task that took too long, or was lost with its pilot, says nothing about the host.

A host on which everything fails at once would otherwise take task after task, faster than all
others together, until no task has a retry left.
"""

from covey.core.actions import Note
from covey.core.fitting import serves
from covey.core.model import PilotStatus
from covey.core.state import Bag, Pilot, Rest
from covey.core.turn import Turn
from covey.pilot.messages import FAILED, HOST, MEMORY, OK, OUTPUT, SETUP

FAILURES = 3
FIRST_SECONDS, LONGEST_SECONDS = 2.0, 60.0
_BLAMED = (FAILED, MEMORY, OUTPUT, SETUP, HOST)


def note(turn: Turn, pilot: Pilot, bag: Bag, outcome: str) -> None:
    """How an attempt of the bag has ended there."""
    if outcome == OK:
        pilot.rests.pop(bag.id, None)
    elif outcome in _BLAMED:
        rest = pilot.rests.setdefault(bag.id, Rest())
        rest.failures += 1
        if rest.failures >= FAILURES and turn.now >= rest.until:
            seconds = min(FIRST_SECONDS * 2**rest.times, LONGEST_SECONDS)
            rest.times += 1
            rest.until = turn.now + seconds
            words = f"{rest.failures} failures in a row there; it is tried again in {seconds:.0f} s"
            turn.note(Note("pilot rests", bag=bag.id, pilot=pilot.record.id, detail=words))


def share(turn: Turn, pilot: Pilot, bag: Bag, enough: int) -> int:
    """Up to which load the pilot may take tasks of this bag, of the `enough` that it could."""
    rest = pilot.rests.get(bag.id)
    if rest is None or not rest.times:
        return enough
    if not any(_is_well(turn, one, bag) for one in turn.state.pilots.values() if one is not pilot):
        return enough
    if turn.now < rest.until or any(one.bag == bag.id for one in pilot.attempts.values()):
        return 0
    return min(enough, pilot.load + 1)


def _is_well(turn: Turn, pilot: Pilot, bag: Bag) -> bool:
    rest = pilot.rests.get(bag.id)
    here = pilot.status is PilotStatus.ACTIVE and serves(pilot.record, bag)
    return here and (rest is None or not rest.times)
