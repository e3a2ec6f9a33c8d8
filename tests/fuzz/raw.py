"""Bytes to a server's port that are nearly HTTP, and what comes back.

Every request here shows a wrong credential, so none of them may change anything. Some have another
request in their body, with a right one: whoever takes the end of a body for a new request (as two
servers behind each other might) would act on it.
"""

import asyncio
import json
import random
import re
import socket
import struct
from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import urlsplit

PATIENCE_SECONDS = 10.0
QUIET_SECONDS = 0.1  # for an answer that may come, or not
AT_ONCE = 40

PIECES = [
    b"\0", b"\r", b"\n", b"\r\n", b"\r\n\r\n", b" ", b"\t", b":", b";", b",", b"\xff", b"\x80",
    b"%", b"Content-Length: 5\r\n", b"Content-Length: 0\r\n", b"Content-Length: -1\r\n",
    b"Content-Length: 99999999999999999999\r\n", b"Transfer-Encoding: chunked\r\n",
    b"Transfer-Encoding: identity\r\n", b"Expect: 100-continue\r\n", b"Connection: close\r\n",
    b"Connection: Upgrade\r\nUpgrade: websocket\r\n", b"Connection: keep-alive\r\n",
    b"HTTP/1.0", b"HTTP/9.9", b"GET / HTTP/1.1\r\n\r\n", b"0\r\n\r\n", b"ffffffffffffffff\r\n",
    b"A" * 300, b"\r\n folded", b"Authorization: Bearer x\r\n",
]  # fmt: skip


class Case(NamedTuple):
    what: str
    parts: tuple[bytes, ...]  # as they are sent, one after another
    resets: bool = False  # at the end, instead of waiting for answers


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


class Nonsense(AssertionError):
    """An answer that is none, or no end of it."""


def request(
    path: str = "/pilot/v1/sync",
    body: bytes = b"{}",
    headers: bytes | None = None,
    *,
    method: str = "POST",
    secret: str = "wrong",
) -> bytes:
    """One request; `headers`: in place of its Content-Length."""
    if headers is None:
        headers = b"Content-Length: %d\r\n" % len(body)
    show = f"{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {secret}\r\n"
    return show.encode() + headers + b"\r\n" + body


def chunked(*parts: bytes) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (*parts, b""))


def sync(pilot: int) -> bytes:
    message = {"pilot": pilot, "epoch": 1, "number": 1, "received": 0, "want": 0}
    return json.dumps(message).encode()


# -- cases ---------------------------------------------------------------------------------------


def framings(hidden: bytes, path: str) -> Iterator[Case]:
    """Requests whose end can be seen in two ways, with another in what one of them says is their
    body."""
    size = len(hidden)
    both = b"Content-Length: %d\r\nTransfer-Encoding: chunked\r\n" % size
    ways = {
        "both lengths": both,
        "both, the other way round": b"\r\n".join([*both.split(b"\r\n")[1::-1], b""]),
        "two lengths": b"Content-Length: %d\r\nContent-Length: 0\r\n" % size,
        "two lengths, the other way round": b"Content-Length: 0\r\nContent-Length: %d\r\n" % size,
        "a list of lengths": b"Content-Length: 0, %d\r\n" % size,
        "a length with a sign": b"Content-Length: +%d\r\n" % size,
        "a negative length": b"Content-Length: -%d\r\n" % size,
        "a hexadecimal length": b"Content-Length: 0x%x\r\n" % size,
        "a length with a space": b"Content-Length : %d\r\n" % size,
        "a length with a NUL": b"Content-Length: %d\0\r\n" % size,
        "a length behind a bare line feed": b"X: y\nContent-Length: %d\r\n" % size,
        "a length behind a bare return": b"X: y\rContent-Length: %d\r\n" % size,
        "a folded length": b"Content-Length:\r\n %d\r\n" % size,
        "a coding that is none": b"Transfer-Encoding: xchunked\r\nContent-Length: %d\r\n" % size,
        "chunked first": b"Transfer-Encoding: chunked, identity\r\n",
        "a coding with a tab": b"Transfer-Encoding:\tchunked\r\nContent-Length: 0\r\n",
        "two codings": b"Transfer-Encoding: chunked\r\nTransfer-Encoding: gzip\r\n",
        "a coding in quotes": b'Transfer-Encoding: "chunked"\r\nContent-Length: 0\r\n',
    }
    for what, headers in ways.items():
        for body in (hidden, chunked() + hidden, chunked(hidden)):
            yield Case(what, (request(path, body, headers),))


def whole_bodies(hidden: bytes, path: str) -> Iterator[Case]:
    """Requests that are in order, if odd; the other one is in their body."""
    coding = b"Transfer-Encoding: chunked\r\n"
    yield Case("a request as a body", (request(path, hidden),))
    yield Case("a request in a chunk", (request(path, chunked(hidden), coding),))
    yield Case("a request in many chunks", (request(path, chunked(*_bytes(hidden)), coding),))
    extended = chunked(hidden).replace(b"\r\n", b";x=y\r\n", 1)
    yield Case("a request in a chunk with an extension", (request(path, extended, coding),))
    whole = request(path, hidden)
    yield Case("byte by byte", tuple(_bytes(whole)))
    yield Case("in two parts", (whole[: -len(hidden)], hidden))
    continued = b"Expect: 100-continue\r\nContent-Length: %d\r\n" % len(hidden)
    yield Case("a body that waits to be asked for", (request(path, hidden, continued),))


def sizes(path: str) -> Iterator[Case]:
    for count in (100, 5_000, 50_000):
        many = b"".join(b"X-%d: y\r\n" % number for number in range(count // 10))
        yield Case(f"{count // 10} headers", (request(path, b"", many),))
        for what in (b"X: %b\r\n", b"%b: x\r\n", b"Content-Length: %b\r\n", b"Cookie: %b\r\n"):
            yield Case(f"{count} bytes of a header", (request(path, b"", what % (b"9" * count)),))
        yield Case(f"{count} bytes of an address", (request(path + "?" + "x" * count),))
        yield Case(f"{count} bytes of a method", (request(path, method="P" * count),))
        yield Case(f"{count} bytes of nothing", (b"\r\n" * count,))
        yield Case(f"{count} bytes of NULs", (b"\0" * count,))
        yield Case(f"{count} bytes of no request", (b"x" * count,))
    large = request(path, b"", b"Content-Length: 1099511627776\r\n")
    yield Case("a body that is never sent", (large, b"{" * 1000))
    digits = b"f" * 15 + b"\r\n"
    yield Case("an endless chunk", (request(path, digits, b"Transfer-Encoding: chunked\r\n"),))


def odd_lines(path: str) -> Iterator[Case]:
    lines = [
        b"", b" ", b"GET", b"GET /", b"GET / HTTP", b"GET / HTTP/", b"GET / HTTP/1",
        b"GET / HTTP/2.0", b"GET  / HTTP/1.1", b"get / HTTP/1.1", b"GET / HTTP/1.1 x",
        b"GET /\0 HTTP/1.1", b"GET /\xff HTTP/1.1", b"GET /%zz HTTP/1.1", b"GET /%00 HTTP/1.1",
        b"GET * HTTP/1.1",
        b"OPTIONS * HTTP/1.1", b"CONNECT x:1 HTTP/1.1", b"CONNECT / HTTP/1.1", b"PRI * HTTP/2.0",
        b"GET http://x/ HTTP/1.1", b"GET //x/ HTTP/1.1", b"GET ? HTTP/1.1", b"GET # HTTP/1.1",
        b"GET /../../etc/passwd HTTP/1.1", b"GET /%2e%2e/%2e%2e HTTP/1.1", b"TRACE / HTTP/1.1",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"SSH-2.0-x", b"{}", b"GET /\tx HTTP/1.1",
    ]  # fmt: skip
    for line in lines:
        yield Case(f"{line!r}", (line + b"\r\nHost: x\r\n\r\n",))
    for way in ("?", "?x=1", "/", "//", "%20", "#x", ";x", "%00", "\\"):
        yield Case(f"the address ends in {way}", (request(path + way),))
    for way in (f"/{path}", path.replace("s", "%73"), path.upper(), f"http://x{path}", f"x{path}"):
        yield Case(f"the address {way}", (request(way),))
    for method in ("GET", "PUT", "HEAD", "DELETE", "PATCH", "CONNECT", "PRI", "M-SEARCH"):
        yield Case(f"{method}", (request(path, method=method),))


def cuts(path: str) -> Iterator[Case]:
    """Requests that end in the middle."""
    for body, headers in ((b"{}", None), (chunked(b"{", b"}"), b"Transfer-Encoding: chunked\r\n")):
        whole = request(path, body, headers)
        for at in range(len(whole)):
            yield Case(f"cut after {at} bytes", (whole[:at],), resets=at % 2 == 1)


def queues(path: str) -> Iterator[Case]:
    """Several requests, one behind the other."""
    there, here = request("/healthz", b"", method="GET"), request(path)
    file = request("/pilot/v1/files/" + "a" * 64 + "?pilot=1&size=5", b"12345", method="PUT")
    for first in (there, here, file):
        for second in (there, here, file, b"\r\n", b"\0", b"x", here[:20]):
            yield Case("two at once", (first + second,))
            yield Case("two at once, then a reset", (first + second,), resets=True)
            yield Case("one, then another", (first, second))
    yield Case("many at once", (there * 30 + here,))
    yield Case("many at once", (here * 30,))


def mutated(chance: random.Random, count: int, path: str, body: bytes) -> Iterator[Case]:
    coding = b"Transfer-Encoding: chunked\r\n"
    whole = [
        request(path, body),
        request(path, chunked(body[:1], body[1:]), coding),
        request("/healthz", b"", method="GET"),
        request("/pilot/v1/files/" + "a" * 64 + "?pilot=1&size=5", b"12345", method="PUT"),
        request("/api/v1/bags", b'{"argv": ["x"]}'),
    ]
    for _ in range(count):
        text = bytearray(b"".join(chance.choices(whole, k=chance.choice((1, 1, 1, 2, 3)))))
        for _ in range(chance.choice((1, 1, 2, 4))):
            at = chance.randrange(len(text) + 1)
            match chance.randrange(4):
                case 0:
                    text[at:at] = chance.choice(PIECES)
                case 1:
                    del text[at : at + chance.choice((1, 2, 20))]
                case 2:
                    text[at : at + 1] = bytes([chance.randrange(256)])
                case _:
                    line = text.rfind(b"\r\n", 0, at) + 2
                    text[line:line] = chance.choice(PIECES)
        cut = chance.randrange(len(text) + 1)
        parts = (bytes(text),) if chance.random() < 0.7 else (bytes(text[:cut]), bytes(text[cut:]))
        yield Case("mutated", parts, resets=chance.random() < 0.1)


def _bytes(text: bytes) -> list[bytes]:
    return [text[at : at + 1] for at in range(len(text))]


# -- what comes back -----------------------------------------------------------------------------


class Line:
    """Sends cases to a server, a few at a time."""

    def __init__(self, address: str, quiet_seconds: float = QUIET_SECONDS) -> None:
        self._quiet_seconds = quiet_seconds
        split = urlsplit(address)
        self._host, self._port = split.hostname or "", split.port or 0
        self._turn = asyncio.Semaphore(AT_ONCE)

    async def answers(self, case: Case) -> list[Reply]:
        """Until the server hangs up, which it does soon after we say that no more will come.
        Raises Nonsense, with the case."""
        async with self._turn:
            try:
                async with asyncio.timeout(PATIENCE_SECONDS):
                    return replies(await self._exchange(case))
            except (TimeoutError, Nonsense) as error:
                raise Nonsense(f"{error or 'no end'} after {case.what}: {case.parts}") from error

    async def _exchange(self, case: Case) -> bytes:
        reader, writer = await asyncio.open_connection(self._host, self._port)
        heard = b""
        try:
            for number, part in enumerate(case.parts):
                writer.write(part)
                await writer.drain()
                if number < len(case.parts) - 1 and len(case.parts) < 10:
                    await asyncio.sleep(0.005)
            if case.resets:
                once = struct.pack("ii", 1, 0)
                found: socket.socket = writer.get_extra_info("socket")
                found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, once)
                return b""
            try:
                while True:
                    async with asyncio.timeout(self._quiet_seconds):
                        more = await reader.read(1 << 16)
                    heard += more
                    if not more:
                        return heard
            except TimeoutError:
                pass
            if writer.can_write_eof():
                writer.write_eof()
            return heard + await reader.read()
        except (ConnectionError, OSError):
            return heard  # it hung up while we spoke
        finally:
            writer.transport.abort()


def replies(text: bytes) -> list[Reply]:
    """What was heard on one connection; the last may be cut, if the server was not let finish."""
    found: list[Reply] = []
    while text:
        head, end, rest = text.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        status = re.fullmatch(r"HTTP/1\.1 ([1-5]\d\d) [ -~]*", first)
        if not end or status is None:
            raise Nonsense(f"this is no answer: {text[:200]!r}")
        pairs = [line.partition(": ") for line in lines]
        headers = {name.lower(): value for name, _, value in pairs}
        if status[1] == "100":
            text = rest
            continue
        size = int(headers.get("content-length", len(rest)))
        found.append(Reply(int(status[1]), headers, rest[:size]))
        text = rest[size:]
    return found
