"""Services are asked, bounded, and what comes of it is told to core. The services are real."""

import json
import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count

import pytest

from covey.core.record.broker_rules import WeightService
from covey.core.record.events import WeightsFailed, WeightsGiven
from covey.ports import EngineEvent
from covey.sites import weight_services
from covey.sites.weight_services import WeightServices


@contextmanager
def serving(answer: Callable[[BaseHTTPRequestHandler], None]) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer(self)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/weights"
    finally:
        server.shutdown()
        server.server_close()


def saying(content: bytes, status: int = 200) -> Callable[[BaseHTTPRequestHandler], None]:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        handler.end_headers()
        handler.wfile.write(content)

    return answer


def dripping(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.end_headers()
    try:
        while True:
            handler.wfile.write(b" ")
            handler.wfile.flush()
            time.sleep(0.01)
    except OSError:
        pass


def asked(url: str, timeout: float = 5.0) -> EngineEvent:
    """The first thing that core is told."""
    told: queue.Queue[EngineEvent] = queue.Queue()
    service = WeightService(name="karnak", url=url, timeout_seconds=timeout, every_seconds=1e6)
    services = WeightServices((service,), told.put)
    services.start()
    services.start()
    try:
        return told.get(timeout=30)
    finally:
        services.close()


@pytest.mark.parametrize(
    "content", [{"weights": {"lake": 2, "wood": 0.5}}, {"lake": 2, "wood": 0.5}]
)
def test_what_a_service_says(content: object) -> None:
    with serving(saying(json.dumps(content).encode())) as url:
        assert asked(url) == WeightsGiven(None, "karnak", {"lake": 2.0, "wood": 0.5}, url)


@pytest.mark.parametrize(
    ("content", "status", "words"),
    [
        (b"{}", 500, "500"),
        (b"no JSON", 200, "JSON"),
        (b'{"lake": "much"}', 200, "Expected `float`"),
        (b"[" * 100_000, 200, "did not answer well"),
        (b" " * (weight_services.MOST_BYTES + 1), 200, "more than 262,144 bytes"),
    ],
)
def test_what_makes_no_sense_is_told(content: bytes, status: int, words: str) -> None:
    with serving(saying(content, status)) as url:
        event = asked(url)
    assert isinstance(event, WeightsFailed)
    assert words in event.reason
    assert len(event.reason) <= 300


def test_an_answer_that_never_ends_is_given_up() -> None:
    with serving(dripping) as url:
        event = asked(url, timeout=0.2)
    assert isinstance(event, WeightsFailed)
    assert "took more than 0.2 s" in event.reason


def dripping_headers(handler: BaseHTTPRequestHandler) -> None:
    with suppress(OSError):
        for number in count():
            handler.wfile.write(b"HTTP/1.1 200 OK\r\n" if not number else b"a")
            time.sleep(0.01)


def putting_off(handler: BaseHTTPRequestHandler) -> None:
    with suppress(OSError):
        while True:
            handler.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n" * 100)


@pytest.mark.parametrize(
    ("answer", "words"),
    [(dripping_headers, "took more than 0.2 s"), (putting_off, "has more than 262,144 bytes")],
)
def test_what_comes_before_an_answer_is_bounded_too(
    answer: Callable[[BaseHTTPRequestHandler], None], words: str
) -> None:
    with serving(answer) as url:
        event = asked(url, timeout=0.2 if answer is dripping_headers else 20.0)
    assert isinstance(event, WeightsFailed)
    assert words in event.reason


def test_a_service_cannot_make_the_server_ask_others() -> None:
    others: list[str] = []

    def listening(handler: BaseHTTPRequestHandler) -> None:
        others.append(handler.path)
        saying(b'{"lake": 1}')(handler)

    with serving(listening) as other:

        def redirecting(handler: BaseHTTPRequestHandler) -> None:
            handler.send_response(302)
            handler.send_header("Location", other)
            handler.end_headers()

        with serving(redirecting) as url:
            event = asked(url)
    assert isinstance(event, WeightsFailed)
    assert "302" in event.reason
    assert not others


@pytest.mark.parametrize(
    "place", ["http://ann:secret@{}/?key=secret", "http://{}/secret key", "http://{}/?key=secret"]
)
@pytest.mark.parametrize("content", [b'{"lake": 1}', b"no JSON"])
def test_what_is_secret_in_an_address_is_told_to_nobody(place: str, content: bytes) -> None:
    with serving(saying(content)) as url:
        event = asked(place.format(url.split("/")[2]))
    assert "secret" not in repr(event)


def test_nobody_is_there() -> None:
    with serving(saying(b"{}")) as url:
        pass
    assert isinstance(asked(url), WeightsFailed)


def test_it_is_asked_again_until_it_is_closed() -> None:
    told: queue.Queue[EngineEvent] = queue.Queue()
    service = WeightService(name="karnak", url="http://any", every_seconds=0.01)
    services = WeightServices((service,), told.put, lambda one: b'{"lake": 1}')
    services.start()
    assert [type(told.get(timeout=30)) for _ in range(3)] == [WeightsGiven] * 3
    services.close()


def test_a_service_without_an_address_is_not_asked() -> None:
    told: list[EngineEvent] = []
    services = WeightServices((WeightService(name="karnak"),), told.append)
    before = threading.active_count()
    services.start()
    assert threading.active_count() == before
    services.close()
    assert not told


def test_secrets_in_an_address_are_not_shown() -> None:
    told: queue.Queue[EngineEvent] = queue.Queue()
    url = "https://ann:pass@karnak.example.org:8443/weights?token=secret#x"
    answers = iter([b'{"lake": 1}'])

    def fetch(service: WeightService) -> bytes:
        return next(answers, b"nonsense")

    services = WeightServices(
        [WeightService(name="karnak", url=url, every_seconds=0.01)], told.put, fetch
    )
    services.start()
    given, failed = told.get(timeout=30), told.get(timeout=30)
    services.close()
    assert isinstance(given, WeightsGiven)
    assert given.source == "https://karnak.example.org:8443/weights"
    assert isinstance(failed, WeightsFailed)
    assert failed.reason.startswith("https://karnak.example.org:8443/weights did not answer well")
