"""Stands in for the server's file endpoints, and can be told to misbehave."""

import contextlib
import hashlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TypeVar
from urllib.parse import parse_qs, urlsplit

from covey.pilot.files.transfers import Meter, Transfers
from covey.pilot.protocol.request_threads import Address, Identity


def digest_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


Kind = TypeVar("Kind", bound="Files")


class Files:
    """`files` are served; what is put arrives in `arrived`. `break_after`: so many bytes of the
    next answers are sent, then the connection breaks. `statuses` are given out first."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.arrived: dict[str, bytearray] = {}
        self.break_after: list[int] = []
        self.statuses: list[int] = []
        self.asked: list[tuple[str, str, str]] = []  # method, path, range or offset
        self.credentials: set[str] = set()
        self.gate = threading.Event()
        self.gate.set()
        self.address = ""

    def add(self, data: bytes) -> str:
        digest = digest_of(data)
        self.files[digest] = data
        return digest

    def courier(self) -> Transfers:
        identity = Identity()
        identity.pilot, identity.credential = 7, "credential"
        return Transfers(Address(self.address), identity, Meter())


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    world: Files

    def handle(self) -> None:
        with contextlib.suppress(ConnectionError):
            super().handle()

    def log_message(self, *words: object) -> None:
        pass

    def _answer(self, status: int, body: bytes, cut: int | None = None, digest: str = "") -> None:
        self.send_response(status)
        if digest:
            self.send_header("ETag", f'"{digest}"')
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Type", "application/json")
        with contextlib.suppress(ConnectionError):
            self.end_headers()
            self.wfile.write(body if cut is None else body[:cut])
        if cut is not None:
            self.close_connection = True

    def _refused(self) -> bool:
        self.world.gate.wait(10)
        self.world.credentials.add(self.headers.get("Authorization", ""))
        if not self.world.statuses:
            return False
        status = self.world.statuses.pop(0)
        self._answer(status, json.dumps({"type": "x", "detail": "told so"}).encode())
        return True

    def do_GET(self) -> None:
        found = self.headers.get("Range", "")
        self.world.asked.append(("GET", self.path, found))
        if self._refused():
            return
        digest = urlsplit(self.path).path.rpartition("/")[2]
        data = self.world.files.get(digest)
        if data is None:
            self._answer(404, b'{"type": "not-found", "detail": "not here"}')
            return
        start = int(found[6:-1]) if found else 0
        cut = self.world.break_after.pop(0) if self.world.break_after else None
        self._answer(206 if found else 200, data[start:], cut, digest)

    def do_PUT(self) -> None:
        url = urlsplit(self.path)
        query = parse_qs(url.query)
        offset, size = int(query["offset"][0]), int(query["size"][0])
        data = self.rfile.read(int(self.headers["Content-Length"]))
        self.world.asked.append(("PUT", url.path, str(offset)))
        if self._refused():
            return
        digest = url.path.rpartition("/")[2]
        kept = self.world.arrived.setdefault(digest, bytearray())
        if offset <= len(kept):
            kept += data[len(kept) - offset :]
        complete = len(kept) == size and digest_of(bytes(kept)) == digest
        self._answer(200, json.dumps({"size": len(kept), "complete": complete}).encode())


@contextlib.contextmanager
def serving(world: Kind, kind: type[Handler] = Handler) -> Iterator[Kind]:
    handler = type("Bound", (kind,), {"world": world})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    world.address = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield world
    finally:
        world.gate.set()
        server.shutdown()
        server.server_close()
        thread.join()
