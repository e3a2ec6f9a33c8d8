"""Between requests that wait and an engine that answers: the Replies port.

Each request gets a number and a future. The engine answers most of them within the same call;
the rest (parked syncs, whatever waits for a commit) later. There is a bound on how many may wait:
beyond it the server says so at once instead of queueing.
"""

import asyncio
from collections.abc import Callable

from msgspec import Struct

from covey.core.actions import Refuse, Reply, ReplyMessage
from covey.core.events import Event, RequestDropped
from covey.core.model import PilotId, RequestId
from covey.engine import Engine

MOST_WAITING = 20_000
MOST_BACKLOG = 20_000
BUSY_SECONDS = 2


class Unavailable(Struct, frozen=True):
    """Come back later."""

    reason: str
    retry_seconds: int = BUSY_SECONDS


Outcome = ReplyMessage | Refuse | Unavailable


class Gateway:
    """`handle` feeds the engine; whatever it raises has stopped the server already."""

    def __init__(self, handle: Callable[[Event], None], backlog: Callable[[], int]) -> None:
        self.engine: Engine | None = None
        self._handle = handle
        self._backlog = backlog
        self._waiting: dict[RequestId, asyncio.Future[Outcome]] = {}
        self._last = 0

    def ask(self, event_for: Callable[[RequestId], Event]) -> tuple[RequestId, "Answering"]:
        """Put a request to the engine. The future may be done on return."""
        loop = asyncio.get_running_loop()
        self._last += 1
        request = RequestId(self._last)
        future: asyncio.Future[Outcome] = loop.create_future()
        if self.engine is None:
            future.set_result(Unavailable("the server is starting"))
        elif len(self._waiting) >= MOST_WAITING or self._backlog() >= MOST_BACKLOG:
            future.set_result(Unavailable("too many requests are waiting"))
        else:
            self._waiting[request] = future
            self._handle(event_for(request))
        return request, future

    def tell(self, event: Event) -> None:
        """Put to the engine what has no answer."""
        if self.engine is not None:
            self._handle(event)

    def hung_up(self, request: RequestId, pilot: PilotId | None) -> None:
        """Whoever asked has gone; of a pilot, the engine wants to know."""
        if self._waiting.pop(request, None) is not None and pilot is not None:
            self._handle(RequestDropped(request, pilot))

    def waiting(self) -> int:
        return len(self._waiting)

    # -- the Replies port ------------------------------------------------------------------

    def reply(self, reply: Reply) -> None:
        self._settle(reply.request, reply.message)

    def refuse(self, refuse: Refuse) -> None:
        self._settle(refuse.request, refuse)

    def unavailable(self, request: RequestId | None, reason: str) -> None:
        for one in [request] if request is not None else list(self._waiting):
            self._settle(one, Unavailable(reason))

    def _settle(self, request: RequestId, outcome: Outcome) -> None:
        future = self._waiting.pop(request, None)
        if future is not None and not future.done():
            future.set_result(outcome)


Answering = asyncio.Future[Outcome]
