"""Connects waiting requests with the engine that answers them: the Replies port.

Each request has a number and a function that takes its answer. The engine answers most requests
within the same call, and the rest later (parked syncs, and requests that wait for a commit). The
gateway refuses requests when the load is too high, which it measures while requests come (`load`).
The number of waiting requests is bounded, and a part of it is reserved for people.
"""

import asyncio
import logging
from collections.abc import Callable
from random import Random

from msgspec import Struct

from covey.core.record.actions import Problem, Refuse, Reply, ReplyMessage
from covey.core.record.events import Event, PilotEnrolled, PilotLeft, RequestDropped, SyncReceived
from covey.core.record.model import PilotId, RequestId
from covey.server.web.load import SAMPLE_SECONDS, Load, RequestKind, Sample, memory

MOST_WAITING = 20_000
MOST_FOR_PEOPLE = 1_000  # beyond MOST_WAITING
BUSY_SECONDS = 2.0
RESTING_SAMPLES = 20  # samples without a request, after which measuring stops


class Unavailable(Struct, frozen=True):
    """The answer to a request that must be sent again later."""

    reason: str
    retry_seconds: float = BUSY_SECONDS


Outcome = ReplyMessage | Refuse | Unavailable
Answering = asyncio.Future[Outcome]
Tell = Callable[[Outcome], None]


class _Waiting(Struct):
    tell: Tell
    kind: RequestKind
    size: int


class Gateway:
    """`handle` gives the engine an event; if it raises, the server is already stopping."""

    def __init__(
        self,
        handle: Callable[[Event], None],
        backlog: Callable[[], int],
        load: Load | None = None,
    ) -> None:
        self.load = load or Load()
        self._handle = handle
        self._backlog = backlog
        self._waiting: dict[RequestId, _Waiting] = {}
        self._by_kind = dict.fromkeys(RequestKind, 0)
        self._bytes = 0
        self._last = 0
        self._random = Random()
        self._timer: asyncio.TimerHandle | None = None
        self._resting = 0
        self._asked = 0  # the last number when the last sample was taken

    def ask(
        self, event_for: Callable[[RequestId], Event], size: int = 0
    ) -> tuple[RequestId, Answering]:
        """Give a request to the engine. The future may be done on return."""
        future: Answering = asyncio.get_running_loop().create_future()

        def tell(outcome: Outcome) -> None:
            if not future.done():
                future.set_result(outcome)

        return self.put(event_for, tell, size), future

    def put(self, event_for: Callable[[RequestId], Event], tell: Tell, size: int = 0) -> RequestId:
        """The same with a function for the answer, which is called once at most, perhaps at once.
        `size`: the bytes of the request."""
        self._last += 1
        request = RequestId(self._last)
        event = event_for(request)
        kind, key = _kind_of(event)
        if self._timer is None:
            self._begin_to_measure()
        unavailable = self._turned_away(kind, key)
        if unavailable is not None:
            tell(unavailable)
        else:
            self._waiting[request] = _Waiting(tell, kind, size)
            self._by_kind[kind] += 1
            self._bytes += size
            self._handle(event)
        return request

    def tell(self, event: Event) -> None:
        """Give the engine an event that has no answer."""
        self._handle(event)

    def hung_up(self, request: RequestId, pilot: PilotId | None) -> None:
        """The client has closed its connection. The engine is told if it was a pilot."""
        if self._let_go(request) is not None and pilot is not None:
            self._handle(RequestDropped(request, pilot))

    def waiting(self) -> int:
        return len(self._waiting)

    def away(self, reason: str) -> Unavailable:
        """For a request that the engine cannot be asked."""
        return Unavailable(reason, self._spread())

    def _turned_away(self, kind: RequestKind, key: object) -> Unavailable | None:
        most = MOST_WAITING + MOST_FOR_PEOPLE * (kind is RequestKind.PEOPLE)
        if len(self._waiting) >= most:
            return Unavailable(
                f"the server is busy: {most:,} requests are waiting; try again later",
                self._spread(),
            )
        if self.load.calm and kind is not RequestKind.ENROL:
            return None
        seconds = self.load.admit(kind, key, asyncio.get_running_loop().time())
        if seconds:
            return Unavailable(
                "the server is busy; it keeps your place in the line: try again after Retry-After",
                seconds,
            )
        return None

    def _spread(self) -> float:
        """A random wait, so that not all come back at once; longer when many requests wait."""
        return BUSY_SECONDS * (0.5 + self._random.random()) * (1.0 + len(self._waiting) / 5000)

    # -- measuring -------------------------------------------------------------------------

    def _begin_to_measure(self) -> None:
        loop = asyncio.get_running_loop()
        self._resting = 0
        self._timer = loop.call_later(SAMPLE_SECONDS, self._measure, loop, loop.time())

    def _measure(self, loop: asyncio.AbstractEventLoop, before: float) -> None:
        """How late this call comes is how long every other callback waits for its turn."""
        now = loop.time()
        waiting = len(self._waiting) - self._by_kind[RequestKind.ASK]
        late = max(0.0, now - before - SAMPLE_SECONDS)
        sample = Sample(late, self._backlog(), self._bytes, waiting, memory())
        self.load.sampled(sample, now - before, now)
        self._resting = self._resting + 1 if self._last == self._asked else 0
        self._asked = self._last
        if self._resting < RESTING_SAMPLES or self.load.level:
            self._timer = loop.call_later(SAMPLE_SECONDS, self._measure, loop, now)
        else:
            self._timer = None

    # -- the Replies port ------------------------------------------------------------------

    def reply(self, reply: Reply) -> None:
        self._settle(reply.request, reply.message)

    def refuse(self, refuse: Refuse) -> None:
        self._settle(refuse.request, refuse)

    def unavailable(self, request: RequestId | None, reason: str) -> None:
        for number in [request] if request is not None else list(self._waiting):
            self._settle(number, Unavailable(reason, self._spread()))

    def _settle(self, request: RequestId, outcome: Outcome) -> None:
        """An error in one answer must not affect other requests."""
        waiting = self._let_go(request)
        if waiting is None:
            return
        try:
            waiting.tell(outcome)
        except Exception:
            logging.getLogger(__name__).exception("an answer could not be given")
            try:
                words = "the server could not handle this; see its log"
                waiting.tell(Refuse(request, Problem.INTERNAL, words))
            except Exception:
                logging.getLogger(__name__).exception("a refusal could not be given")

    def _let_go(self, request: RequestId) -> _Waiting | None:
        waiting = self._waiting.pop(request, None)
        if waiting is not None:
            self._by_kind[waiting.kind] -= 1
            self._bytes -= waiting.size
        return waiting


def _kind_of(event: Event) -> tuple[RequestKind, object]:
    """The kind of a request, and who sent it."""
    if isinstance(event, SyncReceived):
        return RequestKind.ENDS if event.sync.ends else RequestKind.ASK, event.sync.pilot
    if isinstance(event, PilotEnrolled):
        return RequestKind.ENROL, event.enrol.key
    if isinstance(event, PilotLeft):
        return RequestKind.ENDS, event.leave.pilot
    return RequestKind.PEOPLE, None
