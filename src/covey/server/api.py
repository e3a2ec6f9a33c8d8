"""The REST API for people: everything the console, the CLI and Python show or do.

Live bags are answered from core, the rest from the record, read in a thread of its own so that
readers never hold up the engine.
"""

import asyncio
import hmac
import os
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from covey import __version__
from covey.core.actions import Refuse, ReplyMessage
from covey.core.events import BagSubmitted, CancelRequested, Event, RetryRequested
from covey.core.model import BagId, BagSpec, RequestId
from covey.core.state import Bag, State
from covey.ports import Reader
from covey.server.gateway import Gateway, Unavailable
from covey.server.pilots import read_body
from covey.server.problems import HttpProblem, from_refusal
from covey.server.views import bag_view, pilot_view, running_rows
from covey.wire import BagView, ServerView

MOST_BYTES = 64 << 20
MOST_ROWS = 10_000
LONGEST_WAIT = 60.0

Found = TypeVar("Found")
Handler = Callable[[Request], Awaitable[Any]]


class Api:
    def __init__(
        self,
        *,
        gateway: Gateway,
        reader: Callable[[], Reader],
        token: str,
        started: float,
        store: str,
        stop: Callable[[bool], int],
    ) -> None:
        self._gateway = gateway
        self._reader = reader
        self._token = token.encode()
        self._started = started
        self._store = store
        self._stop = stop
        self._changed = asyncio.Event()
        self._ending = False
        self.last_request = started
        self.open_requests = 0

    def routes(self) -> list[Route]:
        def route(path: str, handler: Handler, method: str = "GET") -> Route:
            return Route("/api/v1" + path, self._guarded(handler), methods=[method])

        return [
            route("/server", self._server),
            route("/stop", self._stop_server, "POST"),
            route("/pilots", self._pilots),
            route("/bags", self._submit, "POST"),
            route("/bags", self._bags),
            route("/bags/{bag}", self._bag),
            route("/bags/{bag}/cancel", self._cancel, "POST"),
            route("/bags/{bag}/retry", self._retry, "POST"),
            route("/bags/{bag}/results", self._results),
            route("/bags/{bag}/running", self._running),
            route("/bags/{bag}/tasks/{task}", self._attempts),
            route("/bags/{bag}/tasks/{task}/output", self._output),
        ]

    def note_change(self) -> None:
        """Something became durable: let those who wait for news look again."""
        self._changed.set()
        self._changed = asyncio.Event()

    def end(self) -> None:
        """The server is about to end: answer those who wait, and take no more orders."""
        self._ending = True
        self.note_change()

    def _guarded(self, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
        async def guarded(request: Request) -> Response:
            given = request.headers.get("authorization", "").encode()
            if not hmac.compare_digest(given, b"Bearer " + self._token):
                raise HttpProblem(401, "unauthorized", "the token is missing or wrong")
            self.open_requests += 1
            try:
                content = await handler(request)
            finally:
                self.open_requests -= 1
                self.last_request = asyncio.get_running_loop().time()
            status = 201 if handler == self._submit else 200
            return Response(msgspec.json.encode(content), status, media_type="application/json")

        return guarded

    # -- doing -----------------------------------------------------------------------------

    async def _submit(self, request: Request) -> ReplyMessage:
        body = await read_body(request.scope, request.receive, MOST_BYTES)
        try:
            spec = msgspec.json.decode(body, type=BagSpec)
        except (msgspec.DecodeError, RecursionError) as error:
            raise HttpProblem(400, "invalid", f"bag: {error}") from error
        return await self._ask(lambda number: BagSubmitted(number, spec))

    async def _cancel(self, request: Request) -> ReplyMessage:
        bag = await self._bag_id(request)
        return await self._ask(lambda number: CancelRequested(number, bag))

    async def _retry(self, request: Request) -> ReplyMessage:
        bag = await self._bag_id(request)
        return await self._ask(lambda number: RetryRequested(number, bag))

    async def _ask(self, event_for: Callable[[RequestId], Event]) -> ReplyMessage:
        if self._ending:
            raise HttpProblem(503, "unavailable", "the server is ending", 1)
        _, answering = self._gateway.ask(event_for)
        outcome = await answering
        if isinstance(outcome, Refuse | Unavailable):
            raise from_refusal(outcome)
        return outcome

    async def _stop_server(self, request: Request) -> dict[str, int]:
        return {"count": self._stop(request.query_params.get("drain", "0") == "1")}

    # -- seeing ----------------------------------------------------------------------------

    async def _server(self, _: Request) -> ServerView:
        engine = self._gateway.engine
        state = self._state()
        return ServerView(
            version=__version__,
            epoch=state.epoch if state else 0,
            pid=os.getpid(),
            started=self._started,
            state=(engine.trouble if engine else "starting") or "ready",
            store=self._store,
            bags=len(state.bags) if state else 0,
            pilots=len(state.pilots) if state else 0,
            slots=state.slots() if state else 0,
        )

    async def _pilots(self, _: Request) -> list[Any]:
        state = self._state()
        if state is None:
            return await self._read(lambda reader: reader.pilots())
        return [pilot_view(pilot) for pilot in reversed(state.pilots.values())]

    async def _bags(self, _: Request) -> list[BagView]:
        found = await self._read(lambda reader: reader.bags())
        return [self._live_view(view) for view in found]

    async def _bag(self, request: Request) -> BagView:
        bag = await self._bag_id(request)
        seen = number(request, "seen", -1)
        until = self._deadline(request)
        while True:
            changed = self._changed
            view = await self._view(bag)
            if view.over or view.done + view.failed != seen or not await self._news(changed, until):
                return view

    async def _results(self, request: Request) -> list[Any]:
        bag = await self._bag_id(request)
        after, limit = number(request, "after", -1), number(request, "limit", 1000)
        by_row = request.query_params.get("order", "task") == "row"
        failed = request.query_params.get("failed", "0") == "1"
        until = self._deadline(request)
        while True:
            changed, live = self._changed, bag in self._live()  # as of before the reading
            rows = await self._read(
                lambda reader: reader.results(
                    bag, after, min(limit, MOST_ROWS), by_row=by_row, failed_only=failed
                )
            )
            if rows or not live or not await self._news(changed, until):
                return rows

    async def _running(self, request: Request) -> list[Any]:
        bag = self._live().get(await self._bag_id(request))
        state = self._state()
        if bag is None or state is None:
            return []
        return running_rows(state, bag, min(number(request, "limit", 1000), MOST_ROWS))

    async def _attempts(self, request: Request) -> list[Any]:
        bag, task = await self._bag_id(request), number(request, "task", -1)
        return await self._read(lambda reader: reader.attempts(bag, task))

    async def _output(self, request: Request) -> Any:
        bag, task = await self._bag_id(request), number(request, "task", -1)
        found = await self._read(lambda reader: reader.output(bag, task))
        if found is None:
            raise HttpProblem(404, "not-found", f"task {task} of bag {bag} has no output yet")
        return found

    # -- inside ----------------------------------------------------------------------------

    def _state(self) -> State | None:
        engine = self._gateway.engine
        return engine.scheduler.state if engine and engine.scheduler else None

    def _live(self) -> dict[BagId, Bag]:
        state = self._state()
        return state.bags if state else {}

    async def _read(self, read: Callable[[Reader], Found]) -> Found:
        return await asyncio.to_thread(lambda: read(self._reader()))

    async def _view(self, bag: BagId) -> BagView:
        live = self._live().get(bag)
        if live is not None:
            return bag_view(live)
        found = await self._read(lambda reader: reader.bag(bag))
        if found is None:
            raise HttpProblem(404, "not-found", f"there is no bag {bag}")
        return found

    def _live_view(self, view: BagView) -> BagView:
        live = self._live().get(BagId(view.id))
        return bag_view(live) if live is not None else view

    async def _bag_id(self, request: Request) -> BagId:
        text = request.path_params["bag"]
        if text != "latest":
            return BagId(number(request, "bag", 0))
        state = self._state()
        if state is not None and state.next_bag > 1:
            return BagId(state.next_bag - 1)
        raise HttpProblem(404, "not-found", "there are no bags yet")

    async def _news(self, changed: asyncio.Event, until: float) -> bool:
        """Wait for news; False when it is time to answer without."""
        left = until - asyncio.get_running_loop().time()
        if left <= 0 or self._ending:
            return False
        try:
            await asyncio.wait_for(changed.wait(), left)
        except TimeoutError:
            return False
        return True

    def _deadline(self, request: Request) -> float:
        wait = min(float(number(request, "wait", 0)), LONGEST_WAIT)
        return asyncio.get_running_loop().time() + wait


def number(request: Request, name: str, default: int) -> int:
    text: str = request.path_params.get(name) or request.query_params.get(name, str(default))
    try:
        value = int(float(text))
    except (ValueError, OverflowError):
        raise HttpProblem(400, "invalid", f"{name} must be a number, not {text!r}") from None
    if abs(value) > 2**53:
        raise HttpProblem(400, "invalid", f"{name} is out of range")
    return value
