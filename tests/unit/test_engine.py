"""The engine carries out, and starts over when the store fails."""

import pytest
from msgspec.structs import replace

from covey.core.record.actions import (
    LoadRows,
    Note,
    Problem,
    Refuse,
    Reply,
    SaveBag,
    Submitted,
    Write,
)
from covey.core.record.events import BagSubmitted, CancelRequested, Committed, Ticked
from covey.core.record.model import (
    BagId,
    BagRecord,
    BagSnapshot,
    BagStatus,
    JobRecord,
    RequestId,
    Settings,
    SiteSpec,
)
from covey.core.state import State
from covey.core.turn import Turn
from covey.engine import ERROR_SECONDS, REOPEN_SECONDS, Engine
from covey.ports import CommitFailed, OpenFailed, StoreOpened
from tests.unit.core.table import EMPTY, spec


class Tables:
    def __init__(self, calls: list[object]) -> None:
        self._calls = calls

    def load(self, load: LoadRows) -> None:
        self._calls.append(load)


class World:
    """Every other port at once; it only writes down what it is asked."""

    def __init__(self, most_errors: int = 0) -> None:
        self.calls: list[object] = []
        self.notes: list[Note] = []
        self.time = 50.0
        self.engine = Engine(
            store=self,
            tables=Tables(self.calls),
            replies=self,
            sites=self,
            clock=self,
            log=self,
            settings=Settings(),
            most_errors=most_errors,
        )
        self.engine.start()

    def now(self) -> float:
        return self.time

    def open(self) -> None:
        self.calls.append("open")

    def write(self, write: Write) -> None:
        self.calls.append(write)

    def load(self, request: RequestId, bag: BagId) -> None:
        self.calls.append(("load", request, bag))

    def reply(self, reply: Reply) -> None:
        self.calls.append(reply)

    def refuse(self, refuse: Refuse) -> None:
        self.calls.append(refuse)

    def unavailable(self, request: RequestId | None, reason: str) -> None:
        self.calls.append(("unavailable", request))

    def define(self, sites: tuple[SiteSpec, ...]) -> None:
        self.calls.append(("define", len(sites)))

    def submit(self, jobs: tuple[JobRecord, ...]) -> None:
        self.calls.append(jobs)

    def cancel(self, jobs: tuple[JobRecord, ...]) -> None:
        self.calls.append(jobs)

    def watch(self, jobs: tuple[JobRecord, ...]) -> None:
        self.calls.append(("watch", len(jobs)))

    def note(self, note: Note) -> None:
        self.notes.append(note)

    def take(self) -> list[object]:
        calls, self.calls = self.calls, []
        return calls


SUBMIT = BagSubmitted(RequestId(1), spec())


def test_nothing_is_served_before_the_store_is_open() -> None:
    world = World()
    world.engine.handle(SUBMIT)
    assert world.take() == ["open", ("unavailable", 1)]
    world.engine.handle(StoreOpened(EMPTY))
    assert world.take() == [("define", 0), ("watch", 0)]
    assert not world.engine.trouble


def test_a_failed_commit_forgets_what_was_decided_and_opens_again() -> None:
    world = World()
    world.engine.handle(StoreOpened(EMPTY))
    world.engine.handle(SUBMIT)
    assert [w.change for w in world.take() if isinstance(w, Write)][0:1] != []
    world.engine.handle(CommitFailed("disk full"))
    assert world.take() == [("unavailable", None)]
    assert "disk full" in world.engine.trouble
    world.engine.handle(Committed(2))
    world.engine.handle(Ticked())
    assert world.take() == [], "late news of the old life changes nothing"
    world.time += REOPEN_SECONDS
    world.engine.handle(Ticked())
    assert world.take() == ["open"]
    world.engine.handle(OpenFailed("still full"))
    world.time += REOPEN_SECONDS
    world.engine.handle(Ticked())
    assert world.take() == [("unavailable", None), "open"]
    world.engine.handle(StoreOpened(EMPTY))
    world.take()
    world.engine.handle(SUBMIT)
    writes = [call for call in world.take() if isinstance(call, Write)]
    assert isinstance(writes[0].change, SaveBag)
    assert writes[0].number == 1
    world.engine.handle(Committed(2))
    assert Reply(RequestId(1), Submitted(BagId(1), 4, False)) in world.take()


# -- when core has a bug ----------------------------------------------------------------------


def stored(number: int) -> BagSnapshot:
    record = BagRecord(id=BagId(number), spec=spec(), total=4, created=1.0)
    return BagSnapshot(bag=record, chunks=(), open_done=(), failed=(), tries={})


RECORD = replace(EMPTY, bags=(stored(1), stored(2)), next_bag=3)
CANCEL = CancelRequested(RequestId(7), BagId(1))


def broken(turn: Turn, request: RequestId, id_: BagId) -> None:
    bag = turn.state.bags[id_]
    bag.status = BagStatus.FINISHED  # half of what was to be done
    raise ValueError("a bug of ours")


def test_a_bug_of_core_is_the_trouble_of_one_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was half done is forgotten, the record is read again, and the bag is put away."""
    world = World(most_errors=3)
    world.engine.handle(StoreOpened(RECORD))
    world.take()
    monkeypatch.setattr("covey.core.bags.bag_requests.cancel", broken)
    world.engine.handle(CANCEL)
    refused, others, opened = world.take()
    assert isinstance(refused, Refuse)
    assert (refused.request, refused.problem) == (7, Problem.INTERNAL)
    assert (others, opened) == (("unavailable", None), "open")
    assert any("Traceback" in note.detail for note in world.notes)
    assert "a bug of ours" in world.engine.trouble
    world.engine.handle(StoreOpened(RECORD))
    assert world.engine.scheduler is not None
    bags = world.engine.scheduler.state.bags
    assert bags[BagId(1)].reason.startswith("quarantined: the server could not handle it: ")
    assert bags[BagId(2)].status is BagStatus.RUNNING
    monkeypatch.undo()
    world.take()
    world.engine.handle(CANCEL)
    world.engine.handle(Committed(world.engine.scheduler.state.journal.writes))
    assert any(isinstance(call, Reply) for call in world.take()), "it can be cancelled"


def test_too_many_of_them_in_a_minute_are_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(most_errors=2)
    monkeypatch.setattr("covey.core.bags.bag_requests.cancel", broken)
    for _ in range(4):
        world.engine.handle(StoreOpened(RECORD))
        world.engine.handle(CANCEL)
        world.time += ERROR_SECONDS / 2
    world.engine.handle(StoreOpened(RECORD))
    world.engine.handle(CANCEL)
    world.engine.handle(StoreOpened(RECORD))
    with pytest.raises(ValueError, match="a bug of ours"):
        world.engine.handle(CANCEL)


def test_a_bag_that_core_cannot_start_with_is_put_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as it is known which one it is."""

    def notice(state: State, now: float) -> None:
        for bag in state.bags.values():
            if bag.id == 2 and not bag.quarantine.reason:
                raise KeyError("a bug of ours")

    settings = Settings(sites=(SiteSpec(name="local", driver="local"),))
    world = World(most_errors=3)
    world.engine._settings = settings
    monkeypatch.setattr("covey.core.sites.demand.notice", notice)
    world.engine.handle(StoreOpened(RECORD))
    assert world.engine.scheduler is not None
    bags = world.engine.scheduler.state.bags
    assert "a bug of ours" in bags[BagId(2)].reason
    assert bags[BagId(1)].status is BagStatus.RUNNING
