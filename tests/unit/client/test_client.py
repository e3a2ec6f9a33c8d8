"""The client against a server that refuses, stumbles and comes back."""

import socket
import time
from collections.abc import Iterator

import msgspec
import pytest

from covey.client import http
from covey.client.client import Client
from covey.client.http import Endpoint
from covey.core.errors import BadConfig, NotFound, Refused, ServerAway
from covey.core.record.model import BagSpec, Segment
from covey.wire import ResultQuery, Stored
from tests.unit.cli.builders import bag, row
from tests.unit.client.fake import FakeServer, Told, problem, serving


@pytest.fixture
def fake() -> Iterator[FakeServer]:
    with serving() as server:
        yield server


@pytest.fixture
def client(fake: FakeServer) -> Iterator[Client]:
    made = Client(fake.address, "secret", patience_seconds=2.0)
    yield made
    made.close()


def closed_address() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}"


def test_requests_share_a_connection_and_show_the_token(fake: FakeServer, client: Client) -> None:
    fake.answers = [Told([msgspec.to_builtins(bag())]), Told(msgspec.to_builtins(bag(done=4)))]
    assert client.bags() == [bag()]
    assert client.bag("latest") == bag(done=4)
    assert fake.connections == 1
    assert {asked.token for asked in fake.asked} == {"secret"}
    assert [asked.target for asked in fake.asked] == ["/api/v1/bags", "/api/v1/bags/latest"]


def asked(fake: FakeServer) -> list[str]:
    return [f"{asked.method} {asked.target}" for asked in fake.asked]


def test_every_question_is_asked_as_the_server_knows_it(fake: FakeServer, client: Client) -> None:
    fake.answers = [Told([msgspec.to_builtins(row())])]
    query = ResultQuery(after=5, limit=10, by_row=True, failed_only=True)
    assert client.results(3, query, wait_seconds=2) == [row()]
    client.results(3, ResultQuery(where=("a >= 1", "b = x y"), sort="-a", offset=20))
    client.attempts(3, 17)
    fake.answers = [Told(msgspec.to_builtins(bag()))]
    client.bag(3, wait_seconds=1.5, seen=4)
    fake.answers = [Told([])]
    client.running(3, 7)
    client.pilots()
    client.hosts()
    client.failures(3, 5)
    client.files("latest", after=9, limit=2)
    fake.answers = [Told({"next": 8, "pieces": [[3, 2, 1, 1, 1, 0, "text"]]})]
    found = client.live_output(3, 2, after=7, wait_seconds=1.5)
    assert (found.next, found.pieces[0].text) == (8, "text")
    assert asked(fake) == [
        "GET /api/v1/bags/3/results?after=5&order=row&failed=1&limit=10&wait=2",
        "GET /api/v1/bags/3/results?after=-1&order=task&failed=0&offset=20"
        "&where=a+%3E%3D+1&where=b+%3D+x+y&sort=-a",
        "GET /api/v1/bags/3/tasks/17",
        "GET /api/v1/bags/3?wait=1.5&seen=4",
        "GET /api/v1/bags/3/running?limit=7",
        "GET /api/v1/pilots",
        "GET /api/v1/hosts",
        "GET /api/v1/bags/3/failures?limit=5",
        "GET /api/v1/bags/latest/files?after=9&limit=2",
        "GET /api/v1/bags/3/live?task=2&after=7&wait=1.5",
    ]


def test_every_order_is_given_as_the_server_knows_it(fake: FakeServer, client: Client) -> None:
    fake.answers = [Told({"count": 2})]
    counts = [
        client.cancel(3),
        client.retry(3),
        client.retry(3, causes=["exit 1"], tasks=(4, 5), memory=1.5, time=2.0),
        client.pause(3, "why"),
        client.resume(3),
        client.close_bag(3),
        client.purge(3, "logs"),
        client.stop(drain=True),
    ]
    assert counts == [2] * 8
    assert asked(fake) == [
        "POST /api/v1/bags/3/cancel",
        "POST /api/v1/bags/3/retry",
        "POST /api/v1/bags/3/retry",
        "POST /api/v1/bags/3/pause",
        "POST /api/v1/bags/3/resume",
        "POST /api/v1/bags/3/close",
        "POST /api/v1/bags/3/purge?what=logs",
        "POST /api/v1/stop?drain=1",
    ]
    bodies = [msgspec.json.decode(one.body) if one.body else None for one in fake.asked]
    usual = {"memory_mb": 0, "limit_seconds": 0.0, "done": False, "changes": None}
    assert bodies[1] == {"causes": [], "tasks": None, "memory": 1.0, "time": 1.0, **usual}
    again = {"causes": ["exit 1"], "tasks": [4, 5], "memory": 1.5, "time": 2.0}
    assert bodies[2] == {**again, **usual}
    assert bodies[3] == {"reason": "why"}


def test_files_are_asked_for_and_sent(fake: FakeServer, client: Client) -> None:
    fake.answers = [Told(["b"]), Told({"size": 5, "complete": False})]
    assert client.missing(["a", "b"]) == ["b"]
    assert client.file_state("b") == Stored(size=5, complete=False)
    assert client.put_piece("b", 5, 9, b"\0raw") == Stored(size=5, complete=False)
    assert asked(fake) == [
        "POST /api/v1/files/missing",
        "GET /api/v1/files/b/state",
        "PUT /api/v1/files/b?offset=5&size=9",
    ]
    assert [one.body for one in fake.asked] == [b'["a","b"]', b"", b"\0raw"]


def test_an_appended_segment_keeps_its_key(fake: FakeServer, client: Client) -> None:
    told = {"bag": 1, "total": 1, "known": True}
    fake.answers = [Told(hang_up=True), problem(503, "busy", Retry_After="0"), Told(told)]
    assert client.append(1, Segment()).known
    keys = {msgspec.json.decode(one.body)["key"] for one in fake.asked}
    assert len(fake.asked) == 3
    assert len(keys) == 1
    assert len(keys.pop()) >= 16


def test_a_long_answer_comes_over_a_line_of_its_own(fake: FakeServer, client: Client) -> None:
    whole = bytes(range(256)) * 4000
    fake.answers = [
        Told(hang_up=True),
        problem(503, "busy", Retry_After="0"),
        Told(whole),
        Told([]),
    ]
    parts = client.export(3, ResultQuery(sort="x"), "csv")
    assert fake.asked[-1].target.endswith("format=csv&after=-1&order=task&failed=0&sort=x")
    first = next(parts)
    assert client.bags() == [], "while the answer is still under way"
    assert first + b"".join(parts) == whole
    assert len(first) < len(whole)


def test_a_long_answer_that_is_refused_says_so_at_once(fake: FakeServer, client: Client) -> None:
    fake.answers = [problem(400, "there is no column 'alfa'")]
    with pytest.raises(Refused, match="alfa"):
        client.export(3, ResultQuery(), "csv")


def test_a_torn_answer_is_no_answer(fake: FakeServer, client: Client) -> None:
    fake.answers = [Told(b"x" * 1000, torn=True)]
    parts = client.export(3, ResultQuery(), "csv")
    with pytest.raises(ServerAway, match="broke off"):
        list(parts)


def test_a_file_is_read_on_after_a_break(fake: FakeServer, client: Client) -> None:
    fake.answers = [
        Told(b"first half, second", torn=True),
        problem(503, "starting", Retry_After="0"),
        Told(b"second half", 206),
    ]
    assert b"".join(client.read_file("ab")) == b"first halsecond half"
    assert [one.range for one in fake.asked] == ["", "bytes=9-", "bytes=9-"]


def test_a_file_is_never_glued_from_wrong_halves(fake: FakeServer, client: Client) -> None:
    fake.answers = [Told(b"first half, second", torn=True), Told(b"first half, second half")]
    with pytest.raises(ServerAway, match="cannot continue"):
        list(client.read_file("ab"))


def test_a_file_that_only_breaks_is_given_up(fake: FakeServer, client: Client) -> None:
    fake.answers = [Told(b"", 200, headers=(("X", "y"),)), Told(b"never", torn=True)]
    assert list(client.read_file("ab")) == []
    fake.answers = [Told(b"x", torn=True)]
    with pytest.raises(ServerAway, match="broke off"):
        list(client.read_file("ab"))


def test_a_submission_keeps_its_key_when_it_is_repeated(fake: FakeServer, client: Client) -> None:
    fake.answers = [
        Told(hang_up=True),
        problem(503, "the disk is full", Retry_After="0"),
        Told({"bag": 1, "total": 1, "known": True}, 201),
    ]
    assert client.submit(BagSpec(argv=("true",))).bag == 1
    keys = {msgspec.json.decode(asked.body, type=BagSpec).key for asked in fake.asked}
    assert len(fake.asked) == 3
    assert len(keys) == 1
    assert len(keys.pop()) >= 16


def test_a_given_key_is_kept(fake: FakeServer, client: Client) -> None:
    fake.answers = [Told({"bag": 1, "total": 1, "known": False}, 201)]
    client.submit(BagSpec(argv=("true",), key="mine"))
    assert b'"mine"' in fake.asked[0].body


def test_patience_ends_and_says_why(fake: FakeServer) -> None:
    fake.answers = [problem(503, "the disk is full", Retry_After="0")]
    client = Client(fake.address, "", patience_seconds=0.3)
    with pytest.raises(ServerAway, match="the disk is full"):
        client.bags()
    assert 2 <= len(fake.asked) <= 5


def test_a_proxy_that_stumbles_is_asked_again(fake: FakeServer, client: Client) -> None:
    fake.answers = [Told(b"<html>", 502), Told(b"Internal Server Error", 500), Told([])]
    assert client.bags() == []


def test_retry_after_is_respected(fake: FakeServer, client: Client) -> None:
    fake.answers = [problem(503, "busy", Retry_After="0.4"), Told([])]
    began = time.monotonic()
    client.bags()
    assert time.monotonic() - began >= 0.4


def test_a_server_that_is_not_there() -> None:
    client = Client(closed_address(), "", patience_seconds=0.2)
    with pytest.raises(ServerAway, match="connection refused"):
        client.server()


def test_a_server_that_never_answers(fake: FakeServer) -> None:
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        address = f"http://127.0.0.1:{mute.getsockname()[1]}"
        client = Client(address, "", patience_seconds=0.1, timeout_seconds=0.1)
        with pytest.raises(ServerAway, match="does not answer"):
            client.server()


def test_a_long_wait_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "NOTICEABLE_SECONDS", 0.1)
    told: list[str] = []
    client = Client(closed_address(), "", patience_seconds=0.6, tell=told.append)
    with pytest.raises(ServerAway):
        client.server()
    assert told == ["waiting for the server: connection refused"]


def test_a_server_that_moved_is_found(fake: FakeServer) -> None:
    fake.answers = [Told([])]
    client = Client(closed_address(), "old", find=lambda: Endpoint(fake.address, "new"))
    assert client.bags() == []
    assert fake.asked[0].token == "new"


def test_an_idle_connection_that_was_closed_is_no_trouble(fake: FakeServer, client: Client) -> None:
    fake.answers = [Told([], headers=(("Keep_Alive", "timeout=1"),)), Told(hang_up=True), Told([])]
    client.bags()
    began = time.monotonic()
    client.bags()
    assert time.monotonic() - began < http.FIRST_DELAY_SECONDS


@pytest.mark.parametrize(
    ("told", "error", "words"),
    [
        (problem(404, "there is no bag 9"), NotFound, "there is no bag 9"),
        (problem(422, "no tasks"), Refused, "no tasks"),
        (problem(401, "?"), Refused, "does not accept this token"),
        (problem(500, "a bug"), Refused, "a bug"),
        (Told(b"<html>oops", 413), Refused, "A proxy in front of the server has a lower limit"),
    ],
)
def test_refusals_are_final(
    fake: FakeServer, client: Client, told: Told, error: type[Exception], words: str
) -> None:
    fake.answers = [told]
    with pytest.raises(error) as caught:
        client.cancel(9)
    assert words in str(caught.value)
    assert len(fake.asked) == 1


@pytest.mark.parametrize(
    "told",
    [
        Told(b"<html>oops", 405),
        Told(b"<html>no such page", 404),
        Told([], 301),
        Told(b'[{"id": 1, "na'),
        Told({"login": "please"}),
    ],
)
def test_what_others_say_in_its_place_is_no_answer(
    fake: FakeServer, client: Client, told: Told
) -> None:
    fake.answers = [told, told, Told([])]
    assert client.bags() == []
    assert len(fake.asked) == 3


def test_what_is_not_there_is_none(fake: FakeServer, client: Client) -> None:
    fake.answers = [problem(404, "no")]
    assert client.bag(9) is None
    assert client.output(9, 1) is None


def test_a_server_that_is_gone_has_stopped(fake: FakeServer, client: Client) -> None:
    fake.answers = [Told(hang_up=True)]
    assert client.stop() == 0
    assert client.connection.patience_seconds == 2.0


@pytest.mark.parametrize("address", ["localhost:8080", "ftp://x", "http://", "http://x:y", ""])
def test_bad_addresses_are_refused(address: str) -> None:
    with pytest.raises(BadConfig, match="write it like"):
        Client(address, "").server()
