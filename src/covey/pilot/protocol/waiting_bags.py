"""Bags whose attempts wait on a pilot for input files or the bag's setup. Pure.

The rule: an attempt that has waited for WAITING_SECONDS takes no slot from those that could run.
The server is told how many slots' worth of each bag wait. It sends no more of these bags to this
pilot, and sends other bags as if the waiting attempts were not here. What waits is limited: for one
bag to as many slots' worth as the pilot has slots, and to MOST_WAITING_BAGS bags.
"""

from collections import OrderedDict
from typing import TYPE_CHECKING, Dict, List, Mapping

from covey.pilot.protocol.messages import MOST_WAITING_BAGS, WaitingBag

if TYPE_CHECKING:
    from covey.pilot.protocol.held_attempts import Holding

WAITING_SECONDS = 1.0  # most files and setups are ready sooner
LOOK_SECONDS = 0.5


def waiting_bags(
    unprepared: Mapping[str, float], holding: "Mapping[str, Holding]", now: float
) -> List[WaitingBag]:
    """Each bag with an attempt that has waited for a while, and how many of its attempts wait.
    `unprepared`: since when each attempt waits."""
    slots: "OrderedDict[int, int]" = OrderedDict()
    late = set()
    for key, since in unprepared.items():
        bag = holding[key].task.bag
        slots[bag] = slots.get(bag, 0) + holding[key].weight
        if now - since >= WAITING_SECONDS:
            late.add(bag)
    rows = [WaitingBag(bag, count) for bag, count in slots.items() if bag in late]
    return rows[:MOST_WAITING_BAGS]


def surplus(
    waiting: List[WaitingBag],
    unprepared: Mapping[str, float],
    holding: "Mapping[str, Holding]",
    slots: int,
) -> List[str]:
    """The attempts of waiting bags that exceed the pilot's slots: other hosts may have them."""
    over: Dict[int, int] = {row.bag: row.slots - slots for row in waiting if row.slots > slots}
    keys = []
    for key in reversed(list(unprepared)) if over else ():
        bag, weight = holding[key].task.bag, holding[key].weight
        if over.get(bag, 0) >= weight:
            over[bag] -= weight
            keys.append(key)
    return keys
