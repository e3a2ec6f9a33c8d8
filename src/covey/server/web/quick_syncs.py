"""Fast handling of syncs: from the socket to the gateway and back, without ASGI.

Most requests are syncs, and ASGI would take half of their time for tasks, events and dictionaries
that nothing reads. Here one object for each connection handles them: uvicorn's protocol, which
still handles all other requests. A parked sync costs a few hundred bytes, and its answer is written
at once (over TLS: one record). A client that sends another request before its sync is answered
gets the answer to the sync; then the connection is closed.
"""

import asyncio
import logging
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, NamedTuple, Protocol

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from covey.server.limits.shares import UNREAD_BYTES, Shares, Who
from covey.server.web.connections import LINK, Link
from covey.server.web.problems import HttpProblem, our_error
from covey.server.web.refusals import STRANGERS, Refusals
from covey.server.web.slow_requests import TimedProtocol, abort

SYNC = b"/pilot/v1/sync"
MOST_BYTES = 1 << 20  # of a body; larger ones go through ASGI
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
    """A pilot that has shown its credential."""

    @property
    def who(self) -> Who: ...


class Syncs(Protocol):
    def let_in(self, headers: Headers) -> SyncCaller:
        """Who sends this request, by its headers alone. Raises HttpProblem."""
        ...

    def take_sync(self, caller: Any, body: bytes, respond: Respond) -> Callable[[], None]:
        """Have the sync answered, at once or later. Returns what to call if the pilot closes the
        connection first. Raises HttpProblem."""
        ...


class QuickProtocol(HttpToolsProtocol):
    syncs: Syncs
    budget: Shares  # bytes of bodies
    refusals: Refusals
    link: Link | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._sync: bytearray | bytes | None = None  # the body of the sync that is being read
        self._size = 0  # of the body, as its header says
        self._taken = 0  # bytes counted in the budget
        self._caller: SyncCaller = NOBODY  # of the sync that is being read
        self._problem: HttpProblem | None = None  # the answer, when the whole body has arrived
        self._answering = False
        self._closes = False  # close the connection after the answer
        self._hung_up: Callable[[], None] | None = None
        self._cycles: list[Any] = []  # uvicorn's requests that have no answer yet
        self._resting_since = 0.0  # when the last sync was answered; 0: a request came after it

    # -- callbacks of the parser -----------------------------------------------------------

    def on_message_begin(self) -> None:
        if self._answering:
            raise ValueError("a request came before the last sync was answered")
        self._resting_since = 0.0
        self.url = b""
        self.expect_100_continue = False
        self.headers = []

    def on_headers_complete(self) -> None:
        if self.url == SYNC and self._is_quick():
            self._begin_sync()
            return
        url, expects, headers = self.url, self.expect_100_continue, self.headers
        super().on_message_begin()  # this late, because it costs more than all of a sync's headers
        self.url, self.expect_100_continue = url, expects
        self.headers.extend(headers)
        scope: Any = self.scope
        scope[LINK] = self.link
        super().on_headers_complete()
        self._cycles = [cycle for cycle in self._cycles if not cycle.response_complete]
        if self.cycle is not None:
            self._cycles.append(self.cycle)

    def _begin_sync(self) -> None:
        """Check the credential first: the body of a stranger is not kept."""
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
            pass  # read and dropped, so that the sender reads why it was refused
        elif len(body) == self._size:  # complete at once: not counted
            self._sync = body
        elif self.budget.take(self._caller.who, len(body)):  # what has arrived, not what it claims
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
            self._give_back()  # the body has been read
        except HttpProblem as problem:
            self._respond(of_problem(problem))
        except Exception:
            logging.getLogger(__name__).exception("a sync could not be taken")
            self._closes = True
            self._respond(of_problem(our_error()))
        else:
            if self._answering:
                self._hung_up = hung_up

    # -- the connection --------------------------------------------------------------------

    def send_400_response(self, msg: str) -> None:
        if self._answering:  # the answer to the sync comes first
            self._closes = True
        elif not self.transport.is_closing():
            super().send_400_response(msg)
            self._give_up_cycles()

    def _give_up_cycles(self) -> None:
        """Stop requests without an answer: uvicorn would write to a connection that is closed."""
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
        """Whether the connection has been silent for so long that it may be closed. This is asked
        now and then: a timer for each answer would cost more than sending the answer."""
        return 0 < self._resting_since < now - self.timeout_keep_alive

    def _refuse(self, problem: HttpProblem) -> None:
        """Refuse the sync, and read no more of it."""
        self._sync = None
        self._answering = self._closes = True
        self._respond(of_problem(problem))
        raise ValueError(problem.detail)  # stops the parser

    def _respond(self, response: Response) -> None:
        if not self._answering:
            return  # the connection is closed
        self._answering, self._hung_up = False, None
        self._give_back()
        self.server_state.total_requests += 1
        if response.status >= 400:
            owner = STRANGERS if self._problem is not None else self._caller.who.owner
            self.refusals.answered(response.status, owner)
        if self.transport.is_closing():
            return
        if self.flow.write_paused:  # the pilot has not read its last answer
            abort(self.transport)
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


class _Quick(TimedProtocol, QuickProtocol):
    """With time limits for requests."""

    def look(self, now: float) -> bool:
        if self.has_rested(now) and not self.transport.is_closing():
            self.transport.close()
        return super().look(now)


def protocol_for(
    syncs: Syncs, budget: Shares, refusals: Refusals, unread: Shares | None = None
) -> type[asyncio.Protocol]:
    """The class of uvicorn's protocol objects. `unread`: bytes of answers that clients have not
    read yet."""
    unread = unread or Shares(UNREAD_BYTES)
    attributes = {"syncs": syncs, "budget": budget, "refusals": refusals, "unread": unread}
    return type("Quick", (_Quick,), attributes)


def _later(problem: HttpProblem) -> HttpProblem:
    """If the pilot's owner has its whole share, the pilot sends the same sync again later (503);
    the sync itself is not wrong."""
    if problem.status != 429:
        return problem
    return HttpProblem(503, "unavailable", problem.detail, problem.retry_seconds)


def of_problem(problem: HttpProblem) -> Response:
    return Response(problem.status, problem.body(), tuple(problem.headers()))


def _length(headers: Headers) -> int:
    """The length of the body; -1: the headers do not say it."""
    for name, value in headers:
        if name == b"content-length":
            return int(value)  # the parser has checked it
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
