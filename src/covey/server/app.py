"""The server's face: pilots' calls in front, the API, health and metrics behind."""

from collections.abc import Callable

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from covey.engine import Engine
from covey.server.api import Api
from covey.server.pilots import PREFIX, PilotCalls, Receive, Scope, Send
from covey.server.problems import HttpProblem


class App:
    """An ASGI application; everything it needs is handed to it."""

    def __init__(
        self, *, engine: Engine, pilots: PilotCalls, api: Api, metrics: Callable[[], bytes]
    ) -> None:
        self._engine = engine
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
