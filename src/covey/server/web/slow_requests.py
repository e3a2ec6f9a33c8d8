"""Time limits: requests must arrive soon, and answers must be read soon. How many connections there
may be is decided in `connections`.

Otherwise a client that sends one byte now and then would hold a connection, and its memory, for
ever. A request's head must arrive within HEAD_SECONDS; its body must arrive at LEAST_RATE or more,
and its answer must be read as fast. Time that the server itself takes (a parked sync, an upload
that waits for its turn) does not count: then the server does not read. All connections are checked
every few seconds, so that a thousand parked ones cost nothing.

Answers that clients have not read are in memory. Each owner has a share of that memory.
"""

import asyncio
import contextlib
import os
import socket
import struct
from collections.abc import Iterable
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from covey.server.limits.shares import Shares, Who
from covey.server.web.connections import Link

HEAD_SECONDS = 20.0
LOOK_SECONDS = 5.0
SLOW_LOOKS = 6  # a connection is closed when this many looks in a row found it slow
LEAST_RATE = 200.0  # bytes a second: slower than any network in use
MOST_HEAD_BYTES = 64 << 10
STRANGER = Who("strangers")
_ACKNOWLEDGED = struct.Struct("=120xQ")  # in Linux's struct tcp_info


class TimedProtocol(HttpToolsProtocol):
    """uvicorn's protocol, with time limits."""

    link: Link | None = None  # this connection, if connections are counted
    unread: Shares | None = None  # bytes of all unread answers

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._head_since = 0.0  # when the head began to arrive; 0: no head is arriving
        self._head_bytes = 0
        self._body = False
        self._bytes = 0  # since the last look
        self._slow = 0
        self._received = 0  # bytes that the client had received at the last look at its answer
        self._idle_looks = 0  # looks in a row in which the client read too little of its answer
        self._unread: tuple[Who, int] | None = None  # what this connection has in `unread`

    # -- the connection ----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._head_since = self.loop.time()
        if self.link is not None:  # while reading is paused, only `abort` ends a transport
            self.link.end = lambda: abort(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._read_again()
        if self.link is not None:
            self.link.close()

    def data_received(self, data: bytes) -> None:
        self._bytes += len(data)
        if not self._body:
            self._head_bytes += len(data)
            if not self._head_since:
                self._head_since = self.loop.time()
        super().data_received(data)
        if self._head_bytes > MOST_HEAD_BYTES and self._head_since:
            self.transport.abort()
        elif self.link is not None and self.link.who is None:
            self.link.received(len(data), self.flow.pause_reading, self._read_on)

    def _read_on(self) -> None:
        """Read again from a stranger that had to wait."""
        if not self.transport.is_closing():
            self.flow.resume_reading()

    # -- answers -----------------------------------------------------------------------------

    def pause_writing(self) -> None:
        """The kernel's buffer is full, so the rest of the answer is in our memory. A client whose
        owner has too much there already loses its connection."""
        super().pause_writing()
        if self.unread is None or self._unread is not None:
            return
        who = self.link.who if self.link is not None else None
        share = who or STRANGER, self.transport.get_write_buffer_size()
        if self.unread.take(*share):
            self._unread = share
        else:
            self.unread.refused += 1
            self.loop.call_soon(abort, self.transport)  # not now: the transport is writing

    def resume_writing(self) -> None:
        super().resume_writing()
        self._read_again()

    def _read_again(self) -> None:
        if self._unread is not None and self.unread is not None:
            self.unread.give(*self._unread)
            self._unread = None

    # -- the parser --------------------------------------------------------------------------

    def on_headers_complete(self) -> None:
        self._head_since, self._head_bytes, self._body, self._slow = 0.0, 0, True, 0
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._body = False
        super().on_message_complete()

    # -- looks -------------------------------------------------------------------------------

    def look(self, now: float) -> bool:
        """End the connection if it is too slow; whether it was."""
        arrived, self._bytes = self._bytes, 0
        if self._head_since:
            late = now - self._head_since > HEAD_SECONDS
        elif self._body and not self.flow.read_paused:
            self._slow = self._slow + 1 if arrived < LEAST_RATE * LOOK_SECONDS else 0
            late = self._slow >= SLOW_LOOKS
        else:
            late = False
        late = (late and not self.transport.is_closing()) or self._is_unread()
        if late:
            abort(self.transport)
        return late

    def _is_unread(self) -> bool:
        """Whether the client reads its answer too slowly; it may be the last one of a closed
        connection. The kernel's buffers are large, and only the kernel knows what has arrived."""
        if not self.transport.get_write_buffer_size():
            self._idle_looks = 0
            return False
        before, self._received = self._received, received(self.transport)
        moves = self._received < 0 or self._received - before >= LEAST_RATE * LOOK_SECONDS
        self._idle_looks = 0 if moves else self._idle_looks + 1
        return self._idle_looks >= SLOW_LOOKS


def abort(transport: asyncio.Transport) -> None:
    """End a connection, and drop all unsent bytes, in the kernel too."""
    sock = transport.get_extra_info("socket")
    with contextlib.suppress(OSError, AttributeError), _copy(sock) as copy:
        copy.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()


def _copy(sock: Any) -> socket.socket:
    """uvloop's sockets lack most options."""
    return socket.socket(fileno=os.dup(sock.fileno()))


def received(transport: asyncio.Transport) -> int:
    """Bytes that the client has received so far; -1: unknown."""
    sock = transport.get_extra_info("socket")
    try:
        with _copy(sock) as copy:
            info = copy.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _ACKNOWLEDGED.size)
        return int(_ACKNOWLEDGED.unpack(info)[0])
    except (OSError, AttributeError, struct.error):
        return -1


def end_slow(connections: Iterable[Any], now: float) -> int:
    """End the slow connections; how many were ended."""
    timed = [connection for connection in connections if isinstance(connection, TimedProtocol)]
    return sum(connection.look(now) for connection in timed)
