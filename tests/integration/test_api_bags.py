"""Bags over HTTP: what people order reaches core as it was meant, and nonsense reaches nobody."""

import re
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from covey.client.client import Client
from covey.core.bags import estimate
from covey.core.errors import InvalidQuery, Refused, StoreFailed
from covey.core.record.events import (
    CancelRequested,
    CloseRequested,
    PauseRequested,
    PurgeRequested,
    ResumeRequested,
    RetryRequested,
    SegmentAppended,
)
from covey.core.record.model import BagId, BagSpec, Blob, Placed, Rows, Segment
from covey.core.state import Bag, State
from covey.core.values.space import Axis, Range, Values
from covey.wire import Estimate
from tests.integration.api_harness import API, Place, digest, open_place
from tests.unit.cli.builders import bag as view

BAGS = API + "/bags"
THREE = Axis("i", Range("0", "1", 3))


@pytest.fixture(scope="module")
def shared() -> Iterator[Place]:
    with open_place() as found:
        yield found


@pytest.fixture
def place(shared: Place) -> Place:
    """Each test finds an empty shelf."""
    shared.shelf.__init__()  # type: ignore[misc]
    shared.held.__init__()  # type: ignore[misc]
    return shared


@pytest.fixture
def client(place: Place) -> Iterator[Client]:
    found = place.client()
    yield found
    found.close()


def submit(client: Client, **fields: Any) -> int:
    return client.submit(BagSpec(**{"argv": ("true",), "space": THREE, **fields})).bag


def test_what_is_mounted_is_guarded_and_answers(place: Place) -> None:
    assert place.call("GET", f"{API}/files/ab").content == ["ab"]


def test_orders_reach_core(place: Place, client: Client) -> None:
    id_ = submit(client)
    assert client.pause(id_, "the licence server is down") >= 0
    assert place.last(PauseRequested).reason == "the licence server is down"
    seen = client.bag(id_)
    assert seen is not None
    assert (seen.status, seen.reason) == ("paused", "the licence server is down")
    client.resume(id_)
    assert place.last(ResumeRequested).bag == id_
    seen = client.bag(id_)
    assert seen is not None
    assert seen.status == "running"
    assert client.cancel(id_) == 3
    assert place.last(CancelRequested).bag == id_


def test_orders_without_a_body_mean_the_default(place: Place, client: Client) -> None:
    id_ = submit(client)
    for order in ("pause", "resume", "retry", "close"):
        found = place.call("POST", f"{BAGS}/{id_}/{order}")
        assert (found.status, found.kind) == (200, "application/json"), order
        assert found.content["count"] >= 0
    assert place.last(PauseRequested).reason == ""
    asked = place.last(RetryRequested)
    assert (asked.tasks, asked.more.memory, asked.more.time) == (None, 1.0, 1.0)
    client.cancel(id_)


@pytest.mark.parametrize(
    ("order", "body"),
    [
        ("pause", {"reason": 5}),
        ("pause", {"reason": "x" * 2000}),
        ("pause", {"why": "no such field"}),
        ("pause", []),
        ("pause", b"{"),
        ("retry", {"cause": ["misspelt"]}),
        ("retry", {"causes": "exit 1"}),
        ("retry", {"tasks": ["one"]}),
        ("retry", {"tasks": [-1]}),
        ("retry", {"tasks": [1.5]}),
        ("retry", {"tasks": [2**40]}),
        ("retry", {"memory": 0}),
        ("retry", {"memory": -1}),
        ("retry", {"time": "+50%"}),
        ("retry", {"time": 1e300}),
        ("retry", b"null"),
        ("append", b""),
        ("append", {}),
        ("append", {"segment": {}, "more": 1}),
        ("append", {"segment": {"space": {"type": "circle"}}}),
        ("append", {"segment": {"rows": {"digest": "x"}}}),
        ("purge", b""),
        ("purge?what=everything", b""),
        ("purge?what=", b""),
    ],
    ids=str,
)
def test_wrong_orders_are_refused(place: Place, client: Client, order: str, body: Any) -> None:
    id_ = submit(client)
    place.refuses(400, "POST", f"{BAGS}/{id_}/{order}", body)
    client.cancel(id_)


def test_orders_for_bags_that_are_not_there(place: Place) -> None:
    for bag in ("99999", "0", "-3"):
        for order in ("append", "close", "cancel", "pause", "resume", "retry", "purge?what=all"):
            body = {"segment": {}} if order == "append" else b""
            assert "no bag" in place.refuses(404, "POST", f"{BAGS}/{bag}/{order}", body)
    place.refuses(400, "POST", f"{BAGS}/one/cancel")
    place.refuses(405, "GET", f"{BAGS}/1/cancel")
    place.refuses(404, "POST", f"{BAGS}/1/dance")


def test_retry_of_causes_takes_the_records_tasks(place: Place, client: Client) -> None:
    id_ = submit(client)
    place.shelf.failed = [4, 7, 9]
    client.retry(id_, causes=["exit 1"], memory=1.5, time=2)
    assert place.last(RetryRequested).tasks == (4, 7, 9)
    assert (place.last(RetryRequested).more.memory, place.last(RetryRequested).more.time) == (
        1.5,
        2.0,
    )
    client.retry(id_, causes=["exit 1"], tasks=[9, 4, 100])
    assert place.last(RetryRequested).tasks == (4, 9)
    client.retry(id_, tasks=[2, 1])
    assert place.last(RetryRequested).tasks == (2, 1)
    assert [asked for asked in place.shelf.asked if asked[0] == "failed_tasks"] == [
        ("failed_tasks", id_, ("exit 1",))
    ] * 2
    client.cancel(id_)


def test_a_cause_that_there_is_not(place: Place, client: Client) -> None:
    id_ = submit(client)
    place.shelf.error = InvalidQuery("no failure has the cause 'exit 9'")
    words = place.refuses(400, "POST", f"{BAGS}/{id_}/retry", {"causes": ["exit 9"]})
    assert words == "no failure has the cause 'exit 9'"
    client.cancel(id_)


def test_a_record_in_trouble_is_no_fault_of_the_request(place: Place, client: Client) -> None:
    id_ = submit(client)
    place.shelf.error = StoreFailed("disk I/O error")
    assert "disk I/O error" in place.refuses(503, "GET", f"{BAGS}/{id_}/failures")
    client.cancel(id_)


def test_open_bags_grow_until_they_are_closed(place: Place, client: Client) -> None:
    id_ = submit(client, open=True)
    more = client.append(id_, Segment(space=Axis("i", Values((7, 8)))), key="again")
    assert (more.bag, more.total, more.known) == (id_, 5, False)
    again = client.append(id_, Segment(space=Axis("i", Values((7, 8)))), key="again")
    assert (again.total, again.known) == (5, True)
    seen = client.bag(id_)
    assert seen is not None
    assert (seen.open, seen.total) == (True, 5)
    client.append(id_, Segment(space=Axis("i", Values((9,)))))
    assert len(place.last(SegmentAppended).key) >= 16, "so that it may be repeated"
    with pytest.raises(Refused, match="parameters"):
        client.append(id_, Segment(space=Axis("j", Values((9,)))))
    client.close_bag(id_)
    assert place.last(CloseRequested).bag == id_
    with pytest.raises(Refused, match="closed"):
        client.append(id_, Segment(space=Axis("i", Values((7,)))))
    client.cancel(id_)


def test_files_must_be_here_first(place: Place, client: Client) -> None:
    place.held.complete = {digest("a")}
    spec = BagSpec(
        argv=("true",),
        inputs=(
            Placed(path="one", blob=Blob(digest("a"), 1)),
            Placed(path="two", blob=Blob(digest("b"), 1)),
            Placed(path="three", url="https://example.org/three", digest=digest("f")),
        ),
        manifest={"x.csv": Blob(digest("c"), 1)},
        rows=Rows(digest=digest("d"), form="csv", names=(), count=0),
    )
    with pytest.raises(Refused) as caught:
        client.submit(spec)
    assert caught.value.status == 409
    for letter in "bcd":
        assert digest(letter) in caught.value.detail
    for letter in "af":
        assert digest(letter) not in caught.value.detail


def test_a_long_list_of_missing_files_is_cut(place: Place, client: Client) -> None:
    manifest = {str(number): Blob(f"{number:064x}", 1) for number in range(50)}
    with pytest.raises(Refused, match="and 30 more") as caught:
        client.submit(BagSpec(argv=("true",), manifest=manifest))
    assert caught.value.detail.count("00000000") >= 20


def test_rows_are_described_before_they_are_taken(place: Place, client: Client) -> None:
    rows = Rows(digest=digest("e"), form="csv", names=(), count=0)
    place.held.complete = {digest("e")}
    with pytest.raises(Refused, match="row 3 of this csv") as caught:
        client.submit(BagSpec(argv=("true",), rows=rows))
    assert caught.value.status == 400
    known = Rows(digest=digest("e"), form="csv", names=("i",), count=1000)
    place.held.described[digest("e"), "csv"] = known
    assert client.submit(BagSpec(argv=("true",), rows=rows)).total == 1000
    id_ = submit(client, open=True)
    assert client.append(id_, Segment(rows=rows)).total == 1003
    assert place.last(SegmentAppended).segment.rows == known
    place.held.complete.clear()
    with pytest.raises(Refused, match="upload"):
        client.append(id_, Segment(rows=rows))
    client.cancel(id_)


def test_purging_is_for_core_to_decide(place: Place, client: Client) -> None:
    id_ = submit(client)
    words = place.refuses(400, "POST", f"{BAGS}/{id_}/purge?what=logs")
    assert str(id_) in words
    client.cancel(id_)
    client.purge(id_, "logs")
    asked = place.last(PurgeRequested)
    assert (asked.bag, asked.what) == (id_, "logs")


def test_a_live_bag_is_seen_with_its_classes_and_results(place: Place, client: Client) -> None:
    id_ = submit(client, labels={"paper": "two"}, notes="mind the gap", outputs=("*.out",))
    seen = client.bag(id_)
    assert seen is not None
    assert (seen.labels, seen.notes, seen.outputs) == ({"paper": "two"}, "mind the gap", ["*.out"])
    assert [(one.cores, one.ended) for one in seen.classes] == [(1, 0)]
    place.shelf.views[id_] = view(id=id_, result_names=["energy"])
    assert client.bags()[0].result_names == ["energy"]
    pilot = place.enrol()
    task = pilot.sync(want=1)["tasks"][0]
    running = client.running(id_)
    assert [(row.task, row.values, row.host) for row in running] == [(0, [0], "n1")]
    pilot.sync(ends=[[pilot.epoch, task[0], id_, task[2], "ok"]])
    seen = client.bag(id_)
    assert seen is not None
    assert (seen.done, seen.result_names) == (1, ["energy"])
    assert seen.classes[0].ended == 1
    place.state.bags[BagId(id_)].progress.ends = 0  # as if the server had started since
    assert client.bags()[0].classes[0].ended is None
    before = len(place.shelf.asked)
    client.bag(id_)
    assert len(place.shelf.asked) == before, "names are looked up once a second"
    client.cancel(id_)


def test_stragglers_and_the_estimate_are_cores(
    place: Place, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    id_ = submit(client)
    pilot = place.enrol(host="slow")
    pilot.sync(want=1)

    def late(state: State, bag: Bag, now: float, limit: int) -> list[estimate.Late]:
        (attempt,) = bag.places.live[0]
        return [estimate.Late(attempt, now - attempt.sent, 0.001)][:limit]

    found = estimate.Estimate(10.0, 8.0, 15.0)
    monkeypatch.setattr(estimate, "stragglers", late)
    monkeypatch.setattr(estimate, "estimate", lambda state, bag, now: found)
    seen = client.bag(id_)
    assert seen is not None
    assert seen.estimate == Estimate(likely=10.0, low=8.0, high=15.0)
    (one,) = seen.stragglers
    assert (one.task, one.values, one.host, one.typical_seconds) == (0, [0], "slow", 0.001)
    assert 0 <= one.seconds < 60
    client.cancel(id_)


def test_rows_that_are_not_here_yet_are_no_trouble(place: Place, client: Client) -> None:
    """After a restart a pilot may have tasks whose rows are still being read."""
    id_ = submit(client)
    place.enrol().sync(want=1)

    def forget() -> None:
        numbering = place.state.bags[BagId(id_)].numbering
        known = Rows(digest=digest("e"), form="csv", names=("i",), count=3)
        numbering.parts[0] = replace(numbering.parts[0], rows=known)
        numbering.plain = None

    place.do(forget)
    assert [row.values for row in client.running(id_)] == [[]]
    client.cancel(id_)


def test_waiting_for_a_bag_ends_with_news(place: Place, client: Client) -> None:
    id_ = submit(client)
    found: list[Any] = []

    def wait() -> None:
        other = place.client()
        found.append(other.bag(id_, wait_seconds=20, seen=0))
        other.close()

    waiting = threading.Thread(target=wait)
    waiting.start()
    pilot = place.enrol()
    task = pilot.sync(want=1)["tasks"][0]
    pilot.sync(ends=[[pilot.epoch, task[0], id_, task[2], "ok"]])
    waiting.join(10)
    assert found[0].done == 1
    client.cancel(id_)


def test_the_latest_bag(place: Place, client: Client) -> None:
    id_ = submit(client)
    seen = client.bag("latest")
    assert seen is not None
    assert seen.id == id_
    client.cancel("latest")
    assert place.last(CancelRequested).bag == id_


def test_stop_and_server(place: Place, client: Client) -> None:
    assert (client.stop(drain=True), client.stop()) == (7, 3)
    assert (client.server().state, client.server().store) == ("ready", "a shelf")


@pytest.mark.parametrize("field", ["outputs", "optional_outputs"])
@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("a[z-a]", "the range z-a is backwards"),
        ("../up", "leads out of the task's directory"),
        ("/etc/passwd", "leads out of the task's directory"),
        ("", "matches no file"),
        ("[[:alpha:]]", "is not supported"),
        ("x" * 2000, "has 2000 characters"),
        ("a\0b", "NUL"),
    ],
)
def test_a_pattern_that_cannot_be_is_refused(
    client: Client, field: str, pattern: str, words: str
) -> None:
    """Here, and not by each host that gets a task."""
    with pytest.raises(Refused, match=re.escape(words)) as caught:
        submit(client, **{field: ("good", pattern)})
    assert caught.value.status == 400
