"""The Store port: one thread around any Record.

When the thread is idle, it commits everything in its queue at once: a single write does not wait,
and many writes share a commit. With many writes it first waits a moment, about as long as the same
number of writes takes to arrive, because a commit costs much more than the writes in it. Writes
become durable in the order in which they came. After a failed commit the thread reports that once,
and drops everything until the store is opened again; the engine drops it too. A change that cannot
be written (a number too large for SQLite) has the same effect. Any other error is a bug in covey:
it is passed to `crashed`, and the thread ends.

The rest of a purge is done in short pieces while nothing needs to be written, and for a fifth of
the time otherwise.
"""

import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from threading import Thread
from traceback import format_exception
from typing import TypeAlias

from msgspec import Struct

from covey.core.errors import StoreFailed
from covey.core.record.actions import Change, PurgeBag, RecordEnds, Write
from covey.core.record.events import BagLoaded, Committed
from covey.core.record.model import BagId, RequestId
from covey.core.record.suspects import brief
from covey.ports import CommitFailed, OpenFailed, Post, Record, StoreOpened

MOST_CHANGES = 2000  # in one commit
MOST_ENDS = 20_000
FLOOD = 4  # changes in a commit
UNWRITABLE = (ValueError, TypeError, ArithmeticError)  # SQLite refuses a number or a text
BUSY_REST, IDLE_REST = 4.0, 0.5  # pause after a piece of a purge, in times of its duration
EACH_SECONDS, LONGEST_SECONDS = 0.0001, 0.005  # wait for more, for each of the last writes


class _Open(Struct, frozen=True):
    pass


class _Load(Struct, frozen=True):
    request: RequestId
    bag: BagId


class _Stop(Struct, frozen=True):
    pass


_Item: TypeAlias = Write | _Open | _Load | _Stop


class Writer:
    """`post` and `crashed` are called in the writer's thread."""

    def __init__(self, record: Record, post: Post, crashed: Callable[[Exception], None]) -> None:
        self._record = record
        self._post = post
        self._crashed = crashed
        self._queue: SimpleQueue[_Item] = SimpleQueue()
        self._thread: Thread | None = None
        self._committing = 0
        self._came = 0  # changes in the last commit
        self._open = False
        self._tidy_at: float | None = None  # monotonic; None: nothing is left to tidy
        self._removing: frozenset[BagId] = frozenset()

    def open(self) -> None:
        self._queue.put(_Open())
        if self._thread is None:
            self._thread = Thread(target=self._run, name="covey-store", daemon=True)
            self._thread.start()

    def write(self, write: Write) -> None:
        self._queue.put(write)

    def load(self, request: RequestId, bag: BagId) -> None:
        self._queue.put(_Load(request, bag))

    def backlog(self) -> int:
        """About how many writes are not durable yet."""
        return self._queue.qsize() + self._committing

    def removing(self, bag: BagId) -> bool:
        """Whether the bag was purged, but a part of it is still there."""
        return bag in self._removing

    def close(self, timeout: float | None = None) -> bool:
        """Commit the queue and close the record. Returns whether that was done in time."""
        thread = self._thread
        if thread is None:
            return True
        self._queue.put(_Stop())
        thread.join(timeout)
        return not thread.is_alive()

    def _run(self) -> None:
        try:
            self._serve()
        except Exception as error:
            self._crashed(error)

    def _serve(self) -> None:
        item: _Item | None = None
        while True:
            if item is None:
                item = self._next()
            match item:
                case Write():
                    item = self._commit(item)
                    continue
                case _Open():
                    self._reopen()
                case _Load(request, bag):
                    self._read(request, bag)
                case _Stop():
                    break
            item = None
        try:
            self._record.close()
        except StoreFailed:
            pass  # all acknowledged writes are durable

    def _next(self) -> _Item:
        """Wait for an item, and tidy up meanwhile."""
        while self._tidy_at is not None:
            wait = self._tidy_at - time.monotonic()
            try:
                if wait > 0:
                    return self._queue.get(timeout=wait)
            except Empty:
                pass
            self._tidy()
        return self._queue.get()

    def _tidy(self) -> None:
        began, self._tidy_at = time.monotonic(), None
        if not self._open:
            return
        try:
            pause = self._record.tidy()
        except StoreFailed as error:
            self._fail(error)
            return
        self._removing = self._record.removing()
        if pause is not None:
            now = time.monotonic()
            rest = BUSY_REST if self._queue.qsize() else IDLE_REST
            self._tidy_at = now + max(pause, rest * (now - began))

    def _commit(self, first: Write) -> _Item | None:
        """Commit this write with all writes that follow it in the queue. Returns the item after
        them, if it was taken from the queue."""
        if self._came >= FLOOD:
            time.sleep(min(self._came * EACH_SECONDS, LONGEST_SECONDS))
        changes: list[Change] = [first.change]
        last, ends = first.number, _weight(first.change)
        following: _Item | None = None
        while len(changes) < MOST_CHANGES and ends < MOST_ENDS:
            try:
                item = self._queue.get_nowait()
            except Empty:
                break
            if not isinstance(item, Write):
                following = item
                break
            changes.append(item.change)
            last = item.number
            ends += _weight(item.change)
        self._came = len(changes)
        if self._open:
            self._committing = len(changes)
            try:
                self._record.apply(changes)
            except StoreFailed as error:
                self._fail(error)
            except UNWRITABLE as error:  # if one cannot be written, none is
                traceback = "".join(format_exception(error))
                self._fail(StoreFailed(f"internal error: {brief(error)}\n{traceback}"))
            else:
                self._applied(changes)
                self._post(Committed(last))
            finally:
                self._committing = 0
        return following

    def _applied(self, changes: list[Change]) -> None:
        if any(isinstance(change, PurgeBag) for change in changes):
            self._removing = self._record.removing()
            self._tidy_at = self._tidy_at or time.monotonic()

    def _reopen(self) -> None:
        try:
            snapshot = self._record.open()
        except StoreFailed as error:
            self._open = False
            self._post(OpenFailed(str(error)))
        else:
            self._open = True
            self._tidy_at = time.monotonic()
            self._post(StoreOpened(snapshot))

    def _read(self, request: RequestId, bag: BagId) -> None:
        if not self._open:
            return
        try:
            snapshot = self._record.load(bag)
        except StoreFailed as error:
            self._fail(error)
        else:
            self._post(BagLoaded(request, bag, snapshot))

    def _fail(self, error: StoreFailed) -> None:
        self._open = False
        self._removing = frozenset()
        self._post(CommitFailed(str(error)))


def _weight(change: Change) -> int:
    return len(change.ends) if isinstance(change, RecordEnds) else 0
