"""A server that a person named and that has not answered yet: a wrong address is told at once, a
dead server soon."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from covey.client.client import Client, submission_key
from covey.client.http import FIRST_SECONDS
from covey.core.errors import InvalidBag, ServerAway, Unconfirmed
from covey.core.record.model import BagSpec
from covey.core.values.space import Axis, Values

PAGE = b"<!DOCTYPE html><html><body>Welcome to our wiki</body></html>"
SPEC = BagSpec(name="", argv=("true",), space=Axis("x", Values((1,))))
DEAD = "http://127.0.0.1:9"


@contextmanager
def answering(*statuses: int, kind: str = "text/html", body: bytes = PAGE) -> Iterator[str]:
    """A server that answers with these, the last of them for ever."""
    left = list(statuses)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.send_response(left.pop(0) if len(left) > 1 else left[0])
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            self.do_GET()

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("status", [200, 301, 404, 405, 500])
def test_an_address_that_is_not_coveys(status: int) -> None:
    began = time.monotonic()
    with answering(status) as address, pytest.raises(ServerAway) as raised:
        Client(address, "t", patience_seconds=60, known=False).bags()
    assert time.monotonic() - began < 30, "its patience was not used up"
    assert "there is no covey server at" in str(raised.value)
    assert "Check the address" in str(raised.value)
    assert "<" not in str(raised.value), "no page of HTML"


def test_a_proxy_whose_server_is_being_started_is_waited_for() -> None:
    with answering(502, 502, 200, kind="application/json", body=b"[]") as address:
        assert Client(address, "t", known=False).bags() == []


def test_what_a_proxy_says_is_not_shown_as_html() -> None:
    with answering(502) as address, pytest.raises(ServerAway) as raised:
        Client(address, "t", patience_seconds=0.1, known=False).bags()
    assert "502 Bad Gateway" in str(raised.value)
    assert "<" not in str(raised.value)


def test_a_dead_server_costs_little_and_the_next_step_is_told() -> None:
    began = time.monotonic()
    with pytest.raises(ServerAway) as raised:
        Client(DEAD, "t", patience_seconds=60, known=False).bags()
    assert time.monotonic() - began < FIRST_SECONDS + 20
    assert str(raised.value).startswith(f"cannot reach the server at {DEAD}: connection refused")
    assert "--server" in str(raised.value)


def test_who_listens_and_has_no_time_for_a_handshake_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("covey.client.http.FIRST_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as busy:
        address = f"https://127.0.0.1:{busy.getsockname()[1]}"
        began = time.monotonic()
        with pytest.raises(ServerAway, match="cannot reach the server"):
            Client(address, "t", patience_seconds=1.0, known=False).bags()
    assert time.monotonic() - began > 0.5, "it was waited for longer than a wrong address is"


def test_a_submission_without_an_answer_may_exist() -> None:
    with answering(502) as address, pytest.raises(Unconfirmed) as raised:
        Client(address, "t", patience_seconds=0.1, known=False).submit(SPEC)
    error = raised.value
    assert len(error.key) == 32
    assert f"--key {error.key}" in str(error)
    assert "may exist nevertheless" in str(error)


def test_a_submission_that_was_never_sent_does_not_exist() -> None:
    with pytest.raises(ServerAway) as raised:
        Client(DEAD, "t", patience_seconds=0.1, known=False).submit(SPEC)
    assert not isinstance(raised.value, Unconfirmed)


def test_the_key_of_a_submission() -> None:
    assert submission_key("0123456789abcdef") == "0123456789abcdef"
    assert submission_key(None) != submission_key(None)
    with pytest.raises(InvalidBag, match="at least 16"):
        submission_key("run1")
