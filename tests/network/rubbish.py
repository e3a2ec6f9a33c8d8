"""Something that stands where the server should be. It passes on what comes, breaks connections
in the middle, or answers in the server's place whatever people have met there."""

import contextlib
import random
import select
import socket
import struct
import threading
from collections.abc import Iterator

from tests.network.between import Between

ENDLESS = "something endless"
PART = bytes(1 << 16)


def answer(status: str, body: bytes, kind: str = "application/json", *more: str) -> bytes:
    head = [f"HTTP/1.1 {status}", f"Content-Type: {kind}", f"Content-Length: {len(body)}", *more]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


PAGE = b"<html>Please log in to the guest network</html>"
# What an answer to a sync begins with, and then some.
HALF = b'{"epoch":1,"number":1,"tasks":[[1,'

ANSWERS = {
    "a page": answer("200 OK", PAGE, "text/html"),
    "a page that says it is JSON": answer("200 OK", PAGE),
    "JSON that says it is text": answer("200 OK", HALF + b"]]}", "text/plain"),
    "JSON of others": answer("200 OK", b'{"status":"ok","version":3}'),
    "half of JSON": answer("200 OK", HALF),
    "half an answer": answer("200 OK", HALF * 100)[:-1000],
    "JSON without a bottom": answer("200 OK", b"[" * 200_000),
    "no length": b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{}",
    "502": answer("502 Bad Gateway", PAGE, "text/html"),
    "503 and when to come": answer("503 Slow Down", PAGE, "text/html", "Retry-After: 0.5"),
    "504 without a word": b"HTTP/1.1 504 Gateway Timeout\r\nContent-Length: 0\r\n\r\n",
    "301": answer("301 Moved Permanently", PAGE, "text/html", "Location: https://example.org/"),
    "307 in JSON": answer("307 Temporary Redirect", b"{}", "application/json", "Location: /x"),
    "403 of others": answer("403 Forbidden", b'{"message":"Forbidden"}'),
    "404 of others": answer("404 Not Found", b'{"message":"no such route"}'),
    "407": answer("407 Proxy Authentication Required", PAGE, "text/html"),
    "413": answer("413 Request Entity Too Large", PAGE, "text/html"),
    "bytes": random.Random(4).randbytes(4096),
    "one line": b"220 mail.example.org ESMTP\r\n",
    "headers for ever": b"HTTP/1.1 200 OK\r\n" + b"X-More: and more\r\n" * 5000,
    "nothing": b"",
    ENDLESS: b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n",
}


class Relay(Between):
    """`mood`: a key of ANSWERS, or nothing: then all goes to the server. With `only`, others are
    spared whose connection begins with a request without that in its first line. `breaks`: so
    many connections are reset, once `most` bytes have gone `up` to the server, or `down`."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self.mood = ""
        self.only = b""
        self.answered = 0
        self.breaks, self.most, self.way = 0, 0, "up"
        self._server = port
        self.address = f"http://127.0.0.1:{self.port}"

    def say(self, mood: str, only: bytes = b"") -> None:
        """From now on, to those who are connected too."""
        self.mood, self.only, self.answered = mood, only, 0
        self.drop()

    def break_off(self, times: int, way: str, most: int) -> None:
        self.breaks, self.way, self.most = times, way, most
        self.drop()

    def answer(self, caller: socket.socket) -> None:
        first = caller.recv(65536)
        if not first:
            return
        if self.mood and self.only in first.split(b"\r\n", 1)[0]:
            self.answered += 1
            caller.sendall(ANSWERS[self.mood])
            while self.mood == ENDLESS:
                caller.sendall(PART)
            caller.shutdown(socket.SHUT_WR)
            caller.settimeout(1)
            while caller.recv(65536):  # all that was asked, lest a reset overtake the answer
                pass
            return
        with socket.create_connection(("127.0.0.1", self._server), 10) as server:
            server.settimeout(None)
            server.sendall(first)
            self._carry(caller, server, len(first))

    def _carry(self, caller: socket.socket, server: socket.socket, begun: int) -> None:
        passed = {"up": begun, "down": 0}
        while True:
            for one in select.select([caller, server], [], [])[0]:
                way, other = ("up", server) if one is caller else ("down", caller)
                data = one.recv(16384)
                if not data:
                    return
                passed[way] += len(data)
                if self.breaks and way == self.way and passed[way] > self.most:
                    self.breaks -= 1
                    other.sendall(data[: len(data) // 2])
                    reset(caller)
                    reset(server)
                    return
                other.sendall(data)


def reset(sock: socket.socket) -> None:
    """Not an end but a broken connection: RST, when it is closed."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


@contextlib.contextmanager
def relaying(port: int) -> Iterator[Relay]:
    relay = Relay(port)
    thread = threading.Thread(target=relay.run, daemon=True)
    thread.start()
    try:
        yield relay
    finally:
        relay.close()
        thread.join(10)
