"""How requests arrive: within a while; and that answers are taken. How many connections there may
be is decided in `connections`.

Whoever sends one byte now and then would keep a connection, and what it holds, for ever. A
request's head must be here within HEAD_SECONDS; its body must go on arriving, at LEAST_RATE or
more, and its answer must be taken as fast. Time that the server itself takes (a parked sync, an
upload that waits for its turn) is not counted: bytes that are not wanted yet cannot come. One look
at all connections every few seconds is enough, so that a thousand parked ones cost nothing.

Answers that are not taken are in memory meanwhile. One owner may have a share of that, too.
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
SLOW_LOOKS = 6  # one after the other, before a slow body is given up
LEAST_RATE = 200.0  # bytes a second: slower than any line that people put up with
MOST_HEAD_BYTES = 64 << 10
STRANGER = Who("strangers")
_ACKNOWLEDGED = struct.Struct("=120xQ")  # in Linux's struct tcp_info


class Arriving(HttpToolsProtocol):
    """uvicorn's protocol, which also keeps count."""

    link: Link | None = None  # this connection, where somebody counts them
    unread: Shares | None = None  # bytes of all answers that wait to be taken

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._head_since = 0.0  # when the head that is arriving was begun; 0: it is here
        self._head_bytes = 0
        self._body = False
        self._bytes = 0  # since the last look
        self._slow = 0
        self._received = 0  # by the other side, in bytes, at the last look that had to know
        self._idle_looks = 0  # while an answer waits to be taken
        self._unread: tuple[Who, int] | None = None  # what is counted of this one's

    # -- the connection ----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._head_since = self.loop.time()
        if self.link is not None:  # nothing is heard of a transport that is not read
            self.link.end = lambda: forget(transport)

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
        """After a stranger was kept waiting."""
        if not self.transport.is_closing():
            self.flow.resume_reading()

    # -- answers -----------------------------------------------------------------------------

    def pause_writing(self) -> None:
        """More waits to be taken than the system has room for: it is in our memory. Whoever has
        too much there already loses the connection."""
        super().pause_writing()
        if self.unread is None or self._unread is not None:
            return
        who = self.link.who if self.link is not None else None
        mine = who or STRANGER, self.transport.get_write_buffer_size()
        if self.unread.take(*mine):
            self._unread = mine
        else:
            self.unread.refused += 1
            self.loop.call_soon(forget, self.transport)  # this is called while it writes

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
        """Whether this one has been too slow, and was ended."""
        arrived, self._bytes = self._bytes, 0
        if self._head_since:
            late = now - self._head_since > HEAD_SECONDS
        elif self._body and not self.flow.read_paused:
            self._slow = self._slow + 1 if arrived < LEAST_RATE * LOOK_SECONDS else 0
            late = self._slow >= SLOW_LOOKS
        else:
            late = False
        late = (late and not self.transport.is_closing()) or self._is_not_taken()
        if late:
            forget(self.transport)
        return late

    def _is_not_taken(self) -> bool:
        """Whether an answer, perhaps the last one of a closed connection, has waited too long for
        somebody to take it. The kernel's own buffers are large: only it knows what has arrived."""
        if not self.transport.get_write_buffer_size():
            self._idle_looks = 0
            return False
        before, self._received = self._received, received(self.transport)
        moves = self._received < 0 or self._received - before >= LEAST_RATE * LOOK_SECONDS
        self._idle_looks = 0 if moves else self._idle_looks + 1
        return self._idle_looks >= SLOW_LOOKS


def forget(transport: asyncio.Transport) -> None:
    """End a connection, and keep nothing of what was to be sent, in the kernel either."""
    sock = transport.get_extra_info("socket")
    with contextlib.suppress(OSError, AttributeError), _copy(sock) as copy:
        copy.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()


def _copy(sock: Any) -> socket.socket:
    """uvloop's own says little about itself."""
    return socket.socket(fileno=os.dup(sock.fileno()))


def received(transport: asyncio.Transport) -> int:
    """Bytes that the other side has received so far; -1: nobody knows."""
    sock = transport.get_extra_info("socket")
    try:
        with _copy(sock) as copy:
            known = copy.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _ACKNOWLEDGED.size)
        return int(_ACKNOWLEDGED.unpack(known)[0])
    except (OSError, AttributeError, struct.error):
        return -1


def end_slow(connections: Iterable[Any], now: float) -> int:
    """How many were ended."""
    return sum(one.look(now) for one in list(connections) if isinstance(one, Arriving))
