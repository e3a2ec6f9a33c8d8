"""The Store port with a virtual disk: group commits that take time, fail, or die half-way.

The disk survives its server. A crash loses what was not applied. The most dangerous crash is right
after applying, before anybody was told; it is one of the faults.
"""

from collections import deque
from collections.abc import Callable
from random import Random

from msgspec import Struct

from covey.core.record.actions import Change, Write
from covey.core.record.events import BagLoaded, Committed
from covey.core.record.model import BagId, RequestId, Snapshot
from covey.lab.clock import Timeline
from covey.ports import CommitFailed, OpenFailed, Post, Record, StoreOpened


class Disk:
    """What stays when a server dies: the record, and how its machine behaves."""

    def __init__(self, record: Record, applied: Callable[[Change], None]) -> None:
        self.record = record
        self.failing_commits = 0
        self.failed_commits = 0  # so far
        self.failing_opens = 0
        self.slow_until = 0.0
        self.after_apply: Callable[[], None] | None = None  # a fault, once
        self.strikes_at: Callable[[Change], bool] = bool  # … at such a change
        self._applied = applied

    def open(self) -> Snapshot:
        return self.record.open()

    def apply(self, changes: list[Change]) -> None:
        self.record.apply(changes)
        for change in changes:
            self._applied(change)


class _Open(Struct, frozen=True):
    pass


class _Load(Struct, frozen=True):
    request: RequestId
    bag: BagId


_Item = Write | _Open | _Load


class VirtualStore:
    """The store of one server process; `kill` ends it with that process."""

    def __init__(self, disk: Disk, clock: Timeline, random: Random, post: Post) -> None:
        self._disk = disk
        self._clock = clock
        self._random = random
        self._post = post
        self._queue: deque[_Item] = deque()
        self._busy = False
        self._open = False
        self._alive = True

    def open(self) -> None:
        self._add(_Open())

    def write(self, write: Write) -> None:
        self._add(write)

    def load(self, request: RequestId, bag: BagId) -> None:
        self._add(_Load(request, bag))

    def slow_down(self, seconds: float) -> None:
        self._disk.slow_until = self._clock.time + seconds

    def kill(self) -> None:
        self._alive = False

    def _add(self, item: _Item) -> None:
        self._queue.append(item)
        if not self._busy:
            self._begin()

    def _begin(self) -> None:
        """Take what waits: all writes at the front, or one other item."""
        if not self._queue:
            self._busy = False
            return
        self._busy = True
        batch = [self._queue.popleft()]
        while self._queue and isinstance(batch[0], Write) and isinstance(self._queue[0], Write):
            batch.append(self._queue.popleft())
        self._clock.after(self._delay(), lambda: self._end(batch))

    def _end(self, batch: list[_Item]) -> None:
        if not self._alive:
            return
        match batch[0]:
            case Write():
                self._commit([item for item in batch if isinstance(item, Write)])
            case _Open():
                self._reopen()
            case _Load(request, bag):
                self._load(request, bag)

    def _commit(self, writes: list[Write]) -> None:
        if not self._open:
            self._begin()
            return
        if self._disk.failing_commits:
            self._disk.failing_commits -= 1
            self._disk.failed_commits += 1
            self._open = False
            self._answer(CommitFailed("the disk is full"))
            return
        self._disk.apply([write.change for write in writes])
        strike = self._disk.after_apply
        if strike is not None and any(self._disk.strikes_at(write.change) for write in writes):
            self._disk.after_apply = None
            strike()
        self._answer(Committed(writes[-1].number))

    def _reopen(self) -> None:
        if self._disk.failing_opens:
            self._disk.failing_opens -= 1
            self._open = False
            self._answer(OpenFailed("the disk is still full"))
        else:
            self._open = True
            self._answer(StoreOpened(self._disk.open()))

    def _load(self, request: RequestId, bag: BagId) -> None:
        if self._open:
            self._answer(BagLoaded(request, bag, self._disk.record.load(bag)))
        else:
            self._begin()

    def _answer(
        self, event: Committed | BagLoaded | CommitFailed | OpenFailed | StoreOpened
    ) -> None:
        def post() -> None:
            if self._alive:
                self._post(event)
                self._begin()

        self._clock.after(self._random.uniform(0.0, 0.003), post)

    def _delay(self) -> float:
        if self._clock.time < self._disk.slow_until:
            return self._random.uniform(0.2, 3.0)
        return self._random.uniform(0.001, 0.03)
