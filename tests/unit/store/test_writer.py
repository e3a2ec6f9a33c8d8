"""The writer's thread: order, group commit, failures, and what reaches whom."""

import threading
from collections.abc import Callable, Iterator
from queue import SimpleQueue

import pytest

from covey.core.errors import StoreFailed, StoreNewer
from covey.core.record.actions import Change, LeaseChunk, SaveBag, Write
from covey.core.record.events import BagLoaded, Committed
from covey.core.record.model import BagId, BagSnapshot, RequestId, Snapshot
from covey.ports import CommitFailed, EngineEvent, OpenFailed, StoreOpened
from covey.store import writer as writing
from covey.store.writer import Writer
from tests.memory_store.memory_record import MemoryRecord
from tests.unit.store.builders import BAG, bag

WAIT = 10.0


class Record(MemoryRecord):
    """A record that fails when told to, and can be held up inside a commit."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[int] = []
        self.failure: Exception | None = None
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Event()
        self.closed = False

    def open(self) -> Snapshot:
        self._fail()
        return super().open()

    def apply(self, changes: list[Change]) -> None:
        self.entered.set()
        assert self.gate.wait(WAIT)
        self._fail()
        super().apply(changes)
        self.batches.append(len(changes))

    def load(self, bag: BagId) -> BagSnapshot | None:
        self._fail()
        return super().load(bag)

    def close(self) -> None:
        self.closed = True

    def _fail(self) -> None:
        if self.failure is not None:
            raise self.failure


class Desk:
    """A writer, and all that it says."""

    def __init__(self) -> None:
        self.record = Record()
        self.events: SimpleQueue[EngineEvent] = SimpleQueue()
        self.crashes: SimpleQueue[Exception] = SimpleQueue()
        self.writer = Writer(self.record, self.events.put, self.crashes.put)
        self.number = 0

    def opened(self) -> None:
        self.writer.open()
        assert isinstance(self.heard(), StoreOpened)

    def write(self, change: Change | None = None) -> None:
        self.number += 1
        self.writer.write(Write(self.number, change or LeaseChunk(BAG, self.number, 0)))

    def heard(self) -> EngineEvent:
        return self.events.get(timeout=WAIT)

    def hold(self, write: Callable[[], None]) -> None:
        """Let one write get into its commit, and no further."""
        self.record.gate.clear()
        self.record.entered.clear()
        write()
        assert self.record.entered.wait(WAIT)


@pytest.fixture
def desk() -> Iterator[Desk]:
    made = Desk()
    yield made
    made.record.gate.set()
    assert made.writer.close(WAIT)
    assert made.events.empty(), f"unexpected: {made.events.get()}"
    assert made.crashes.empty(), f"unexpected: {made.crashes.get()}"


def test_what_is_written_is_committed(desk: Desk) -> None:
    desk.opened()
    desk.write(SaveBag(bag()))
    assert desk.heard() == Committed(1)
    assert desk.record.load(BAG) is not None
    assert desk.writer.backlog() == 0


def test_what_waits_shares_a_commit(desk: Desk) -> None:
    desk.opened()
    desk.hold(lambda: desk.write(SaveBag(bag())))
    for _ in range(100):
        desk.write()
    assert desk.writer.backlog() == 101
    desk.record.gate.set()
    assert [desk.heard(), desk.heard()] == [Committed(1), Committed(101)]
    assert desk.record.batches == [1, 100]


def test_a_commit_has_bounds(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "MOST_CHANGES", 40)
    desk.opened()
    desk.hold(lambda: desk.write(SaveBag(bag())))
    for _ in range(100):
        desk.write()
    desk.record.gate.set()
    assert [desk.heard() for _ in range(4)] == [Committed(n) for n in (1, 41, 81, 101)]


def test_loading_sees_earlier_writes_and_no_later_ones(desk: Desk) -> None:
    desk.opened()
    desk.hold(lambda: desk.write(SaveBag(bag())))
    desk.write()
    desk.writer.load(RequestId(5), BAG)
    desk.write()
    desk.writer.load(RequestId(6), BagId(99))
    desk.record.gate.set()
    assert [desk.heard(), desk.heard()] == [Committed(1), Committed(2)]
    loaded = desk.heard()
    assert isinstance(loaded, BagLoaded)
    assert loaded.snapshot is not None
    assert (loaded.request, len(loaded.snapshot.chunks)) == (5, 1)
    assert [desk.heard(), desk.heard()] == [Committed(3), BagLoaded(RequestId(6), BagId(99), None)]


def test_a_failed_commit_is_told_once_and_the_rest_forgotten(desk: Desk) -> None:
    desk.opened()
    desk.write(SaveBag(bag()))
    assert desk.heard() == Committed(1)
    desk.record.failure = StoreFailed("disk full")
    desk.hold(desk.write)
    desk.write()
    desk.writer.load(RequestId(1), BAG)
    desk.write()
    desk.record.gate.set()
    assert desk.heard() == CommitFailed("disk full")
    desk.writer.open()
    assert desk.heard() == OpenFailed("disk full")
    desk.write()
    desk.record.failure = None
    desk.opened()
    desk.number = 0
    desk.write()
    assert desk.heard() == Committed(1)
    loaded = desk.record.load(BAG)
    assert loaded is not None
    assert len(loaded.chunks) == 1


def test_a_failed_load_fails_as_a_commit_does(desk: Desk) -> None:
    desk.opened()
    desk.record.failure = StoreFailed("unreadable")
    desk.writer.load(RequestId(1), BAG)
    desk.write()
    assert desk.heard() == CommitFailed("unreadable")


def test_closing_commits_what_is_queued() -> None:
    desk = Desk()
    assert desk.writer.close(), "before it was ever opened"
    desk.opened()
    desk.hold(lambda: desk.write(SaveBag(bag())))
    desk.write()
    assert not desk.writer.close(0.01), "it still commits"
    desk.record.gate.set()
    assert desk.writer.close(WAIT)
    assert [desk.heard(), desk.heard()] == [Committed(1), Committed(2)]
    assert desk.record.closed


@pytest.mark.parametrize("failure", [AssertionError("bug"), StoreNewer("r.db", 9, 1)])
def test_whatever_else_goes_wrong_is_not_swallowed(failure: Exception) -> None:
    desk = Desk()
    desk.opened()
    desk.record.failure = failure
    desk.write(SaveBag(bag()))
    desk.write()
    assert desk.crashes.get(timeout=WAIT) is failure
    assert desk.writer.close(WAIT)
    assert desk.events.empty()


def test_a_record_that_cannot_be_ours_is_not_tried_again_and_again() -> None:
    desk = Desk()
    desk.record.failure = StoreNewer("r.db", 9, 1)
    desk.writer.open()
    assert desk.crashes.get(timeout=WAIT) is desk.record.failure
    assert desk.writer.close(WAIT)


class Untidy(Record):
    """What a purge leaves to do takes many pieces, each of which waits to be let through."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces = 0
        self.turn = threading.Semaphore(0)

    def tidy(self) -> float | None:
        assert self.turn.acquire(timeout=WAIT)
        self.pieces += 1
        return 0.0 if self.pieces < 5 else None


def test_writes_go_between_the_pieces_of_a_purge() -> None:
    record = Untidy()
    heard: SimpleQueue[EngineEvent] = SimpleQueue()
    writer = Writer(record, heard.put, lambda error: None)
    writer.open()
    assert isinstance(heard.get(timeout=WAIT), StoreOpened)
    writer.write(Write(1, SaveBag(bag())))
    record.turn.release()
    assert heard.get(timeout=WAIT) == Committed(1)
    assert record.pieces < 5, "there is more to tidy"
    for _ in range(5):
        record.turn.release()
    assert writer.close(WAIT)
