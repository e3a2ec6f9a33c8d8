"""Where each task of a bag is.

The rule: every number below `next` is in exactly one place: done, failed, ready, parked, aside,
rescue, doubt, or `live` (out with pilots). A task that is done or failed may be live, too: its late
attempts are told to stop.
"""

from collections.abc import Iterator

from msgspec import Struct, field
from pyroaring import BitMap

from covey.core.record.attempts import Attempt


class TaskPlaces(Struct, eq=False):
    next: int = 0  # the lowest number never handed out
    not_before: int = 0  # nothing goes out until this write is durable
    done: BitMap = field(default_factory=BitMap)
    failed: BitMap = field(default_factory=BitMap)
    ready: list[BitMap] = field(default_factory=list)  # by class: may go out
    parked: BitMap = field(default_factory=BitMap)  # ready when their rows have been read
    aside: BitMap = field(default_factory=BitMap)  # ready, but fit no pilot: others go first
    rescue: BitMap = field(default_factory=BitMap)  # may go out, but only to fail-over sites
    rescued: BitMap = field(default_factory=BitMap)  # have used their chance there, or have it now
    doubt: BitMap = field(default_factory=BitMap)  # may be running with an unheard pilot
    live: dict[int, list[Attempt]] = field(default_factory=dict)

    def waiting(self) -> int:
        return sum(map(len, self.ready)) + len(self.parked) + len(self.aside) + len(self.rescue)

    def hold(self, task: int) -> None:
        """This task must not go out, wherever it waits."""
        self.parked.discard(task)
        self.aside.discard(task)
        self.rescue.discard(task)
        for ready in self.ready:
            ready.discard(task)

    def hold_all(self) -> None:
        for place in (self.parked, self.aside, self.rescue, *self.ready):
            place.clear()

    def set_aside(self, first: int, stop: int) -> None:
        """Ready tasks from `first` to before `stop` let others go first."""
        span = BitMap()
        span.add_range(first, stop)
        for ready in self.ready:
            self.aside |= ready & span
            ready -= span

    def merge_classes(self) -> None:
        """Waiting tasks belong to the first class from now on."""
        for ready in self.ready[1:]:
            self.ready[0] |= ready
            ready.clear()

    def running(self) -> BitMap:
        """Tasks that are out with pilots and have no result yet."""
        running = BitMap()
        running.add_range(0, self.next)
        for place in self.each():
            running -= place
        return running

    def each(self) -> Iterator[BitMap]:
        """All places but `live`."""
        yield from (self.done, self.failed, self.parked, self.doubt, self.aside, self.rescue)
        yield from self.ready

    def check(self, *, all_there: bool = True) -> None:
        """`all_there`: no task was dropped, as those of a cancelled bag are."""
        running = BitMap(task for task, attempts in self.live.items() if attempts)
        assert len(running) == len(self.live), "a live list is empty"
        union = BitMap()
        for place in self.each():
            assert not union & place, "a task is in two places"
            union |= place
        assert not running & (union - self.done - self.failed), "a running task is also waiting"
        if all_there:
            expected = BitMap()
            expected.add_range(0, self.next)
            lost = (union | running) ^ expected
            assert not lost, f"lost or invented: {lost}"
