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
from covey.core.model import BagSpec
from tests.unit.cli.builders import bag, row
from tests.unit.client.fake import FakeServer, Told, problem, serving


@pytest.fixture
def fake() -> Iterator[FakeServer]:
    with serving() as server:
        yield server


@pytest.fixture
def client(fake: FakeServer) -> Iterator[Client]:
    made = Client(fake.address, "secret", patience_seconds=5.0)
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


def test_every_call_asks_what_the_server_knows(fake: FakeServer, client: Client) -> None:
    fake.answers = [Told([msgspec.to_builtins(row())])]
    client.results(3, 5, 10, by_row=True, failed_only=True, wait_seconds=2)
    client.attempts(3, 17)
    fake.answers = [Told(msgspec.to_builtins(bag()))]
    client.bag(3, wait_seconds=1.5, seen=4)
    fake.answers = [Told([])]
    client.running(3, 7)
    client.pilots()
    fake.answers = [Told({"count": 2})]
    assert (client.cancel(3), client.retry(3), client.stop(drain=True)) == (2, 2, 2)
    assert [f"{asked.method} {asked.target}" for asked in fake.asked] == [
        "GET /api/v1/bags/3/results?after=5&limit=10&order=row&failed=1&wait=2",
        "GET /api/v1/bags/3/tasks/17",
        "GET /api/v1/bags/3?wait=1.5&seen=4",
        "GET /api/v1/bags/3/running?limit=7",
        "GET /api/v1/pilots",
        "POST /api/v1/bags/3/cancel",
        "POST /api/v1/bags/3/retry",
        "POST /api/v1/stop?drain=1",
    ]


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
        (Told(b"<html>oops", 405), Refused, "405 Method Not Allowed: <html>oops"),
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


def test_what_is_not_there_is_none(fake: FakeServer, client: Client) -> None:
    fake.answers = [problem(404, "no")]
    assert client.bag(9) is None
    assert client.output(9, 1) is None


def test_a_server_that_is_gone_has_stopped(fake: FakeServer, client: Client) -> None:
    fake.answers = [Told(hang_up=True)]
    assert client.stop() == 0
    assert client.connection.patience_seconds == 5.0


@pytest.mark.parametrize("address", ["localhost:8080", "ftp://x", "http://", "http://x:y", ""])
def test_bad_addresses_are_refused(address: str) -> None:
    with pytest.raises(BadConfig, match="write it like"):
        Client(address, "").server()
