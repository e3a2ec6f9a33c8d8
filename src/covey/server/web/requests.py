"""What the API's handlers share: asking the engine, reading the record, waiting for news.

The engine is asked in the event loop's thread. The record is read in other threads, so that
readers never hold up the engine.
"""

import asyncio
import re
from collections.abc import Callable
from typing import TypeVar

import msgspec
from starlette.requests import Request

from covey.core.errors import InvalidQuery, NotFound, PageTooLong, StoreError, TookTooLong
from covey.core.record.actions import Refuse, ReplyMessage
from covey.core.record.events import Event
from covey.core.record.model import BagId, RequestId
from covey.core.state import Bag, State
from covey.pilot.protocol.messages import TOO_LARGE
from covey.ports import Clock, Reader
from covey.server.api.pilots import read_body
from covey.server.limits.shares import READS, Workers, asks_now
from covey.server.web.auth import Caller
from covey.server.web.gateway import Gateway, Unavailable
from covey.server.web.problems import HttpProblem, from_refusal

MOST_BYTES = 32 << 20
MOST_COMMAS = 1_000_000  # a body has no more values than commas; reading more takes long
MOST_NUMBER = 2**53  # larger ones are not exact in every JSON reader
LONGEST_WAIT = 60.0
MOST_OWNERS = 10_000  # of bags that are over
TOO_LONG = (
    "this query took too long, so the server stopped it. Ask for less: leave out 'sort' and "
    "'offset', or use fewer comparisons; or get a file (format=csv or jsonl): it has more time"
)

# Python reads more than these as numbers: 1_0, ٣, nan.
_WHOLE = re.compile(r"-?[0-9]{1,30}")
_DECIMAL = re.compile(r"-?[0-9]{1,30}(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,3})?")

T = TypeVar("T")
Number = TypeVar("Number", int, float)


class Asking:
    def __init__(self, gateway: Gateway, reader: Callable[[], Reader], clock: Clock) -> None:
        self._gateway = gateway
        self.reader = reader  # one per thread
        self.clock = clock
        self.changed = asyncio.Event()  # set, and replaced, whenever something became durable
        self._ending = False
        self._readers = Workers(READS, "reading")
        self._owners: dict[BagId, str] = {}  # an owner never changes

    def note_change(self) -> None:
        """Something became durable: let those who wait for news look again."""
        self.changed.set()
        self.changed = asyncio.Event()

    def end(self) -> None:
        """The server is about to end: answer those who wait, and take no more orders."""
        self._ending = True
        self.note_change()

    # -- the engine ------------------------------------------------------------------------

    @property
    def trouble(self) -> str:
        engine = self._gateway.engine
        return engine.trouble if engine else "starting"

    def state(self) -> State | None:
        engine = self._gateway.engine
        return engine.scheduler.state if engine and engine.scheduler else None

    def live(self, bag: BagId) -> Bag | None:
        state = self.state()
        return state.bags.get(bag) if state else None

    async def ask(self, event_for: Callable[[RequestId], Event]) -> ReplyMessage:
        """The engine's answer, when what it says is durable."""
        if self._ending:
            raise HttpProblem(503, "unavailable", "the server is shutting down", 1)
        _, answering = self._gateway.ask(event_for)
        outcome = await answering
        if isinstance(outcome, Refuse | Unavailable):
            raise from_refusal(outcome)
        return outcome

    def tell(self, event: Event) -> None:
        """For an event that has no answer."""
        self._gateway.tell(event)

    # -- the record ------------------------------------------------------------------------

    async def read(self, read: Callable[[Reader], T]) -> T:
        """On the account of whoever's request this is."""
        return await self._readers.run(asks_now.get(), lambda: reading(lambda: read(self.reader())))

    # -- news ------------------------------------------------------------------------------

    async def news(self, until: float, *events: asyncio.Event) -> bool:
        """Wait for one of these; False when it is time to answer without."""
        left = until - asyncio.get_running_loop().time()
        if left <= 0 or self._ending:
            return False
        if len(events) == 1:  # most wait for that, and some for every millisecond
            try:
                async with asyncio.timeout(left):
                    await events[0].wait()
            except TimeoutError:
                return False
            return not self._ending
        waits = [asyncio.ensure_future(event.wait()) for event in events]
        try:
            done, _ = await asyncio.wait(waits, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        return bool(done) and not self._ending

    # -- requests --------------------------------------------------------------------------

    def bag_id(self, request: Request) -> BagId:
        """The bag that the address names, once it is known."""
        bag: BagId = request.state.bag
        return bag

    async def named_bag(self, request: Request) -> BagId:
        """The bag that the address names, which there is or was."""
        state = self.state()
        if request.path_params["bag"] == "latest":
            if state is None:
                raise HttpProblem(503, "unavailable", self.trouble, 1)
            return await self._latest(state, caller_of(request))
        bag = BagId(number(request, "bag", 0))
        if bag < 1 or (state is not None and bag >= state.counters.next_bag):
            raise HttpProblem(404, "not-found", f"there is no bag {bag}")
        return bag

    async def _latest(self, state: State, caller: Caller) -> BagId:
        """The last one that this caller submitted."""
        if caller.trusted and state.counters.next_bag > 1:
            return BagId(state.counters.next_bag - 1)
        found = [] if caller.trusted else await self.read(lambda reader: reader.bags())
        for view in found:
            if view.owner == caller.owner:
                return BagId(view.id)
        raise HttpProblem(404, "not-found", "there are no bags yet")

    async def owner(self, bag: BagId) -> str:
        """Whose bag it is. Raises HttpProblem if it is not there any more."""
        live = self.live(bag)
        if live is not None:
            return live.spec.owner
        if bag not in self._owners:
            found = await self.read(lambda reader: reader.bag(bag))
            if found is None:
                raise HttpProblem(404, "not-found", f"there is no bag {bag}")
            if len(self._owners) >= MOST_OWNERS:
                self._owners.clear()
            self._owners[bag] = found.owner
        return self._owners[bag]


def caller_of(request: Request) -> Caller:
    """Whoever makes this request, and has been let in."""
    caller: Caller = request.state.caller
    return caller


def reading(read: Callable[[], T]) -> T:
    """Whatever the record may raise, as an answer."""
    try:
        return read()
    except TookTooLong as error:
        raise HttpProblem(400, "too-long", TOO_LONG) from error
    except PageTooLong as error:
        raise HttpProblem(413, TOO_LARGE, str(error)) from error
    except InvalidQuery as error:
        raise HttpProblem(400, "invalid", str(error)) from error
    except NotFound as error:
        raise HttpProblem(404, "not-found", str(error)) from error
    except StoreError as error:
        raise HttpProblem(503, "unavailable", f"the record cannot be read: {error}", 2) from error


async def order(request: Request, kind: type[T], default: T | None = None) -> T:
    """The body of a request, checked. Without a body: the default, if there is one."""
    body = await read_body(request.scope, request.receive, MOST_BYTES)
    if not body and default is not None:
        return default
    if body.count(b",") > MOST_COMMAS:
        words = f"more than {MOST_COMMAS:,} values in one request: send them as a file of rows"
        raise HttpProblem(413, "too-large", words)
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise HttpProblem(400, "invalid", f"the request's body is not valid: {error}") from error


def number(request: Request, name: str, default: int) -> int:
    text = _said(request, name, str(default))
    if not _WHOLE.fullmatch(text):
        raise HttpProblem(400, "invalid", f"{name} must be a whole number, not {text[:100]!r}")
    return _in_range(name, int(text))


def deadline(request: Request, longest: float = LONGEST_WAIT) -> float:
    """When to answer at the latest, by the event loop's clock."""
    text = _said(request, "wait", "0")
    if not _DECIMAL.fullmatch(text):
        raise HttpProblem(400, "invalid", f"wait must be a number, not {text[:100]!r}")
    wait = _in_range("wait", float(text))
    return asyncio.get_running_loop().time() + min(wait, longest)


def choice(request: Request, name: str, *allowed: str) -> str:
    """One of these; the first if nothing is said."""
    found: str = request.query_params.get(name, allowed[0])
    if found not in allowed:
        raise HttpProblem(400, "invalid", f"{name} must be {_either(allowed)}, not {found!r}")
    return found


def _said(request: Request, name: str, default: str) -> str:
    found: str = request.path_params.get(name) or request.query_params.get(name, default)
    return found


def _in_range(name: str, value: Number) -> Number:
    if abs(value) > MOST_NUMBER:
        raise HttpProblem(400, "invalid", f"{name} is out of range")
    return value


def _either(words: tuple[str, ...]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"
