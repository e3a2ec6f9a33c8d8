"""Syncs that go the short way, and all else that comes on the same connection."""

import asyncio
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any, NamedTuple

import pytest
import uvicorn

from covey.server.limits.shares import Shares, Supply, Who
from covey.server.web.problems import HttpProblem
from covey.server.web.quick_syncs import Headers, Respond, Response, SyncCaller, protocol_for
from covey.server.web.refusals import Refusals

SYNC = "/pilot/v1/sync"
LONG = 16 << 20  # bytes: more than the system keeps for a connection


class Known(NamedTuple):
    who: Who


class Desk:
    """A server; whatever says `park` waits until somebody answers, all else hears its own body."""

    def __init__(self) -> None:
        self.budget = Shares(Supply("bytes", 3 << 20, part=1.0))
        self.refusals = Refusals()
        self.unread = Shares(Supply("unread bytes", 2 * LONG, part=1.0))
        self.parked: list[Respond] = []
        self.gone: list[bytes] = []
        self.long_way: list[str] = []
        self.loop = asyncio.new_event_loop()
        self.socket = socket.create_server(("127.0.0.1", 0))
        protocol = protocol_for(self, self.budget, self.refusals, self.unread)
        config = uvicorn.Config(
            self.app, interface="asgi3", http=protocol, lifespan="off", log_config=None
        )
        self.http = uvicorn.Server(config)
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        self.loop.run_until_complete(self.http.serve([self.socket]))

    def let_in(self, headers: Headers) -> SyncCaller:
        if (b"authorization", b"Bearer wrong") in headers:
            raise HttpProblem(401, "unauthorized", "who are you?")
        return Known(Who("pilots of alice"))

    def take_sync(self, caller: Any, body: bytes, respond: Respond) -> Callable[[], None]:
        if body == b"bad":
            raise HttpProblem(400, "invalid", "this is bad", 1.25)
        if body == b"bug":
            raise KeyError(body)
        if body.startswith(b"park"):
            self.parked.append(respond)
        elif body == b"long":
            respond(Response(200, b"x" * LONG))
        elif body == b"new":
            respond(Response(200, b"{}", ((b"x-covey-credential", b"new"),)))
        else:
            respond(Response(200, body))
        return lambda: self.gone.append(body)

    async def app(self, scope: Any, receive: Any, send: Any) -> None:
        size, more = 0, True
        while more:
            message = await receive()
            size, more = size + len(message.get("body", b"")), message.get("more_body", False)
        self.long_way.append(f"{scope['method']} {scope['path']} {size}")
        assert dict(scope["headers"])[b"host"] == b"x"
        body = json.dumps({"long": size}).encode()
        headers = [(b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def answer(self, body: bytes) -> None:
        self.loop.call_soon_threadsafe(self.parked.pop(0), Response(200, body))

    def wait(self, true: Callable[[], bool]) -> None:
        for _ in range(500):
            if true():
                return
            threading.Event().wait(0.01)
        raise AssertionError("it did not happen")

    def look(self, later: float) -> None:
        """As the server does now and then."""

        async def looking() -> None:
            for one in list(self.http.server_state.connections):
                one.look(self.loop.time() + later)  # type: ignore[union-attr]

        asyncio.run_coroutine_threadsafe(looking(), self.loop).result(10)

    def stop(self) -> None:
        self.http.should_exit = True
        self.thread.join(10)
        self.loop.close()


class Line:
    def __init__(self, desk: Desk) -> None:
        self.socket = socket.create_connection(desk.socket.getsockname(), 10)
        self.buffer = b""

    def send(self, body: bytes, path: str = SYNC, method: str = "POST", extra: str = "") -> None:
        self.socket.sendall(request(body, path, method, extra))

    def hear(self) -> tuple[int, bytes, bytes]:
        """Status, head, body; nothing: it was closed."""
        while b"\r\n\r\n" not in self.buffer:
            self._more()
        head, _, rest = self.buffer.partition(b"\r\n\r\n")
        size = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        while len(rest) < size:
            self._more()
            rest = self.buffer.partition(b"\r\n\r\n")[2]
        self.buffer = rest[size:]
        return int(head.split()[1]), head, rest[:size]

    def _more(self) -> None:
        got = self.socket.recv(1 << 16)
        if not got:
            raise EOFError(self.buffer)
        self.buffer += got

    def is_closed(self) -> bool:
        try:
            return not self.buffer and self.socket.recv(100) == b""
        except ConnectionResetError:  # it had not read all that we sent
            return True

    def ask(self, body: bytes, path: str = SYNC, method: str = "POST") -> tuple[int, bytes]:
        self.send(body, path, method)
        status, _, answer = self.hear()
        return status, answer


def request(body: bytes, path: str = SYNC, method: str = "POST", extra: str = "") -> bytes:
    head = f"{method} {path} HTTP/1.1\r\nHost: x\r\n{extra}Content-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


@pytest.fixture
def desk() -> Iterator[Desk]:
    found = Desk()
    yield found
    found.stop()


@pytest.fixture
def line(desk: Desk) -> Iterator[Line]:
    found = Line(desk)
    yield found
    found.socket.close()


def test_syncs_and_others_take_turns_on_one_connection(desk: Desk, line: Line) -> None:
    for _ in range(3):
        assert line.ask(b"a sync") == (200, b"a sync")
        assert line.ask(b"not one", "/pilot/v1/enrol") == (200, b'{"long": 7}')
        assert line.ask(b"", SYNC, "PUT") == (200, b'{"long": 0}')
        assert line.ask(b"x", SYNC + "?a=1") == (200, b'{"long": 1}')
    assert len(desk.long_way) == 9
    assert desk.budget.used == 0


def test_a_body_that_comes_in_pieces(line: Line) -> None:
    for one in request(b"in pieces"):
        line.socket.sendall(bytes([one]))
    assert line.hear()[2] == b"in pieces"


def test_one_that_is_parked_is_answered_later(desk: Desk, line: Line) -> None:
    line.send(b"park")
    desk.wait(lambda: len(desk.parked) == 1)
    assert desk.budget.used == 0, "its body has been read"
    desk.answer(b"late")
    assert line.hear()[2] == b"late"
    assert desk.budget.used == 0
    assert desk.gone == []


def test_one_that_hangs_up_is_noticed_at_once(desk: Desk, line: Line) -> None:
    line.send(b"park 1")
    desk.wait(lambda: len(desk.parked) == 1)
    line.socket.close()
    desk.wait(lambda: desk.gone == [b"park 1"])
    assert desk.budget.used == 0
    desk.answer(b"to nobody")


def test_problems_are_told(line: Line) -> None:
    line.send(b"bad")
    status, head, body = line.hear()
    assert status == 400
    assert b"application/problem+json" in head
    assert b"retry-after: 1.25" in head
    assert json.loads(body)["detail"] == "this is bad"
    line.send(b"new")
    assert b"x-covey-credential: new" in line.hear()[1]
    line.send(b"bug")
    assert line.hear()[0] == 500
    assert line.is_closed()


@pytest.mark.parametrize("first", [b"at once", b"park"])
@pytest.mark.parametrize("path", [SYNC, "/other"])
def test_a_request_behind_a_sync(desk: Desk, line: Line, first: bytes, path: str) -> None:
    """Either it is answered in its turn, or the connection is closed after the sync's answer."""
    line.socket.sendall(request(first) + request(b"second", path))
    if first == b"park":
        desk.wait(lambda: len(desk.parked) == 1)
        desk.answer(b"first")
        assert line.hear()[2] == b"first"
        assert line.is_closed()
    else:
        assert line.hear()[2] == first
        assert line.hear()[2] in (b"second", b'{"long": 6}')


def test_garbage_behind_a_sync(desk: Desk, line: Line) -> None:
    line.send(b"park")
    desk.wait(lambda: len(desk.parked) == 1)
    line.socket.sendall(b"garbage\r\n\r\n" * 5)
    threading.Event().wait(0.2)
    desk.answer(b"first")
    status, _, body = line.hear()
    assert (status, body) == (200, b"first")
    assert line.is_closed()


def test_one_that_wants_to_close(line: Line) -> None:
    line.send(b"bye", extra="Connection: close\r\n")
    _, head, body = line.hear()
    assert b"connection: close" in head
    assert body == b"bye"
    assert line.is_closed()


def test_who_waits_to_be_asked_goes_the_long_way(desk: Desk, line: Line) -> None:
    line.send(b"special", extra="Expect: 100-continue\r\n")
    while b"long" not in line.buffer:
        line._more()
    assert desk.long_way == ["POST /pilot/v1/sync 7"]


def test_large_and_chunked_ones_go_the_long_way(desk: Desk, line: Line) -> None:
    size = 2 << 20
    assert line.ask(b"x" * size) == (200, b'{"long": %d}' % size)
    chunked = "POST /pilot/v1/sync HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    line.socket.sendall(chunked.encode() + b"5\r\nabcde\r\n0\r\n\r\n")
    assert line.hear()[2] == b'{"long": 5}'


def test_what_is_only_promised_takes_no_room(desk: Desk) -> None:
    lines = [Line(desk) for _ in range(4)]
    for one in lines[:3]:
        one.socket.sendall(request(b"x" * (1 << 20))[: -(1 << 20)])
    assert lines[3].ask(b"x" * (1 << 19))[0] == 200
    for one in lines:
        one.socket.close()


def taken(desk: Desk, size: int) -> bool:
    return desk.budget.used == size


def test_bodies_have_a_bound_together(desk: Desk) -> None:
    lines = [Line(desk) for _ in range(4)]
    for count, one in enumerate(lines):
        whole = request(b"x" * (1 << 20))
        one.socket.sendall(whole[:-1])
        if count < 3:
            desk.wait(partial(taken, desk, (count + 1) * ((1 << 20) - 1)))
    status, head, _ = lines[3].hear()
    assert status == 503
    assert b"retry-after" in head
    assert lines[3].is_closed()
    for one in lines[:3]:
        one.socket.sendall(b"x")
        assert one.hear()[0] == 200
    desk.wait(lambda: desk.budget.used == 0)
    lines[0].socket.sendall(request(b"x" * 1000)[:-1])
    desk.wait(lambda: desk.budget.used == 999)
    for one in lines:
        one.socket.close()
    desk.wait(lambda: desk.budget.used == 0)


def test_a_connection_that_rests_for_long_is_closed(desk: Desk, line: Line) -> None:
    other = Line(desk)
    assert line.ask(b"one") == (200, b"one")
    other.send(b"park")
    desk.wait(lambda: len(desk.parked) == 1)
    desk.look(1.0)
    assert line.ask(b"two") == (200, b"two")
    desk.look(100.0)
    assert line.is_closed()
    desk.answer(b"still here")
    assert other.hear()[2] == b"still here"
    other.socket.close()


def test_a_server_that_ends_answers_first(desk: Desk, line: Line) -> None:
    line.send(b"park")
    desk.wait(lambda: len(desk.parked) == 1)
    desk.http.should_exit = True
    threading.Event().wait(0.3)
    desk.answer(b"last")
    assert line.hear()[2] == b"last"
    assert line.is_closed()


def test_nothing_of_a_strangers_body_is_kept(desk: Desk) -> None:
    """It is read to its end, so that a pilot hears why it was refused; the connection stays."""
    line = Line(desk)
    whole = request(b"x" * (1 << 20), extra="Authorization: Bearer wrong\r\n")
    line.socket.sendall(whole[:-1])
    threading.Event().wait(0.1)
    assert desk.budget.used == 0
    line.socket.sendall(whole[-1:])
    status, _, body = line.hear()
    assert (status, b"who are you?" in body) == (401, True)
    assert line.ask(b"one") == (200, b"one")
    assert [(one.owner, one.kind) for one in desk.refusals.recent()] == [("", "unauthorized")]
    line.socket.close()


def test_who_asks_again_before_reading_a_long_answer_is_ended(desk: Desk, line: Line) -> None:
    line.send(b"long")
    desk.wait(lambda: bool(desk.unread.used))
    line.send(b"long")
    desk.wait(lambda: not desk.http.server_state.connections)
    assert not desk.unread.used


def test_long_answers_that_nobody_reads_take_so_much_memory_and_no_more(desk: Desk) -> None:
    with ExitStack() as stack:
        lines = [Line(desk) for _ in range(6)]
        for line in lines:
            stack.callback(line.socket.close)
            line.send(b"long")
        connections = desk.http.server_state.connections
        desk.wait(lambda: desk.unread.refused > 0 and desk.unread.refused + len(connections) == 6)
        assert LONG // 2 < desk.unread.used <= 2 * LONG
        kept = [line for line in lines if not _is_reset(line)]
        assert kept[0].hear()[2] == b"x" * LONG, "whoever reads gets all of it"
    desk.wait(lambda: not desk.unread.used)


def _is_reset(line: Line) -> bool:
    try:
        return not line.socket.recv(1, socket.MSG_PEEK)
    except ConnectionResetError:
        return True
