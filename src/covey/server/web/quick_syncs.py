"""A short way for syncs: from the socket to the gateway and back without ASGI.

A sync is most of what a server hears, and through ASGI half of its time goes into tasks, events
and dictionaries that nobody looks at. Here one object per connection does it: uvicorn's protocol,
which keeps doing everything else. A parked sync costs a few hundred bytes, and its answer leaves
in one piece (over TLS: one record). Whoever sends a request behind a sync before that is answered
is answered, and then has to connect again.
"""

import asyncio
import logging
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, NamedTuple, Protocol

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from covey.server.limits.shares import UNREAD_BYTES, Shares, Who
from covey.server.web.connections import LINK, Link
from covey.server.web.problems import HttpProblem
from covey.server.web.refusals import STRANGERS, Refusals
from covey.server.web.slow_requests import Arriving, forget

SYNC = b"/pilot/v1/sync"
MOST_BYTES = 1 << 20  # of a body; larger ones come in pieces, and go the long way
JSON = ((b"content-type", b"application/json"),)

Headers = list[tuple[bytes, bytes]]


class Response(NamedTuple):
    status: int
    body: bytes
    headers: tuple[tuple[bytes, bytes], ...] = JSON


Respond = Callable[[Response], None]


class _Nobody(NamedTuple):
    who: Who = Who("")


NOBODY = _Nobody()


class SyncCaller(Protocol):
    """Whoever has shown a pilot's credential."""

    @property
    def who(self) -> Who: ...


class Syncs(Protocol):
    def let_in(self, headers: Headers) -> SyncCaller:
        """Who sends this, by the head of its request alone. Raises HttpProblem."""
        ...

    def take_sync(self, caller: Any, body: bytes, respond: Respond) -> Callable[[], None]:
        """Have it answered, at once or later. Returns what to call if whoever asks hangs up
        before. Raises HttpProblem."""
        ...


class QuickProtocol(HttpToolsProtocol):
    syncs: Syncs
    budget: Shares  # bytes of bodies
    refusals: Refusals
    link: Link | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._sync: bytearray | bytes | None = None  # the body of one that is being read
        self._size = 0  # that its head says it has
        self._taken = 0  # of the budget
        self._caller: SyncCaller = NOBODY  # of the sync that is being read
        self._problem: HttpProblem | None = None  # why it is refused, once all of it is here
        self._answering = False
        self._closes = False  # after the answer
        self._hung_up: Callable[[], None] | None = None
        self._cycles: list[Any] = []  # uvicorn's requests that have no answer yet
        self._resting_since = 0.0  # when the last sync was answered; 0: something has come since

    # -- callbacks of the parser -----------------------------------------------------------

    def on_message_begin(self) -> None:
        if self._answering:
            raise ValueError("a request behind a sync that is not answered yet")
        self._resting_since = 0.0
        self.url = b""
        self.expect_100_continue = False
        self.headers = []

    def on_headers_complete(self) -> None:
        if self.url == SYNC and self._is_quick():
            self._begin_sync()
            return
        url, expects, headers = self.url, self.expect_100_continue, self.headers
        super().on_message_begin()  # only now: what it makes costs more than a sync's headers
        self.url, self.expect_100_continue = url, expects
        self.headers.extend(headers)
        scope: Any = self.scope
        scope[LINK] = self.link
        super().on_headers_complete()
        self._cycles = [one for one in self._cycles if not one.response_complete]
        if self.cycle is not None:
            self._cycles.append(self.cycle)

    def _begin_sync(self) -> None:
        """The credential comes first: nothing of a stranger's body is kept."""
        self._sync, self._problem = b"", None
        try:
            self._caller = caller = self.syncs.let_in(self.headers)
            if self.link is not None and self.link.who is not caller.who:
                self.link.know(caller.who)
        except HttpProblem as problem:
            self._problem = _later(problem)
            if self.link is not None and problem.status != 503:
                self.link.forget()

    def _is_quick(self) -> bool:
        cycle: Any = self.cycle  # None before the first request
        idle = cycle is None or cycle.response_complete
        parser = self.parser
        plain = not self.expect_100_continue and not parser.should_upgrade()
        self._size = _length(self.headers)
        small = 0 <= self._size <= MOST_BYTES
        return idle and plain and small and parser.get_method() == b"POST"

    def on_body(self, body: bytes) -> None:
        if self._sync is None:
            if not self._answering:
                super().on_body(body)
        elif self._problem is not None:
            pass  # it is read, so that its sender can hear why it was refused, and dropped
        elif len(body) == self._size:  # all at once: it is never kept
            self._sync = body
        elif self.budget.take(self._caller.who, len(body)):  # what is here: anybody promises much
            self._taken += len(body)
            self._sync = self._sync or bytearray()
            self._sync += body
        else:
            self._refuse(_later(self.budget.refusal(self._caller.who)))

    def on_message_complete(self) -> None:
        body, self._sync = self._sync, None
        if body is None:
            if not self._answering:
                super().on_message_complete()
            return
        self._answering = True
        self._closes = not self.parser.should_keep_alive()
        try:
            if self._problem is not None:
                raise self._problem
            hung_up = self.syncs.take_sync(self._caller, bytes(body), self._respond)
            self._give_back()  # it has been read
        except HttpProblem as problem:
            self._respond(of_problem(problem))
        except Exception:
            logging.getLogger(__name__).exception("a sync could not be taken")
            self._closes = True
            self._respond(of_problem(HttpProblem(500, "internal", "see the server's log")))
        else:
            if self._answering:
                self._hung_up = hung_up

    # -- the connection --------------------------------------------------------------------

    def send_400_response(self, msg: str) -> None:
        if self._answering:  # its answer first
            self._closes = True
        elif not self.transport.is_closing():
            super().send_400_response(msg)
            self._give_up_cycles()

    def _give_up_cycles(self) -> None:
        """Answers that are being made must not be written behind our last word: uvicorn would
        try, on a connection that is closed."""
        for cycle in self._cycles:
            if not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()
        self._cycles.clear()

    def connection_lost(self, exc: Exception | None) -> None:
        hung_up, self._hung_up = self._hung_up, None
        self._answering, self._sync = False, None
        self._give_back()
        if hung_up is not None:
            hung_up()
        self._give_up_cycles()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        if self._answering:
            self._closes = True
        else:
            super().shutdown()

    def has_rested(self, now: float) -> bool:
        """Whether nothing has come for so long that the connection may be closed. Somebody looks
        now and then: a timer for each answer would cost more than the answer's bytes."""
        return 0 < self._resting_since < now - self.timeout_keep_alive

    def _refuse(self, problem: HttpProblem) -> None:
        """And hear no more of it."""
        self._sync = None
        self._answering = self._closes = True
        self._respond(of_problem(problem))
        raise ValueError(problem.detail)  # the parser stops at that

    def _respond(self, response: Response) -> None:
        if not self._answering:
            return  # nobody is there any more
        self._answering, self._hung_up = False, None
        self._give_back()
        self.server_state.total_requests += 1
        if response.status >= 400:
            owner = STRANGERS if self._problem is not None else self._caller.who.owner
            self.refusals.answered(response.status, owner)
        if self.transport.is_closing():
            return
        if self.flow.write_paused:  # it asks again, and has not read the answer before
            forget(self.transport)
            return
        self.transport.write(_written(response, self._closes))
        if self._closes:
            self.transport.close()
        else:
            self._resting_since = self.loop.time()

    def _give_back(self) -> None:
        if self._taken:
            self.budget.give(self._caller.who, self._taken)
            self._taken = 0


class _Quick(Arriving, QuickProtocol):
    """Requests must arrive in time, too."""

    def look(self, now: float) -> bool:
        if self.has_rested(now) and not self.transport.is_closing():
            self.transport.close()
        return super().look(now)


def protocol_for(
    syncs: Syncs, budget: Shares, refusals: Refusals, unread: Shares | None = None
) -> type[asyncio.Protocol]:
    """What uvicorn makes one of for each connection. `unread`: bytes of answers in memory."""
    unread = unread or Shares(UNREAD_BYTES)
    given = {"syncs": syncs, "budget": budget, "refusals": refusals, "unread": unread}
    return type("Quick", (_Quick,), given)


def _later(problem: HttpProblem) -> HttpProblem:
    """A pilot whose owner has its share comes again with the same sync: that is no mistake of
    the sync."""
    if problem.status != 429:
        return problem
    return HttpProblem(503, "unavailable", problem.detail, problem.retry_seconds)


def of_problem(problem: HttpProblem) -> Response:
    return Response(problem.status, problem.body(), tuple(problem.headers()))


def _length(headers: Headers) -> int:
    """Of the body; -1 if it is not said beforehand."""
    for name, value in headers:
        if name == b"content-length":
            return int(value)  # the parser has seen to it
    return -1


def _written(response: Response, closes: bool) -> bytes:
    status, body, headers = response
    if status == 200 and headers is JSON and not closes:
        return b"%b%d\r\n\r\n%b" % (_OK, len(body), body)
    parts = [b"HTTP/1.1 %d %b\r\n" % (status, HTTPStatus(status).phrase.encode())]
    parts += [b"%b: %b\r\n" % header for header in headers]
    parts.append(b"connection: close\r\n" if closes else b"")
    parts.append(b"content-length: %d\r\n\r\n" % len(body))
    return b"".join([*parts, body])


_OK = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: "
