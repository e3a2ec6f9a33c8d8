"""The REST API for people: everything the console, the CLI and Python show or do.

Here are its frame, which lets in only those who show the token, and the list of its routes. Live
bags are answered from core, the rest from the record.
"""

import asyncio
import hmac
import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from covey import __version__
from covey.server.admission import Admission
from covey.server.asking import Asking
from covey.server.bags import BagCalls
from covey.server.problems import HttpProblem
from covey.server.results import ResultCalls
from covey.server.tails import Tails
from covey.server.views import host_views, pilot_view
from covey.wire import HostView, PilotView, ServerView

# What it gives becomes JSON, unless it is a Response.
Handler = Callable[[Request], Awaitable[Any]]
Endpoint = Callable[[Request], Awaitable[Response]]
PREFIX = "/api/v1"


class FileRoutes(Protocol):
    """Uploads and downloads; `guarded` makes an endpoint of a handler."""

    def routes(self, guarded: Callable[[Handler], Endpoint]) -> list[Route]: ...


class Api:
    def __init__(
        self,
        *,
        asking: Asking,
        admission: Admission,
        tails: Tails,
        files: FileRoutes,
        token: str,
        store: str,
        stop: Callable[[bool], int],
    ) -> None:
        self._asking = asking
        self._bags = BagCalls(asking, admission)
        self._results = ResultCalls(asking, tails)
        self._files = files
        self._token = token.encode()
        self._started = asking.clock.now()
        self._store = store
        self._stop = stop
        self.last_request = asyncio.get_running_loop().time()
        self.open_requests = 0

    def routes(self) -> list[BaseRoute]:
        def route(path: str, handler: Handler, method: str = "GET", status: int = 200) -> Route:
            return Route(PREFIX + path, self.guarded(handler, status), methods=[method])

        bags, results = self._bags, self._results
        return [
            route("/server", self._server),
            route("/stop", self._stop_server, "POST"),
            route("/pilots", self._pilots),
            route("/hosts", self._hosts),
            route("/bags", bags.submit, "POST", 201),
            route("/bags", bags.all),
            route("/bags/{bag}", bags.one),
            route("/bags/{bag}/append", bags.append, "POST"),
            route("/bags/{bag}/close", bags.close, "POST"),
            route("/bags/{bag}/cancel", bags.cancel, "POST"),
            route("/bags/{bag}/pause", bags.pause, "POST"),
            route("/bags/{bag}/resume", bags.resume, "POST"),
            route("/bags/{bag}/retry", bags.retry, "POST"),
            route("/bags/{bag}/purge", bags.purge, "POST"),
            route("/bags/{bag}/running", bags.running),
            route("/bags/{bag}/results", results.results),
            route("/bags/{bag}/failures", results.failures),
            route("/bags/{bag}/files", results.files),
            route("/bags/{bag}/live", results.live),
            route("/bags/{bag}/tasks/{task}", results.attempts),
            route("/bags/{bag}/tasks/{task}/output", results.output),
            *self._files.routes(self.guarded),
        ]

    def guarded(self, handler: Handler, status: int = 200) -> Endpoint:
        """An endpoint for those who show the token."""

        async def endpoint(request: Request) -> Response:
            given = request.headers.get("authorization", "").encode()
            if not hmac.compare_digest(given, b"Bearer " + self._token):
                raise HttpProblem(401, "unauthorized", "the token is missing or wrong")
            with self._counted():
                found = await handler(request)
            if isinstance(found, Response):
                return _Counted(found, self._counted)
            return Response(msgspec.json.encode(found), status, media_type="application/json")

        return endpoint

    @contextmanager
    def _counted(self) -> Iterator[None]:
        self.open_requests += 1
        try:
            yield
        finally:
            self.open_requests -= 1
            self.last_request = asyncio.get_running_loop().time()

    async def _stop_server(self, request: Request) -> dict[str, int]:
        return {"count": self._stop(request.query_params.get("drain", "0") == "1")}

    async def _server(self, _: Request) -> ServerView:
        state = self._asking.state()
        return ServerView(
            version=__version__,
            epoch=state.epoch if state else 0,
            pid=os.getpid(),
            started=self._started,
            state=self._asking.trouble or "ready",
            store=self._store,
            bags=len(state.bags) if state else 0,
            pilots=len(state.pilots) if state else 0,
            slots=state.slots() if state else 0,
        )

    async def _pilots(self, _: Request) -> list[PilotView]:
        state = self._asking.state()
        if state is None:
            return await self._asking.read(lambda reader: reader.pilots())
        return [pilot_view(pilot) for pilot in reversed(state.pilots.values())]

    async def _hosts(self, _: Request) -> list[HostView]:
        recorded = await self._asking.read(lambda reader: reader.hosts())
        state = self._asking.state()
        return recorded if state is None else host_views(state, recorded)


class _Counted(Response):
    """A long answer is a request until its last byte is sent."""

    def __init__(self, inner: Response, counted: Callable[[], Any]) -> None:
        self._inner = inner
        self._counted = counted

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._counted():
            await self._inner(scope, receive, send)
