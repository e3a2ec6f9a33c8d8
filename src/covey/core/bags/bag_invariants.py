"""What must hold for a bag between any two events; `State.check` asserts it."""

from typing import TYPE_CHECKING

from pyroaring import BitMap

from covey.core.record.model import BagStatus

if TYPE_CHECKING:
    from covey.core.state import Bag


def check_bag(bag: "Bag") -> None:
    assert bag.next <= bag.mark <= bag.asked_mark <= bag.total
    running = BitMap(task for task, attempts in bag.live.items() if attempts)
    assert len(running) == len(bag.live), "a live list is empty"
    settled = bag.done | bag.failed
    union = BitMap()
    for place in bag.places():
        assert not union & place, "a task is in two places"
        union |= place
    assert not (running & (union - settled)), "a running task is also waiting"
    if bag.status in (BagStatus.RUNNING, BagStatus.PAUSED):
        expected = BitMap()
        expected.add_range(0, bag.next)
        assert (union | running) == expected, f"lost or invented: {(union | running) ^ expected}"
    for task in (*bag.overdue, *bag.offers):
        assert task in bag.live, "a task that does not run is offered again"
    assert bag.starts == sorted(bag.starts)
    for first in bag.awaited:
        assert first in bag.chunks, "rows are awaited for a closed chunk"
    for first, stop in bag.chunks.items():
        left = stop - first - settled.range_cardinality(first, stop)
        assert bag.unfinished[first] == left, f"chunk {first}: {bag.unfinished[first]} != {left}"
        assert left > 0
