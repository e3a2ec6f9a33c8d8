"""One person's long questions do not keep others waiting, and do not last for ever."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from covey.core.errors import Refused, TookTooLong
from covey.core.record.model import BagId, BagSpec, Role
from covey.server.api.results import ResultCalls
from covey.server.limits import slow_questions
from covey.server.limits.shares import EXPORTS, QUESTIONS, QUESTIONS_WAITING
from covey.server.web import streaming
from covey.wire import ResultQuery, ResultRow
from tests.contract.keeping import KeptInSqlite
from tests.faults.world import World, open_world
from tests.integration.api_harness import API, Answer, Place, Shelf, open_place
from tests.unit.cli.builders import row
from tests.unit.store.builders import BAG, a_bag_of, end, ends


class Slow(Shelf):
    """A record in which a question with a comparison takes until it is stopped."""

    def __init__(self) -> None:
        super().__init__()
        self.stopped = threading.Event()
        self.at_once = self.most_at_once = 0
        self._lock = threading.Lock()

    def results(self, bag: int, query: ResultQuery) -> list[ResultRow]:
        if query.where:
            self.wait_for_stop()
        return [row(1)]

    def endless(self) -> Iterator[bytes]:
        self.wait_for_stop()
        yield b"never"

    def wait_for_stop(self) -> None:
        with self._lock:
            self.at_once += 1
            self.most_at_once = max(self.at_once, self.most_at_once)
        try:
            assert self.stopped.wait(60)
        finally:
            with self._lock:
                self.at_once -= 1
        raise TookTooLong("given up")

    def stop(self) -> None:
        self.stopped.set()


@pytest.fixture
def place() -> Iterator[Place]:
    with open_place() as found:
        found.shelf = Slow()
        yield found


def bag_of(place: Place, owner: str) -> tuple[str, int]:
    """A token, and the number of a bag of this owner."""
    token = place.token(Role.USER, owner)
    client = place.client(token)
    bag = BagId(client.submit(BagSpec(argv=("true",))).bag)
    client.close()
    place.do(lambda: setattr(place.state.bags[bag].progress, "recorded", 1))
    return token, bag


def wait_until(holds: Any) -> None:
    until = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.005)


def test_one_persons_questions_do_not_keep_others_waiting(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow: Any = place.shelf
    ann, anns = bag_of(place, "ann")
    bob, bobs = bag_of(place, "bob")
    path = f"{API}/bags/{anns}/results?where=task%20%3D%201"
    with ThreadPoolExecutor(50) as pool:
        asked = [pool.submit(place.call, "GET", path, None, ann) for _ in range(40)]
        wait_until(lambda: slow.at_once == QUESTIONS.total // 2)
        refused = [one for one in asked if not _waits(one)]
        for _ in range(10):  # all of these use the record
            answer = place.call("GET", f"{API}/bags/{bobs}/results", None, bob)
            assert answer.status == 200
            assert place.call("GET", f"{API}/bags", None, bob).status == 200
            assert place.call("GET", f"{API}/bags/{bobs}/failures", None, bob).status == 200
        assert slow.at_once == slow.most_at_once == QUESTIONS.total // 2
        slow.stop()
        answers: list[Answer] = [one.result(60) for one in asked]
    statuses = sorted(answer.status for answer in answers)
    share = QUESTIONS_WAITING.total // 2
    assert statuses == [400] * share + [429] * (40 - share)
    assert len(refused) <= 40 - share


def _waits(asked: Any) -> bool:
    return not asked.done()


def test_a_question_has_its_time(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slow_questions, "QUESTION_SECONDS", 0.2)
    ann, bag = bag_of(place, "ann")
    words = place.refuses(400, "GET", f"{API}/bags/{bag}/results?where=task%20%3D%201", None, ann)
    assert "took too long, so the server stopped it. Ask for less" in words


def test_an_export_that_finds_nothing_has_its_time(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streaming, "SEARCH_SECONDS", 0.2)
    slow: Any = place.shelf
    slow.parts = slow.endless
    ann, bag = bag_of(place, "ann")
    path = f"{API}/bags/{bag}/results?format=csv"
    assert "took too long" in place.refuses(400, "GET", path, None, ann)
    [results] = [one for one in place.api._handlers if isinstance(one, ResultCalls)]
    wait_until(lambda: not results._streams.open.used)


def test_one_person_has_a_part_of_all_exports(place: Place) -> None:
    slow: Any = place.shelf
    slow.parts = slow.endless
    ann, bag = bag_of(place, "ann")
    bob, bobs = bag_of(place, "bob")
    path = f"{API}/bags/{bag}/results?format=csv"
    with ThreadPoolExecutor(10) as pool:
        share = (EXPORTS.total - EXPORTS.reserve) // 2
        asked = [pool.submit(place.call, "GET", path, None, ann) for _ in range(share)]
        wait_until(lambda: slow.at_once == share)
        assert "exports at a time: you have" in place.refuses(429, "GET", path, None, ann)
        slow.parts = lambda: iter([b"bob's"])
        answer = place.call("GET", f"{API}/bags/{bobs}/results?format=csv", None, bob)
        assert answer.body == b"bob's"
        slow.stop()
        assert [one.result(60).status for one in asked] == [400] * share


def _slowly(*values: object) -> int:
    time.sleep(0.1)
    return 0


def test_sqlite_gives_up_when_it_is_told_to(tmp_path: Path) -> None:
    kept = KeptInSqlite(tmp_path / "r.db")
    try:
        done = [end(task, result='{"a":1}') for task in range(200)]
        kept.record.apply([*a_bag_of(200), ends(*done)])
        reader: Any = kept.reader
        reader.results(BAG, ResultQuery())  # connects
        reader._connection.create_function("instr", 2, _slowly)
        threading.Timer(0.3, reader.stop).start()
        began = time.monotonic()
        with pytest.raises(TookTooLong):
            reader.results(BAG, ResultQuery(where=("a ~ x",)))
        assert time.monotonic() - began < 10, "20 seconds without the stop"
        assert len(reader.results(BAG, ResultQuery(where=("a = 1",)))) == 200
    finally:
        kept.close()


@pytest.fixture(scope="module")
def served() -> Iterator[World]:
    with open_world() as found:
        found.serve("--slots", "1")
        yield found


@pytest.mark.parametrize(
    "where",
    [
        " " * 60_000,
        "a" + " " * 59_000 + "b",
        "state in " + "," * 20_000,
        "state in " + "'\"" * 10_000,
        "state = " + " and" * 14_000,
        "state = " + "9" * 55_000,
        "state = '" + "' " * 14_000 + "'",
        "=" * 20_000,
        "x" * 55_000 + " = 1",
    ],
    ids=lambda text: repr(text[:8]),
)
def test_no_text_of_a_question_holds_the_server(served: World, where: str) -> None:
    """1,800 spaces held it for 41 seconds: nobody else was answered meanwhile."""
    bag = served.submit("true", 1)
    served.wait_over(bag)
    client = served.client()
    longest: list[float] = []
    ended = threading.Event()

    def look() -> None:
        other = served.client()
        while not ended.is_set():
            began = time.monotonic()
            other.server()
            longest.append(time.monotonic() - began)
        other.close()

    watching = threading.Thread(target=look)
    watching.start()
    try:
        wait_until(lambda: longest)
        began = time.monotonic()
        with pytest.raises(Refused) as refused:
            client.results(bag, ResultQuery(where=(where,)))
        seconds = time.monotonic() - began
    finally:
        ended.set()
        watching.join()
        client.close()
    assert refused.value.status == 400
    assert len(str(refused.value)) < 2000
    assert seconds < 5, "it takes some milliseconds"
    assert max(longest) < 2
