"""A server that takes files as the real one does, and stumbles when it is told to."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec

from covey.core.errors import BadFile
from covey.store.files.blobs import Blobs


class BlobServer:
    """`stumble` is asked before every PUT: "away" (no answer), "hang up" (the same, but it is
    written), "damage", or nothing."""

    def __init__(self, folder: Path) -> None:
        self.blobs = Blobs(folder)
        self.puts: list[tuple[str, int, int]] = []  # digest, offset, bytes
        self.asked: list[int] = []  # how many digests each time
        self.stumble: Any = lambda: ""
        self.connections = 0
        self._guard = threading.Lock()
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def setup(self) -> None:
                owner.connections += 1
                super().setup()

            def do_GET(self) -> None:
                self._answer(200, owner.blobs.state(self.path.split("/")[-2]))

            def do_POST(self) -> None:
                digests = json.loads(self._body())
                owner.asked.append(len(digests))
                self._answer(200, owner.blobs.missing(digests))

            def do_PUT(self) -> None:
                body = self._body()
                with owner._guard:
                    how = owner.stumble()
                url = urlsplit(self.path)
                query = parse_qs(url.query)
                offset, size = int(query["offset"][0]), int(query["size"][0])
                digest = url.path.split("/")[-1]
                owner.puts.append((digest, offset, len(body)))
                if how == "away":
                    self.close_connection = True
                    return
                if how == "damage":
                    body = bytes(len(body))
                try:
                    stored = owner.blobs.put_piece(digest, offset, size, body)
                except BadFile as error:
                    problem = {"type": "bad-file", "title": "No", "status": 422}
                    self._answer(422, {**problem, "detail": str(error)})
                    return
                if how == "hang up":
                    self.close_connection = True
                else:
                    self._answer(200, stored)

            def _body(self) -> bytes:
                return self.rfile.read(int(self.headers["Content-Length"]))

            def _answer(self, status: int, value: Any) -> None:
                body = msgspec.json.encode(value)
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                """Tests are quiet."""

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.http.server_address[1]}"


@contextmanager
def serving(folder: Path) -> Iterator[BlobServer]:
    server = BlobServer(folder)
    thread = threading.Thread(target=server.http.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.http.shutdown()
        server.http.server_close()
        thread.join()
