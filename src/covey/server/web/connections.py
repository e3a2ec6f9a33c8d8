"""Connections, counted from the moment in which they are accepted, before any TLS handshake.

Whoever connects is a *stranger* until a request on the connection has shown a valid token, secret
or credential. Strangers may have only few connections, and send only few bytes a second: when
they have all, the oldest one is ended and its place is given to whoever comes next. So a thousand
connections that never say who they are keep nobody out, and descriptors are left for the others.
Connections of those who are known are counted against their owner's share.

A reverse proxy on this machine makes all connections by itself. So the connections from this
machine have no bound as one address; the bounds on all strangers hold for them too.
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
STRANGERS_FROM_ONE_PLACE = 0.75  # of them
# A stranger that has been here for so long may be ended when others wait: by then a handshake is
# done, unless thousands of pilots come at once; those are told to come again.
STRANGER_SECONDS = 1.0
RESERVED_FILES = 256  # descriptors for the record, pipes and files; or an eighth, if that is more
MOST_KNOWN = 20_000
FREE_BYTES = 64 << 10  # that a stranger may send at any speed: a request's head, an enrolment
STRANGER_BYTES_A_SECOND = 4 << 20  # of all strangers together, beyond that
MOST_SENDERS = 64  # strangers that wait to send more: each of them holds a buffer
TICK_SECONDS = 0.05

LINK, WHO = "covey.link", "covey.who"  # in the scope of a request
LOCAL = ""  # the place that everybody on this machine is at

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
        self.free = FREE_BYTES  # bytes that it may still send at any speed

    def know(self, who: Who) -> None:
        """Whoever is there has shown that it is this one. Raises HttpProblem if this one has too
        many connections already."""
        if self.who != who:
            self._all.know(self, who)

    def forget(self) -> None:
        """The last request showed nothing valid: nobody knows who is there."""
        if self.who is not None:
            self._all.forget(self)

    def received(self, size: int, pause: Callable[[], None], resume: Callable[[], None]) -> None:
        """A stranger has sent so much."""
        self.free -= size
        if self.free < 0:
            self._all.slow_down(self, -self.free, pause, resume)
            self.free = 0

    def close(self) -> None:
        """The connection is gone."""
        self._all.close(self)


class Connections:
    """All of them."""

    def __init__(
        self,
        files: int | None = None,
        clock: Callable[[], float] | None = None,
        refused: Callable[[str], None] = lambda kind: None,
    ) -> None:
        """`files`: descriptors that this process may have open. `refused` is told of each stranger
        whose connection is ended, or not taken."""
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
        """0 if another may be accepted; else when there will be room, if nobody goes before."""
        if len(self._strangers) < self.most_strangers:
            return 0.0
        oldest = next(iter(self._strangers))
        return max(0.0, oldest.since + STRANGER_SECONDS - self._clock())

    def accept(self, address: str, end: Callable[[], None]) -> Link | None:
        """One that has been accepted; None: close it."""
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
        """It is gone."""
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
        else:  # it has been closed meanwhile
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
    """Senders that have to wait, because all together sent more than they may in a tick."""

    def __init__(self) -> None:
        self._left = STRANGER_BYTES_A_SECOND * TICK_SECONDS
        self._paused: deque[Callable[[], None]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def spent(self, size: int, pause: Callable[[], None], resume: Callable[[], None]) -> bool:
        """False: there are so many already that this one cannot be kept waiting."""
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
        """Each that is resumed sends something at once, so only a few are."""
        most = STRANGER_BYTES_A_SECOND * TICK_SECONDS
        self._left = min(most, self._left + most)
        self._timer = None
        for _ in range(min(len(self._paused), 4) if self._left > 0 else 0):
            self._paused.popleft()()
        if self._paused or self._left < most:
            self._timer = asyncio.get_running_loop().call_later(TICK_SECONDS, self._tick)


class Acceptor:
    """Accepts the connections of one listening socket. `begin` makes a connection's protocol and
    returns when its handshake is over, however that ended."""

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
        """As uvicorn wants it."""

    def _accept(self) -> None:
        """All that wait, up to a bound, so that others get their turn in between."""
        for _ in range(64):
            wait = self._connections.room_seconds()
            if wait:  # they wait in the kernel
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
        except Exception:  # whatever a stranger says must not trouble us
            begun = False
        except asyncio.CancelledError:
            self._connections.close(link)
            raise
        if not begun:
            self._connections.close(link)


def place_of(address: str) -> str:
    """What one person has easily: an IPv4 address, or a network of IPv6 addresses."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return LOCAL
    if isinstance(found, ipaddress.IPv6Address):
        found = found.ipv4_mapped or found
    if found.is_loopback:
        return LOCAL
    if found.version == 6:
        return str(ipaddress.ip_network((int(found), 64), strict=False))
    return str(found)


# -- requests --------------------------------------------------------------------------------


def known(scope: Scope, who: Who) -> None:
    """Whoever sends this request is known, before its body is read. Raises HttpProblem."""
    scope[WHO] = who
    link = scope.get(LINK)
    if link is not None:
        link.know(who)


def unknown(scope: Scope) -> None:
    """What this request shows is not valid."""
    link = scope.get(LINK)
    if link is not None:
        link.forget()
