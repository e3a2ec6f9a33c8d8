"""Programs that wait for their calls.

A bag of calls works for the program that made it: while calls are out, the program asks for their
values all the time. If no program has asked for `absent_seconds`, it is gone, and the bag is
paused, so that it does not take slots from others. Nothing is lost: when a program asks again (on a
laptop that slept) the bag goes on by itself, and a person may resume it at any time.

When programs asked, and which bags a person has resumed, is not durable: after a restart every bag
has `absent_seconds` again. Time in which the server itself was stopped does not count
(`pilots.tick`).
"""

import math

from covey.core.bags import bag_requests
from covey.core.protocol import task_recall
from covey.core.record.model import BagId, BagStatus
from covey.core.state import Bag
from covey.core.turn import Turn

ABSENT = (
    "the program that made the calls does not wait for them now; the bag continues when it does"
)


def heard(turn: Turn, id_: BagId) -> None:
    bag = turn.state.bags.get(id_)
    if bag is None or bag.progress.heard == math.inf:
        return
    bag.progress.heard = turn.now
    if bag.status is BagStatus.PAUSED and bag.reason == ABSENT:
        bag_requests.go_on(turn, bag)


def tick(turn: Turn) -> None:
    since = turn.now - turn.state.settings.absent_seconds
    for bag in turn.state.bags.values():
        if bag.progress.heard < since and bag.status is BagStatus.RUNNING and _has_calls(bag):
            task_recall.pause(turn, bag, ABSENT)


def _has_calls(bag: Bag) -> bool:
    return len(bag.places.done) + len(bag.places.failed) < bag.total
