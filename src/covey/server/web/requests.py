"""What the API's handlers share: sending events to the engine, asking the decider, reading the
record, waiting for changes.

The engine and the decider run in the event loop's thread. The record is read in other threads, so
that reading never delays them.
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
from covey.pilot.protocol.messages import TOO_LARGE
from covey.ports import Clock, Reader
from covey.questions.bag_questions import LastBag, OwnerOfBag
from covey.server.api.pilots import read_body
from covey.server.decider import Decider
from covey.server.limits.shares import READS, Workers, asks_now
from covey.server.web.auth import Caller
from covey.server.web.gateway import Gateway, Unavailable
from covey.server.web.problems import HttpProblem, from_refusal, no_bag

AGAIN_SECONDS = 0.5
MOST_BYTES = 32 << 20
MOST_COMMAS = 1_000_000  # bounds the values in a body, and so the time to read it
MOST_NUMBER = 2**53  # not every JSON reader is exact beyond it
LONGEST_WAIT = 60.0
MOST_OWNERS = 10_000  # of ended bags, kept in memory
TOO_LONG = (
    "this query took too long, so the server stopped it. Ask for less: leave out 'sort' and "
    "'offset', or use fewer comparisons; or get a file (format=csv or jsonl): it has more time"
)

# Stricter than Python, which also takes 1_0, ٣ and nan.
_WHOLE = re.compile(r"-?[0-9]{1,30}")
_DECIMAL = re.compile(r"-?[0-9]{1,30}(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,3})?")

T = TypeVar("T")
Number = TypeVar("Number", int, float)


class ServerAccess:
    """The engine, the decider and the record, as handlers of requests use them."""

    def __init__(
        self, gateway: Gateway, decider: Decider, reader: Callable[[], Reader], clock: Clock
    ) -> None:
        self._gateway = gateway
        self.decider = decider
        self.reader = reader  # makes one for each thread
        self.clock = clock
        self.changed = asyncio.Event()  # set, and replaced, after each commit
        self._ending = False
        self._readers = Workers(READS, "reading")
        self._owners: dict[BagId, str] = {}  # an owner never changes

    def note_change(self) -> None:
        """After a commit: let waiting requests look again."""
        self.changed.set()
        self.changed = asyncio.Event()

    def end(self) -> None:
        """The server is about to end: answer waiting requests, and send no more events."""
        self._ending = True
        self.note_change()

    # -- the engine ------------------------------------------------------------------------

    async def ask(self, event_for: Callable[[RequestId], Event]) -> ReplyMessage:
        """The engine's answer, given when it is durable. Raises HttpProblem."""
        if self._ending:
            raise HttpProblem(503, "unavailable", "the server is shutting down; try again later", 1)
        _, answering = self._gateway.ask(event_for)
        outcome = await answering
        if isinstance(outcome, Refuse | Unavailable):
            raise from_refusal(outcome)
        return outcome

    def tell(self, event: Event) -> None:
        """Send an event that has no answer."""
        self._gateway.tell(event)

    # -- the record ------------------------------------------------------------------------

    async def read(self, read: Callable[[Reader], T]) -> T:
        """Read the record, on the account of this request's owner."""
        return await self._readers.run(asks_now.get(), lambda: reading(lambda: read(self.reader())))

    async def read_of(self, bag: BagId, read: Callable[[Reader], T | None]) -> T:
        """What the record has of this bag. Raises HttpProblem if the record does not have it."""
        content = await self.read(read)
        if content is None:
            raise no_bag(bag)
        return content

    # -- news ------------------------------------------------------------------------------

    async def news(self, until: float, *events: asyncio.Event) -> bool:
        """Wait for one of these events; False if none came before `until`."""
        left = until - asyncio.get_running_loop().time()
        if left <= 0 or self._ending:
            return False
        if len(events) == 1:  # the usual case, made quick
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
        """The bag that the address names, which `named_bag` has found."""
        bag: BagId = request.state.bag
        return bag

    async def named_bag(self, request: Request) -> BagId:
        """The bag that the address names. Raises HttpProblem if it never existed."""
        if request.path_params["bag"] == "latest":
            return await self._latest(self.decider.ask(LastBag()), caller_of(request))
        bag = BagId(number(request, "bag", 0))
        last = self.decider.ask_if_ready(LastBag())
        if bag < 1 or (last is not None and bag > last):
            raise no_bag(bag)
        return bag

    async def _latest(self, last: BagId, caller: Caller) -> BagId:
        """The last bag that this caller submitted."""
        if caller.trusted and last:
            return last
        views = [] if caller.trusted else await self.read(lambda reader: reader.bags())
        for view in views:
            if view.owner == caller.owner:
                return BagId(view.id)
        raise HttpProblem(404, "not-found", "there is no latest bag: you have submitted none yet")

    async def owner(self, bag: BagId) -> str:
        """The owner of the bag. Raises HttpProblem if the bag was purged."""
        owner = self.decider.ask_if_ready(OwnerOfBag(bag))
        if owner is not None:
            return owner
        if bag not in self._owners:
            view = await self.read_of(bag, lambda reader: reader.bag(bag))
            if len(self._owners) >= MOST_OWNERS:
                self._owners.clear()
            self._owners[bag] = view.owner
        return self._owners[bag]


def caller_of(request: Request) -> Caller:
    """The caller who was let in with this request."""
    caller: Caller = request.state.caller
    return caller


def reading(read: Callable[[], T]) -> T:
    """Read the record; its errors become HttpProblem."""
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
        words = f"the server cannot read its record: {error}; try again soon"
        raise HttpProblem(503, "unavailable", words, 2) from error


def keep_stopping(reader: Reader, ended: Callable[[], bool]) -> None:
    """Stop what the reader does, again and again until it has ended: a stop between two SQL
    statements stops nothing."""
    if not ended():
        reader.stop()
        asyncio.get_running_loop().call_later(AGAIN_SECONDS, keep_stopping, reader, ended)


async def order(request: Request, kind: type[T], default: T | None = None) -> T:
    """The body of a request, checked. Without a body: `default`, if it is given."""
    body = await read_body(request.scope, request.receive, MOST_BYTES)
    if not body and default is not None:
        return default
    if body.count(b",") > MOST_COMMAS:
        words = (
            f"the request has more than {MOST_COMMAS:,} values; send parameters of tasks as a file "
            "of rows"
        )
        raise HttpProblem(413, "too-large", words)
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise HttpProblem(400, "invalid", f"the body of the request is invalid: {error}") from error


def number(request: Request, name: str, default: int) -> int:
    text = _text(request, name, str(default))
    if not _WHOLE.fullmatch(text):
        raise HttpProblem(400, "invalid", f"{name} must be a whole number, not {text[:100]!r}")
    return _in_range(name, int(text))


def deadline(request: Request, longest: float = LONGEST_WAIT) -> float:
    """When to answer at the latest (event loop's time)."""
    text = _text(request, "wait", "0")
    if not _DECIMAL.fullmatch(text):
        raise HttpProblem(400, "invalid", f"wait must be a number of seconds, not {text[:100]!r}")
    wait = _in_range("wait", float(text))
    return asyncio.get_running_loop().time() + min(wait, longest)


def choice(request: Request, name: str, *allowed: str) -> str:
    """One of the allowed values; the first, if the request has none."""
    value: str = request.query_params.get(name, allowed[0])
    if value not in allowed:
        words = f"{name} must be {_either(allowed)}, not {value[:100]!r}"
        raise HttpProblem(400, "invalid", words)
    return value


def _text(request: Request, name: str, default: str) -> str:
    text: str = request.path_params.get(name) or request.query_params.get(name, default)
    return text


def _in_range(name: str, value: Number) -> Number:
    if abs(value) > MOST_NUMBER:
        raise HttpProblem(400, "invalid", f"{name} must be between -2^53 and 2^53")
    return value


def _either(words: tuple[str, ...]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"
