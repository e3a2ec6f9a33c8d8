"""Results over HTTP: questions arrive as they were asked, long answers flow and can be broken
off."""

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from covey.client.client import Client
from covey.core.errors import InvalidQuery, Refused, ServerAway
from covey.core.record.model import BagId, BagSpec
from covey.core.values.space import Axis, Range
from covey.server.api.results import MOST_PAGE_BYTES
from covey.server.limits import pacing
from covey.server.limits.shares import EXPORTS
from covey.wire import FailureGroup, HostView, Output, ResultQuery, ReturnedFile
from tests.integration.api_harness import API, TOKEN, Place, open_place
from tests.unit.cli.builders import row

BAGS = API + "/bags"


@pytest.fixture
def place() -> Iterator[Place]:
    with open_place() as found:
        yield found


@pytest.fixture
def client(place: Place) -> Iterator[Client]:
    found = place.client()
    found.submit(BagSpec(argv=("true",)))
    yield found
    found.close()


def wait_until(holds: Any) -> None:
    until = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.005)


@pytest.mark.parametrize(
    "query",
    [
        ResultQuery(),
        ResultQuery(after=7, limit=10, by_row=True, failed_only=True),
        ResultQuery(where=("alpha >= 0.5", "host = n1 & co"), sort="-seconds", offset=30),
        ResultQuery(limit=0),
    ],
)
def test_a_question_arrives_as_it_was_asked(
    place: Place, client: Client, query: ResultQuery
) -> None:
    place.shelf.rows = [row(5, result={"energy": 1.5}, cause="", files=2)]
    assert place.engine.scheduler is not None
    place.engine.scheduler.state.bags[BagId(1)].progress.recorded = 1  # else nobody would look
    assert client.results(1, query) == place.shelf.rows
    assert b"".join(client.export(1, query, "jsonl")) == b""
    page = replace(query, most_bytes=MOST_PAGE_BYTES)
    assert place.shelf.asked == [("results", 1, page), ("export", 1, query, "jsonl")]


def test_pages_are_bounded_and_exports_are_not(place: Place, client: Client) -> None:
    client.results(1, ResultQuery(limit=10**6))
    list(client.export(1, ResultQuery(limit=10**6), "csv"))
    assert [asked[2].limit for asked in place.shelf.asked] == [10_000, 10**6]


@pytest.mark.parametrize(
    "query",
    ["order=up", "failed=yes", "format=xml", "after=x", "limit=nan", "offset=1e400", "wait=soon"],
)
def test_questions_that_make_no_sense(place: Place, client: Client, query: str) -> None:
    assert query.partition("=")[0] in place.refuses(400, "GET", f"{BAGS}/1/results?{query}")
    assert not place.shelf.asked


def test_what_the_record_refuses(place: Place, client: Client) -> None:
    place.shelf.error = InvalidQuery("there is no column 'alfa'; did you mean 'alpha'?")
    for form in ("json", "csv", "jsonl"):
        words = place.refuses(400, "GET", f"{BAGS}/1/results?where=alfa=1&format={form}")
        assert "alpha" in words
    with pytest.raises(Refused, match="alpha"):
        client.export(1, ResultQuery(where=("alfa = 1",)), "csv")


@pytest.mark.parametrize("path", ["results", "failures", "files", "live", "running", "tasks/0"])
def test_of_bags_that_are_not_there(place: Place, client: Client, path: str) -> None:
    assert "no bag 17" in place.refuses(404, "GET", f"{BAGS}/17/{path}")


def test_waiting_for_results(place: Place, client: Client) -> None:
    began = time.monotonic()
    assert client.results(1, ResultQuery(), wait_seconds=0.3) == []
    assert time.monotonic() - began >= 0.3

    def end_a_task() -> None:
        place.shelf.rows = [row(0)]
        place.enrol()  # which is written, as an end would be

    timer = threading.Timer(0.1, end_a_task)
    timer.start()
    assert len(client.results(1, ResultQuery(), wait_seconds=20)) == 1
    timer.join()
    client.cancel(1)
    place.shelf.rows = []
    assert client.results(1, ResultQuery(), wait_seconds=20) == [], "nothing comes of what is over"


def test_pages_are_gathered_until_nothing_is_left_to_send(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pacing, "PAGE_SECONDS", 3600.0)
    client, other = place.client(), place.client()
    client.submit(BagSpec(argv=("true",), space=Axis("i", Range("0", "1", 3))))
    pilot = place.enrol()
    (task,) = pilot.sync(want=1)["tasks"]
    pilot.sync(want=1, ends=[[pilot.epoch, task[0], 1, task[2], "ok"]])
    place.shelf.rows = [row(0)]
    follow = ResultQuery(after=0, by_row=True)
    assert client.results(1, follow, wait_seconds=20) == [row(0)], "the first one comes at once"

    pages: list[Any] = []
    thread = threading.Thread(target=lambda: pages.append(other.results(1, follow, 20)))
    thread.start()
    wait_until(lambda: place.do(lambda: place.api.open_requests) == 1)
    place.enrol()  # which is written, as an end would be
    place.do(lambda: None)
    assert [question[0] for question in place.shelf.asked].count("results") == 1
    pilot.sync(want=3)
    place.enrol()
    thread.join(10)
    assert pages == [[row(0)]]
    client.close()
    other.close()


def test_an_export_flows_in_parts(place: Place, client: Client) -> None:
    place.shelf.parts = lambda: (b"%d\n" % number * 1000 for number in range(500))
    whole = b"".join(b"%d\n" % number * 1000 for number in range(500))
    assert b"".join(client.export(1, ResultQuery(), "csv")) == whole
    found = place.call("GET", f"{BAGS}/1/results?format=jsonl")
    assert (found.kind, found.body) == ("application/jsonl", whole)
    assert place.call("GET", f"{BAGS}/1/results?format=csv").kind == "text/csv; charset=utf-8"
    assert client.bag(1) is not None, "the client's own connection was not in the way"


def test_an_export_that_breaks_is_no_whole_one(place: Place, client: Client) -> None:
    def broken() -> Iterator[bytes]:
        yield b"half"
        raise OSError("the disk is gone")

    place.shelf.parts = broken
    with pytest.raises(ServerAway, match="broke off"):
        list(client.export(1, ResultQuery(), "csv"))


class Endless:
    """Parts without end, and whether anybody still makes them."""

    def __init__(self) -> None:
        self.made = 0
        self.ended = threading.Event()

    def __call__(self) -> Iterator[bytes]:
        try:
            while True:
                self.made += 1
                yield b"x" * 100_000
        finally:
            self.ended.set()


def test_whoever_hangs_up_stops_the_work(place: Place, client: Client) -> None:
    endless = Endless()
    place.shelf.parts = endless
    parts = client.export(1, ResultQuery(), "csv")
    next(parts)
    wait_until(lambda: place.do(lambda: place.api.open_requests) == 1)
    parts.close()  # type: ignore[attr-defined]
    assert endless.ended.wait(10)
    wait_until(lambda: place.do(lambda: place.api.open_requests) == 0)


def test_the_work_is_never_far_ahead_of_the_reader(place: Place, client: Client) -> None:
    endless = Endless()
    place.shelf.parts = endless
    parts = client.export(1, ResultQuery(), "csv")
    made = -1
    while made != endless.made:  # until the sockets' buffers are full
        made = endless.made
        time.sleep(0.2)
    assert made < 200
    parts.close()  # type: ignore[attr-defined]
    assert endless.ended.wait(10)


def test_so_many_exports_and_no_more(place: Place, client: Client) -> None:
    endless = Endless()
    place.shelf.parts = endless
    parts = [client.export(1, ResultQuery(), "csv") for _ in range(EXPORTS.total)]
    words = place.refuses(429, "GET", f"{BAGS}/1/results?format=csv")
    assert words.startswith("exports at a time: you have 16")
    for one in parts:
        one.close()  # type: ignore[attr-defined]
    assert endless.ended.wait(10)
    place.shelf.parts = lambda: iter([b"all"])
    wait_until(lambda: place.call("GET", f"{BAGS}/1/results?format=csv").status == 200)


def test_failures_files_attempts_and_output(place: Place, client: Client) -> None:
    shelf = place.shelf
    shelf.groups = [
        FailureGroup(
            cause="exit 1: bad value N", outcome="failed", count=3, hosts=["n1"], host_count=1,
            tasks=[1, 2, 3], example=1, log="bad value 1",
        )
    ]  # fmt: skip
    assert client.failures(1, limit=20) == shelf.groups
    shelf.returned = [ReturnedFile(row=1, task=0, values=[0], path="a", size=3, data=b"\0\xff!")]
    assert client.files(1, after=5, limit=7) == shelf.returned
    shelf.rows = [row(0)]
    assert client.attempts(1, 0) == shelf.rows
    assert client.output(1, 0) is None
    shelf.printed = Output(task=0, attempt="1.1", outcome="ok", stdout="hello", stderr="")
    assert client.output(1, 0) == shelf.printed
    assert shelf.asked == [
        ("failures", 1, 20), ("files", 1, 5, 7), ("attempts", 1, 0), ("output", 1, 0),
        ("output", 1, 0),
    ]  # fmt: skip
    for path in ("failures?limit=x", "files?after=x", "files?limit=1e400", "tasks/x"):
        place.refuses(400, "GET", f"{BAGS}/1/{path}")
    client.files(1, limit=10**9)
    client.failures(1, limit=-5)
    assert shelf.asked[-2:] == [("files", 1, -1, 1000), ("failures", 1, 0)]


def test_hosts_are_the_records_with_what_goes_on_there(place: Place, client: Client) -> None:
    known: dict[str, Any] = {"site": "local", "first": 1.0, "heard": 2.0, "done": 3, "failed": 4}
    place.shelf.known_hosts = [
        HostView(host="n1", slots=1, pilots=0, running=0, tags={"gpu": "none"}, **known),
        HostView(host="n2", slots=8, pilots=0, running=0, tags={}, **known),
    ]
    pilot = place.enrol(slots=4, memory_mb=2000, gpus=2)
    place.enrol(slots=2)
    pilot.sync(want=1)
    first, second = client.hosts()
    assert (first.pilots, first.slots, first.running, first.tags) == (2, 6, 1, {})
    assert first.heard > 1000
    assert (second.pilots, second.slots, second.running, second.heard) == (0, 8, 0, 2.0)
    newest, oldest = client.pilots()
    assert (oldest.memory_mb, oldest.gpus, oldest.running) == (2000, 2, 1)
    assert (newest.memory_mb, newest.gpus) == (0, 0)


def test_pilots_reach_their_files_with_their_credential(place: Place) -> None:
    pilot = place.enrol()
    other = place.enrol()
    path = f"/pilot/v1/files/ab?pilot={pilot.id}"
    found = place.call("GET", path, None, pilot.credential)
    assert found.content == ["/pilot/v1/files/ab", pilot.id]
    for wrong in (TOKEN, other.credential, ""):
        place.refuses(401, "GET", path, None, wrong)
    for query in ("", "?pilot=", "?pilot=x", "?pilot=-1"):
        place.refuses(400, "GET", f"/pilot/v1/files/ab{query}", None, pilot.credential)
    place.refuses(401, "GET", "/pilot/v1/files/ab?pilot=999", None, pilot.credential)
    gone = pilot.credential.replace(f"{pilot.id}.", "999.", 1)
    place.refuses(410, "GET", "/pilot/v1/files/ab?pilot=999", None, gone)
