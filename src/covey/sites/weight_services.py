"""Asks resource priority services what sites are worth, one thread for each service.

A service answers a GET request with a JSON object: `{"weights": {"alpha": 3, "beta": 0.5}}`, or
with these weights alone. The answer, its headers included, is bounded in size, number and time.
A redirection is not followed: a service must not make the server ask other addresses. Whatever goes
wrong is told to core, which then goes on with the last weights as long as they are fresh. Everybody
may read what is told, so it has no part of the address that may be secret.
"""

import io
import re
import socket
import threading
import time
import urllib.request
from collections.abc import Callable, Sequence
from functools import partial
from http.client import HTTPConnection, HTTPResponse, HTTPSConnection, InvalidURL
from typing import Any

import msgspec

from covey.core.record.broker_rules import WeightService
from covey.core.record.events import WeightsFailed, WeightsGiven
from covey.ports import Post

MOST_BYTES = 256 << 10  # of an answer, …
MOST_HEAD = 64 << 10  # … and of what comes before it
_MOST_REASON = 300  # characters


class _Answer(msgspec.Struct):
    weights: dict[str, float]


class WeightServices:
    """`fetch` gets the answer of a service; tests have their own."""

    def __init__(
        self,
        services: Sequence[WeightService],
        post: Post,
        fetch: Callable[[WeightService], bytes] | None = None,
    ) -> None:
        self._services = [service for service in services if service.url]
        self._post = post
        self._fetch = fetch or fetch_answer
        self._over = threading.Event()
        self._started = False

    def start(self) -> None:
        """The second call does nothing."""
        if self._started:
            return
        self._started = True
        for service in self._services:
            name = f"weights of {service.name}"
            threading.Thread(target=self._run, args=(service,), name=name, daemon=True).start()

    def close(self) -> None:
        """A question that is on its way is left alone: nobody waits for its answer."""
        self._over.set()

    def _run(self, service: WeightService) -> None:
        while not self._over.is_set():
            event = self._ask(service)
            if self._over.is_set():
                return
            self._post(event)
            self._over.wait(service.every_seconds)

    def _ask(self, service: WeightService) -> WeightsGiven | WeightsFailed:
        try:
            weights = read_weights(self._fetch(service))
        except InvalidURL:  # whose words are a part of the address
            return WeightsFailed(service.name, "it cannot be asked: its url is not valid")
        except Exception as error:  # of a program that is not ours anything may come
            words = str(error) or type(error).__name__
            reason = f"{_shown(service.url)} did not answer well: {words}"
            return WeightsFailed(service.name, reason[:_MOST_REASON])
        return WeightsGiven(None, service.name, weights, _shown(service.url))


def _shown(url: str) -> str:
    """The address without what may be secret in it: everybody who may use a site reads this."""
    scheme, _, rest = url.partition("://")
    host, slash, path = re.split(r"[?#]", rest, maxsplit=1)[0].partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{path}"


def fetch_answer(service: WeightService) -> bytes:
    """Raises OSError, also if the answer is not complete in time, or too large."""
    response_class = partial(_BoundedResponse, service.timeout_seconds)
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        _Handler(response_class),
        urllib.request.HTTPErrorProcessor(),
        urllib.request.HTTPDefaultErrorHandler(),
    ):
        opener.add_handler(handler)
    with opener.open(service.url, timeout=service.timeout_seconds) as response:
        content: bytes = response.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise OSError(f"the answer has more than {MOST_BYTES:,} bytes")
    return content


class _Handler(urllib.request.AbstractHTTPHandler):
    """http and https, with responses of this class."""

    def __init__(self, response_class: Callable[..., HTTPResponse]) -> None:
        super().__init__()
        self._response_class = response_class

    def http_open(self, request: urllib.request.Request) -> HTTPResponse:
        return self.do_open(partial(self._connection, HTTPConnection), request)

    def https_open(self, request: urllib.request.Request) -> HTTPResponse:
        return self.do_open(partial(self._connection, HTTPSConnection), request)

    def _connection(self, kind: type[HTTPConnection], *args: Any, **more: Any) -> HTTPConnection:
        connection = kind(*args, **more)
        connection.response_class = self._response_class  # type: ignore[assignment]
        return connection

    http_request = https_request = urllib.request.AbstractHTTPHandler.do_request_


class _BoundedResponse(HTTPResponse):
    """Complete after so many seconds, with all lines before its content, or not at all."""

    def __init__(self, seconds: float, sock: socket.socket, *args: Any, **more: Any) -> None:
        super().__init__(sock, *args, **more)
        self.fp.close()
        self.fp = io.BufferedReader(_BoundedStream(sock, seconds))


class _BoundedStream(io.RawIOBase):
    def __init__(self, sock: socket.socket, seconds: float) -> None:
        self._socket, self._seconds = sock, seconds
        self._stream = sock.makefile("rb", buffering=0)
        self._until = time.monotonic() + seconds
        self._left = MOST_BYTES + MOST_HEAD

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        seconds = self._until - time.monotonic()
        try:
            if seconds <= 0.0:
                raise TimeoutError
            self._socket.settimeout(seconds)
            count: int = self._stream.readinto(buffer) or 0
        except TimeoutError:
            words = f"the answer took more than {self._seconds:g} s"
            raise OSError(words) from None
        self._left -= count
        if self._left < 0:
            raise OSError(f"the answer has more than {MOST_BYTES:,} bytes")
        return count

    def close(self) -> None:
        self._stream.close()
        super().close()


def read_weights(content: bytes) -> dict[str, float]:
    """Raises msgspec.DecodeError."""
    try:
        return msgspec.json.decode(content, type=_Answer).weights
    except msgspec.ValidationError:
        return msgspec.json.decode(content, type=dict[str, float])
