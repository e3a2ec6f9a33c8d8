"""A server that answers what it is told, and remembers what it was asked."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple


class Asked(NamedTuple):
    method: str
    target: str
    token: str
    body: bytes
    range: str = ""


class Told(NamedTuple):
    """An answer; `hang_up` gives none, `torn` half of it."""

    value: Any = None
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    hang_up: bool = False
    torn: bool = False


def problem(status: int, detail: str, **headers: str) -> Told:
    document = {"type": "about:blank", "title": "No", "status": status, "detail": detail}
    return Told(document, status, tuple(headers.items()))


class FakeServer:
    """Answers in the given order, then the last one again and again."""

    def __init__(self) -> None:
        self.answers: list[Told] = [Told({})]
        self.asked: list[Asked] = []
        self.connections = 0
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                fake.connections += 1
                super().setup()

            def do_GET(self) -> None:
                self._answer()

            def do_POST(self) -> None:
                self._answer()

            def do_PUT(self) -> None:
                self._answer()

            def _answer(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                token = self.headers.get("Authorization", "").removeprefix("Bearer ")
                body, part = self.rfile.read(length), self.headers.get("Range", "")
                fake.asked.append(Asked(self.command, self.path, token, body, part))
                told = fake.answers.pop(0) if len(fake.answers) > 1 else fake.answers[0]
                if told.hang_up:
                    self.close_connection = True
                    return
                body = told.value if isinstance(told.value, bytes) else _encode(told.value)
                self.send_response(told.status)
                for name, value in told.headers:
                    self.send_header(name.replace("_", "-"), value)
                if not any(name.lower() == "content_type" for name, _ in told.headers):
                    kind = "octet-stream" if isinstance(told.value, bytes) else "json"
                    self.send_header("Content-Type", f"application/{kind}")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body[: len(body) // 2] if told.torn else body)
                self.close_connection |= told.torn

            def log_message(self, format: str, *args: Any) -> None:
                """Tests are quiet."""

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.http.server_address[1]}"


def _encode(value: Any) -> bytes:
    return json.dumps(value).encode()


@contextmanager
def serving() -> Iterator[FakeServer]:
    fake = FakeServer()
    thread = threading.Thread(target=fake.http.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield fake
    finally:
        fake.http.shutdown()
        fake.http.server_close()
        thread.join()
