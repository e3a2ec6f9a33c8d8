"""The chunks of task numbers that a bag has reserved (`lookahead`).

The rules: chunks follow each other without gaps. A chunk is open until all its tasks have results.
Numbers below `mark` are durably reserved, and their values known.
"""

from bisect import bisect_right

from msgspec import Struct, field
from pyroaring import BitMap


class Chunks(Struct, eq=False):
    mark: int = 0
    asked_mark: int = 0  # what `mark` will be, once the write is durable and the rows are here
    size: int = 0  # of the latest chunk
    starts: list[int] = field(default_factory=list)  # the first number of every chunk
    open: dict[int, int] = field(default_factory=dict)  # first -> stop
    unfinished: dict[int, int] = field(default_factory=dict)  # first -> tasks to go, of open ones
    awaited: dict[int, int] = field(default_factory=dict)  # those whose rows are being read
    opened: set[int] = field(default_factory=set)  # first numbers of those above the mark, early
    set_aside: dict[int, int] = field(default_factory=dict)  # those with tasks set aside
    sorted_at: dict[int, float] = field(default_factory=dict)  # first -> since when its tasks wait

    def first_of(self, task: int) -> int:
        """The first number of the task's chunk."""
        return self.starts[bisect_right(self.starts, task) - 1]

    def reserve(self, stop: int) -> int:
        """The next chunk ends before `stop`. Its first number."""
        first, self.asked_mark = self.asked_mark, stop
        self.starts.append(first)
        self.open[first] = stop
        self.unfinished[first] = stop - first
        return first

    def reopen(self, chosen: BitMap) -> list[tuple[int, int]]:
        """These tasks have no results any more: open their chunks again. Returns first and stop of
        those that were closed."""
        reopened = [(first, stop) for first, stop in self.closed() if _count(chosen, first, stop)]
        self.open.update(reopened)
        for first, stop in self.open.items():
            left = self.unfinished.get(first, 0)
            self.unfinished[first] = left + _count(chosen, first, stop)
        return reopened

    def open_up(self, first: int) -> None:
        """The tasks of this chunk may go out. Move the mark over it, and over the chunks behind it
        that waited for it."""
        self.opened.add(first)
        while self.mark in self.opened:
            self.opened.remove(self.mark)
            self.mark = self.open[self.mark]

    def count_down(self, task: int) -> tuple[int, int] | None:
        """The task has its result. If it was the last one of its chunk, the chunk is closed: its
        first and stop."""
        first = self.starts[bisect_right(self.starts, task) - 1]
        stop = self.open.get(first)
        if stop is None:
            return None
        self.unfinished[first] -= 1
        if self.unfinished[first]:
            return None
        del self.open[first], self.unfinished[first]
        for chunks in (self.awaited, self.set_aside, self.sorted_at):
            chunks.pop(first, None)
        return first, stop

    def closed(self) -> list[tuple[int, int]]:
        """First and stop of every chunk whose tasks all have results."""
        pairs = zip(self.starts, [*self.starts[1:], self.asked_mark], strict=False)
        return [(first, stop) for first, stop in pairs if first not in self.open]

    def check(self, settled: BitMap) -> None:
        """`settled`: tasks that have a result."""
        assert self.mark <= self.asked_mark
        assert self.starts == sorted(self.starts)
        assert all(first >= self.mark for first in self.opened)
        assert self.open.keys() == self.unfinished.keys()
        assert self.awaited.keys() <= self.open.keys(), "rows are awaited for a closed chunk"
        assert self.set_aside.keys() <= self.open.keys(), "a closed chunk is set aside"
        for first, stop in self.open.items():
            left = stop - first - _count(settled, first, stop)
            assert self.unfinished[first] == left, (
                f"chunk {first}: {self.unfinished[first]}, {left}"
            )
            assert left > 0


def _count(tasks: BitMap, first: int, stop: int) -> int:
    return tasks.range_cardinality(first, stop)
