"""Connections, counted as soon as they are accepted, before any TLS handshake.

A connection is a *stranger's* until a request on it has shown a valid token, secret or credential.
Strangers together have a bounded number of connections, and may send a bounded number of bytes a
second. When all their connections are in use, a new one takes the place of the oldest. So a
thousand connections without a credential keep nobody out, and descriptors are left for the others.
Other connections are counted against the share of their owner.

A reverse proxy on this machine makes all connections itself. So connections from this machine have
no bound for a single address; the bounds for all strangers hold for them too.
"""

import asyncio
import contextlib
import ipaddress
import resource
import socket
from collections import Counter, deque
from collections.abc import Callable, MutableMapping
from typing import Any

from covey.server.limits.shares import Shares, Supply, Who
from covey.server.web.refusals import CONNECTION

MOST_STRANGERS = 2048  # a thousand pilots may come at once
STRANGERS_FROM_ONE_PLACE = 0.75  # the part of them that one address may have
# A stranger's connection of this age may be ended when others wait. By then its TLS handshake is
# done, unless thousands of pilots connect at once; those try again.
STRANGER_SECONDS = 1.0
RESERVED_FILES = 256  # descriptors for the record, pipes and files; or an eighth, if that is more
MOST_KNOWN = 20_000
FREE_BYTES = 64 << 10  # a stranger may send these at any speed: headers, an enrolment
STRANGER_BYTES_A_SECOND = 4 << 20  # of all strangers together, beyond their free bytes
MOST_SENDERS = 64  # strangers that wait to send more, each with a buffer
TICK_SECONDS = 0.05

LINK, WHO = "covey.link", "covey.who"  # in the scope of a request
LOCAL = ""  # the place of all connections from this machine

Scope = MutableMapping[Any, Any]


class Link:
    """One connection. `end` closes it."""

    __slots__ = ("_all", "end", "free", "place", "since", "who")

    def __init__(self, all_: "Connections", place: str, end: Callable[[], None]) -> None:
        self._all = all_
        self.place = place
        self.end = end
        self.since = 0.0
        self.who: Who | None = None  # None: a stranger
        self.free = FREE_BYTES  # bytes that the stranger may still send at any speed

    def know(self, who: Who) -> None:
        """A request has shown who it is from. Raises HttpProblem if its owner has too many
        connections."""
        if self.who != who:
            self._all.know(self, who)

    def forget(self) -> None:
        """The last request showed no valid credential: it is a stranger's connection again."""
        if self.who is not None:
            self._all.forget(self)

    def received(self, size: int, pause: Callable[[], None], resume: Callable[[], None]) -> None:
        """A stranger has sent this many bytes."""
        self.free -= size
        if self.free < 0:
            self._all.slow_down(self, -self.free, pause, resume)
            self.free = 0

    def close(self) -> None:
        """The connection is gone."""
        self._all.close(self)


class Connections:
    """All connections of the server."""

    def __init__(
        self,
        files: int | None = None,
        clock: Callable[[], float] | None = None,
        refused: Callable[[str], None] = lambda kind: None,
    ) -> None:
        """`files`: how many descriptors this process may open. `refused` is called for each
        connection of a stranger that is ended or not accepted."""
        self._clock = clock or asyncio.get_running_loop().time
        files = files or resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        rest = max(16, files - max(RESERVED_FILES, files // 8))
        self.most_strangers = min(MOST_STRANGERS, rest // 4)
        known = min(MOST_KNOWN, rest - self.most_strangers)
        self.known = Shares(
            Supply(
                "connections",
                known,
                part=0.875,
                reserve=known // 20,
                remedy="close some of your connections, or raise the server's limit of open files",
            )
        )
        self._refused = refused
        self._strangers: dict[Link, None] = {}  # the oldest first
        self._places: Counter[str] = Counter()  # of strangers
        self._paced = _Paced()

    def strangers(self) -> int:
        return len(self._strangers)

    # -- coming and going --------------------------------------------------------------------

    def room_seconds(self) -> float:
        """0 if another connection may be accepted; else the longest wait until there is room."""
        if len(self._strangers) < self.most_strangers:
            return 0.0
        oldest = next(iter(self._strangers))
        return max(0.0, oldest.since + STRANGER_SECONDS - self._clock())

    def accept(self, address: str, end: Callable[[], None]) -> Link | None:
        """Count a connection that was accepted; None: the caller must close it."""
        place = place_of(address)
        if place and self._places[place] >= STRANGERS_FROM_ONE_PLACE * self.most_strangers:
            victim = next(link for link in self._strangers if link.place == place)
            if victim.since + STRANGER_SECONDS > self._clock():
                self._refused(CONNECTION)
                return None
            self._end(victim)
        elif len(self._strangers) >= self.most_strangers:
            self._end(next(iter(self._strangers)))
        link = Link(self, place, end)
        self._add(link)
        return link

    def close(self, link: Link) -> None:
        if link in self._strangers:
            self._remove(link)
        elif link.who is not None:
            self.known.give(link.who)
            link.who = None

    def know(self, link: Link, who: Who) -> None:
        self.known.demand(who)
        if link in self._strangers:
            self._remove(link)
        elif link.who is not None:
            self.known.give(link.who)
        else:  # the connection has been closed
            self.known.give(who)
            return
        link.who = who

    def forget(self, link: Link) -> None:
        if link.who is not None:
            self.known.give(link.who)
            link.who = None
            self._add(link)
            if len(self._strangers) > self.most_strangers:
                self._end(next(iter(self._strangers)))

    def slow_down(
        self, link: Link, size: int, pause: Callable[[], None], resume: Callable[[], None]
    ) -> None:
        if not self._paced.spent(size, pause, resume) and link in self._strangers:
            self._end(link)

    def _add(self, link: Link) -> None:
        link.since = self._clock()
        self._strangers[link] = None
        self._places[link.place] += 1

    def _remove(self, link: Link) -> None:
        del self._strangers[link]
        self._places[link.place] -= 1
        if not self._places[link.place]:
            del self._places[link.place]

    def _end(self, link: Link) -> None:
        self._refused(CONNECTION)
        self._remove(link)
        link.end()


class _Paced:
    """Strangers that have to wait, because all strangers sent more than they may in a tick."""

    def __init__(self) -> None:
        self._left = STRANGER_BYTES_A_SECOND * TICK_SECONDS
        self._paused: deque[Callable[[], None]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def spent(self, size: int, pause: Callable[[], None], resume: Callable[[], None]) -> bool:
        """Count these bytes; if they are too many, make the sender wait. False: too many wait
        already, and this one must be ended."""
        self._left -= size
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(TICK_SECONDS, self._tick)
        if self._left < 0:
            pause()
            if len(self._paused) >= MOST_SENDERS:
                return False
            self._paused.append(resume)
        return True

    def _tick(self) -> None:
        """Resume a few senders only: each of them sends more at once."""
        most = STRANGER_BYTES_A_SECOND * TICK_SECONDS
        self._left = min(most, self._left + most)
        self._timer = None
        for _ in range(min(len(self._paused), 4) if self._left > 0 else 0):
            self._paused.popleft()()
        if self._paused or self._left < most:
            self._timer = asyncio.get_running_loop().call_later(TICK_SECONDS, self._tick)


class Acceptor:
    """Accepts the connections of one listening socket. `begin` makes a connection's protocol and
    returns when its handshake has succeeded or failed."""

    def __init__(
        self,
        listening: socket.socket,
        connections: Connections,
        begin: Callable[[socket.socket, Link], Any],
    ) -> None:
        self._socket = listening
        self._connections = connections
        self._begin = begin
        self._loop = asyncio.get_running_loop()
        self._handshakes: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._open = True
        listening.setblocking(False)
        self._loop.add_reader(listening.fileno(), self._accept)

    def close(self) -> None:
        if self._open:
            self._open = False
            self._loop.remove_reader(self._socket.fileno())
            if self._timer is not None:
                self._timer.cancel()
            self._socket.close()
            for task in list(self._handshakes):
                task.cancel()

    async def wait_closed(self) -> None:
        """uvicorn calls it."""

    def _accept(self) -> None:
        """Accept waiting connections, at most 64 at a time, so that other work gets its turn."""
        for _ in range(64):
            wait = self._connections.room_seconds()
            if wait:  # more connections wait in the kernel
                self._pause(wait)
                return
            try:
                sock, address = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError:  # no descriptor, or no memory, is left
                self._pause(1.0)
                return
            self._take(sock, str(address[0]))

    def _pause(self, seconds: float) -> None:
        self._loop.remove_reader(self._socket.fileno())
        self._timer = self._loop.call_later(min(seconds, TICK_SECONDS), self._resume)

    def _resume(self) -> None:
        self._timer = None
        self._loop.add_reader(self._socket.fileno(), self._accept)

    def _take(self, sock: socket.socket, address: str) -> None:
        def end() -> None:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

        link = self._connections.accept(address, end)
        if link is None:
            sock.close()
            return
        sock.setblocking(False)
        task = self._loop.create_task(self._shake_hands(sock, link))
        self._handshakes.add(task)
        task.add_done_callback(self._handshakes.discard)

    async def _shake_hands(self, sock: socket.socket, link: Link) -> None:
        try:
            begun = await self._begin(sock, link)
        except Exception:  # hostile bytes must not end the server
            begun = False
        except asyncio.CancelledError:
            self._connections.close(link)
            raise
        if not begun:
            self._connections.close(link)


def place_of(address: str) -> str:
    """What is counted as one address: an IPv4 address, or a /64 network of IPv6 addresses."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return LOCAL
    if isinstance(parsed, ipaddress.IPv6Address):
        parsed = parsed.ipv4_mapped or parsed
    if parsed.is_loopback:
        return LOCAL
    if parsed.version == 6:
        return str(ipaddress.ip_network((int(parsed), 64), strict=False))
    return str(parsed)


# -- requests --------------------------------------------------------------------------------


def known(scope: Scope, who: Who) -> None:
    """The request has shown who it is from; called before its body is read. Raises HttpProblem if
    its owner has too many connections."""
    scope[WHO] = who
    link = scope.get(LINK)
    if link is not None:
        link.know(who)


def unknown(scope: Scope) -> None:
    """The request has shown no valid credential."""
    link = scope.get(LINK)
    if link is not None:
        link.forget()
