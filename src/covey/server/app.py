"""The server's face: pilots' calls in front, the API, health and metrics behind."""

from collections.abc import Callable, MutableMapping
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from covey.engine import Engine
from covey.server.api import Api
from covey.server.load import Budget
from covey.server.pilots import PREFIX, PilotCalls, Receive, Scope, Send
from covey.server.problems import HttpProblem


class App:
    """An ASGI application; everything it needs is handed to it."""

    def __init__(
        self,
        *,
        engine: Engine,
        pilots: PilotCalls,
        api: Api,
        metrics: Callable[[], bytes],
        budget: Budget | None = None,
    ) -> None:
        self._engine = engine
        self._budget = budget or Budget()
        self._pilots = pilots
        self._metrics = metrics
        self._rest = Starlette(
            routes=[
                Route("/healthz", self._health),
                Route("/metrics", self._show_metrics),
                *api.routes(),
            ],
            exception_handlers={
                HttpProblem: _problem,
                404: _not_found,
                405: _wrong_method,
            },
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or "/files/" in scope["path"]:  # these go to disk as they come
            await self._answer(scope, receive, send)
            return
        counted = _Counted(receive, self._budget)
        try:
            await self._answer(scope, counted, send)
        finally:
            self._budget.give(counted.taken)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].startswith(PREFIX):
            await self._pilots(scope, receive, send)
        else:
            await self._rest(scope, receive, send)

    async def _health(self, _: Request) -> Response:
        trouble = self._engine.trouble
        body = msgspec.json.encode({"status": trouble or "ready"})
        return Response(body, 503 if trouble else 200, media_type="application/json")

    async def _show_metrics(self, _: Request) -> Response:
        return Response(self._metrics(), media_type="text/plain; version=0.0.4; charset=utf-8")


class _Counted:
    """What a request has brought so far counts against what all may have here at once."""

    def __init__(self, receive: Receive, budget: Budget) -> None:
        self._receive = receive
        self._budget = budget
        self.taken = 0

    async def __call__(self) -> MutableMapping[str, Any]:
        message = await self._receive()
        size = len(message.get("body", b""))
        if not self._budget.take(size):
            words = "too much is being sent to this server; come again"
            raise HttpProblem(503, "unavailable", words, 2)
        self.taken += size
        return message


async def _not_found(request: Request, _: Exception) -> Response:
    return await _problem(
        request, HttpProblem(404, "not-found", f"nothing is at {request.url.path}")
    )


async def _wrong_method(request: Request, _: Exception) -> Response:
    return await _problem(request, HttpProblem(405, "invalid", f"{request.method} is not for this"))


async def _problem(_: Request, error: Exception) -> Response:
    assert isinstance(error, HttpProblem)
    headers = {name.decode(): value.decode() for name, value in error.headers()}
    return Response(error.body(), error.status, headers)
