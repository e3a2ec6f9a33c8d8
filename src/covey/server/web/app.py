"""The ASGI application: requests go to pilots' calls, the API, health or metrics."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route

from covey.core.record.actions import Problem
from covey.core.record.suspects import brief
from covey.server.api.api import Api
from covey.server.api.pilots import PREFIX, PilotCalls, Receive, Scope, Send
from covey.server.decider import Decider
from covey.server.limits.shares import BODY_BYTES, STRANGER_BYTES, Shares, Who
from covey.server.web import connections
from covey.server.web.problems import HttpProblem, wrong_method
from covey.server.web.refusals import STRANGERS, Refusals

THE_SERVERS_OWN = "the server's own token"
_STRANGER = Who(STRANGERS)


class App:
    """Counts the bytes of each request's body, and refusals."""

    def __init__(
        self,
        *,
        decider: Decider,
        pilots: PilotCalls,
        api: Api,
        metrics: Callable[[], Awaitable[bytes]],
        bodies: Shares | None = None,
        refusals: Refusals | None = None,
    ) -> None:
        self._decider = decider
        self._bodies = bodies or Shares(BODY_BYTES)
        self._stranger_bodies = Shares(STRANGER_BYTES)
        self._refusals = refusals or Refusals()
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
                Exception: _internal_error,
            },
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._answer(scope, receive, send)
            return

        async def sending(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start" and message["status"] >= 400:
                who = scope.get(connections.WHO)
                owner = STRANGERS if who is None else who.owner or THE_SERVERS_OWN
                self._refusals.answered(message["status"], owner)
            await send(message)

        if "/files/" in scope["path"]:  # pieces of files go to disk as they arrive
            await self._answer(scope, receive, sending)
            return
        counted = _Counted(scope, receive, self._bodies, self._stranger_bodies)
        try:
            await self._answer(scope, counted, sending)
        finally:
            counted.give_back()

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].startswith(PREFIX):
            await self._pilots(scope, receive, send)
        else:
            await self._rest(scope, receive, send)

    async def _health(self, _: Request) -> Response:
        trouble = self._decider.trouble
        body = msgspec.json.encode({"status": trouble or "ready"})
        return Response(body, 503 if trouble else 200, media_type="application/json")

    async def _show_metrics(self, _: Request) -> Response:
        text = await self._metrics()
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")


class _Counted:
    """Counts the bytes of a body that have arrived against the sender's share. All strangers
    together have one small share."""

    def __init__(self, scope: Scope, receive: Receive, known: Shares, strangers: Shares) -> None:
        self._scope = scope
        self._receive = receive
        self._known = known
        self._strangers = strangers
        self._taken: list[tuple[Shares, Who, int]] = []

    async def __call__(self) -> MutableMapping[str, Any]:
        message = await self._receive()
        size = len(message.get("body", b""))
        if size:
            who = self._scope.get(connections.WHO)
            shares = self._strangers if who is None else self._known
            who = who or _STRANGER
            shares.demand(who, size)
            self._taken.append((shares, who, size))
        return message

    def give_back(self) -> None:
        for shares, who, size in self._taken:
            shares.give(who, size)
        self._taken.clear()


async def _not_found(request: Request, _: Exception) -> Response:
    return await _problem(
        request,
        HttpProblem(
            404, "not-found", f"there is nothing at {request.url.path}; see /api/v1/openapi.json"
        ),
    )


async def _wrong_method(request: Request, _: Exception) -> Response:
    allowed = {
        method
        for route in request.app.routes
        if isinstance(route, Route) and route.matches(request.scope)[0] is not Match.NONE
        for method in (route.methods or ())
    }
    problem = wrong_method(request.method, " or ".join(sorted(allowed - {"HEAD"})))
    return await _problem(request, problem)


async def _internal_error(request: Request, error: Exception) -> Response:
    """Our bug, in this request alone. The exception is raised again, into the log."""
    words = f"the server could not handle this: {brief(error)}; see its log"
    return await _problem(request, HttpProblem(500, Problem.INTERNAL.value, words))


async def _problem(_: Request, error: Exception) -> Response:
    assert isinstance(error, HttpProblem)
    headers = {name.decode(): value.decode() for name, value in error.headers()}
    return Response(error.body(), error.status, headers)
