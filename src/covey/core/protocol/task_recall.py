"""Recalls: the server asks pilots to return tasks that they have not started.

A recalled task goes elsewhere only when its pilot says that it had not started.
"""

from covey.core.record.actions import Note, SaveBagStatus
from covey.core.record.attempts import Attempt
from covey.core.record.model import BagStatus
from covey.core.record.transitions import step
from covey.core.state import Bag
from covey.core.turn import Turn


def pause(turn: Turn, bag: Bag, reason: str) -> None:
    """No more tasks go out. Tasks that run go on; pilots are asked to return the others."""
    if bag.status is not BagStatus.RUNNING:
        return
    bag.status = step(bag.status, BagStatus.PAUSED)
    bag.reason = reason
    turn.note(Note("bag paused", bag=bag.id, detail=reason))
    done, failed = len(bag.places.done), len(bag.places.failed)
    turn.write(SaveBagStatus(bag.id, bag.status, turn.now, done, failed, reason))
    for attempts in bag.places.live.values():
        for attempt in attempts:
            recall(turn, attempt)


def recall(turn: Turn, attempt: Attempt) -> bool:
    """Ask its pilot to return the attempt unless it has started. False if that was asked before."""
    if attempt.recalled or attempt.cancelled:
        return False
    attempt.recalled = True
    turn.state.pilots[attempt.pilot].recalls.append(attempt)
    turn.state.queue.signalled[attempt.pilot] = None
    return True
