"""The engine carries out, and starts over when the store fails."""

from covey.core.actions import LoadRows, Note, Refuse, Reply, SaveBag, Submitted, Write
from covey.core.events import BagSubmitted, Committed, Ticked
from covey.core.model import BagId, JobRecord, RequestId, Settings, SiteSpec
from covey.engine import REOPEN_SECONDS, Engine
from covey.ports import CommitFailed, OpenFailed, StoreOpened
from tests.unit.core.table import EMPTY, spec


class Tables:
    def __init__(self, calls: list[object]) -> None:
        self._calls = calls

    def load(self, load: LoadRows) -> None:
        self._calls.append(load)


class World:
    """Every other port at once; it only writes down what it is asked."""

    def __init__(self) -> None:
        self.calls: list[object] = []
        self.time = 50.0
        self.engine = Engine(
            store=self,
            tables=Tables(self.calls),
            replies=self,
            sites=self,
            clock=self,
            log=self,
            settings=Settings(),
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
        pass

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
