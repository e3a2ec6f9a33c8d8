"""The REST API for people, which the command line and Python use.

This module checks each request's permissions and calls its handler. Routes are declared in front of
their handlers (`route`). Answers about live bags come from core, others from the record.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.types import Receive, Scope, Send

from covey import __version__
from covey.core.record.model import BagId, Role
from covey.server.api import openapi
from covey.server.api.bags import BagCalls
from covey.server.api.hosts import HostCalls
from covey.server.api.metrics import ServerFacts
from covey.server.api.policies import PolicyCalls
from covey.server.api.results import ResultCalls
from covey.server.api.server import ServerCalls
from covey.server.api.tokens import TokenCalls
from covey.server.limits.admission import Admission
from covey.server.limits.shares import REQUESTS, Shares, Who, asks_now
from covey.server.limits.tails import Tails
from covey.server.web import auth, connections
from covey.server.web.auth import Needs
from covey.server.web.problems import HttpProblem
from covey.server.web.refusals import Refusals
from covey.server.web.requests import ServerAccess, caller_of
from covey.server.web.route import Endpoint, Handler, RouteDescription, routes_of

MOST_AT_ONCE = 1000  # rows encoded in one step; other requests are served between two steps


class Api:
    def __init__(
        self,
        *,
        access: ServerAccess,
        admission: Admission,
        tails: Tails,
        files: object,
        token: str,
        store: str,
        stop: Callable[[bool], int],
        more: Sequence[object] = (),
        refusals: Refusals | None = None,
        removing: Callable[[BagId], bool] = lambda bag: False,
        server_facts: Callable[[], ServerFacts] | None = None,
    ) -> None:
        """`token`: the server's own. `removing`: whether the store is still removing a bag. `files`
        and `more` are objects with declared routes."""
        self._requests = Shares(REQUESTS)
        self._access = access
        self._guard = auth.Guard(token, access.decider)
        server = ServerCalls(
            access,
            store=store,
            stop=stop,
            description=openapi.text,
            refusals=refusals or Refusals(),
            server_facts=server_facts or (lambda: ServerFacts(__version__, 0, 0.0)),
        )
        self._handlers: list[object] = [
            server,
            HostCalls(access),
            TokenCalls(access),
            BagCalls(access, admission, removing),
            PolicyCalls(access),
            ResultCalls(access, tails),
            files,
            *more,
        ]
        self.last_request = asyncio.get_running_loop().time()
        self.open_requests = 0

    def routes(self) -> list[BaseRoute]:
        return [route for holder in self._handlers for route in routes_of(holder, self.guarded)]

    def guarded(self, handler: Handler, description: RouteDescription) -> Endpoint:
        """An endpoint that checks permissions before it calls the handler."""
        needs = description.needs
        assert needs is not None

        async def endpoint(request: Request) -> Response:
            caller, who = self._let_in(request)
            auth.admit(caller, needs.role)
            request.state.caller = caller
            with self._counted(who):
                if "bag" in request.path_params:
                    await self._find_bag(request, needs)
                answer = await handler(request)
            if isinstance(answer, Response):
                return _CountedResponse(answer, lambda: self._counted(who))
            body = await _encoded(answer)
            return Response(body, description.status, media_type="application/json")

        endpoint.needs = needs  # type: ignore[attr-defined]
        return endpoint

    def _let_in(self, request: Request) -> tuple[auth.Caller, Who]:
        """Check the token, before the request's body is read. Raises HttpProblem."""
        try:
            caller = self._guard.caller(request.headers.get("authorization", ""))
        except HttpProblem as problem:
            if problem.status == 401:
                connections.unknown(request.scope)
            raise
        who = Who(caller.owner, caller.may(Role.ADMIN))
        connections.known(request.scope, who)
        asks_now.set(who)
        return caller, who

    async def _find_bag(self, request: Request, needs: Needs) -> None:
        """Find the bag in the address, and check that the caller may use it."""
        bag = request.state.bag = await self._access.named_bag(request)
        caller = caller_of(request)
        if needs.own and not caller.may(Role.ADMIN):
            auth.admit_to(caller, await self._access.owner(bag), f"bag {bag}")

    @contextmanager
    def _counted(self, who: Who) -> Iterator[None]:
        """Count an open request. Raises HttpProblem if its owner has too many."""
        self._requests.demand(who)
        self.open_requests += 1
        try:
            yield
        finally:
            self._requests.give(who)
            self.open_requests -= 1
            self.last_request = asyncio.get_running_loop().time()


async def _encoded(answer: Any) -> bytes:
    """The answer as JSON. A long list is encoded in steps."""
    if not isinstance(answer, list) or len(answer) <= MOST_AT_ONCE:
        return msgspec.json.encode(answer)
    parts: list[bytes] = []
    for start in range(0, len(answer), MOST_AT_ONCE):
        parts.append(msgspec.json.encode(answer[start : start + MOST_AT_ONCE])[1:-1])
        await asyncio.sleep(0)
    return b"[" + b",".join(parts) + b"]"


class _CountedResponse(Response):
    """Counts a request as open until the last byte of its answer is sent."""

    def __init__(self, inner: Response, counted: Callable[[], Any]) -> None:
        self._inner = inner
        self._counted = counted

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._counted():
            await self._inner(scope, receive, send)
