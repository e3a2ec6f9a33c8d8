"""The REST API for people: everything the console, the CLI and Python show or do.

Here are its frame, which lets in only those who may, and the list of its routes with what each of
them needs. Live bags are answered from core, the rest from the record.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from covey import __version__
from covey.core.record.actions import ReplyMessage
from covey.core.record.events import PilotDismissed
from covey.core.record.model import BagId, PilotId, Role
from covey.server.api import openapi
from covey.server.api.bags import BagCalls
from covey.server.api.metrics import Surroundings
from covey.server.api.policies import PolicyCalls
from covey.server.api.results import ResultCalls
from covey.server.api.tokens import RightCalls
from covey.server.api.views import host_views, hosts_seen_by, pilot_seen_by, pilot_view
from covey.server.limits.admission import Admission
from covey.server.limits.shares import REQUESTS, Shares, Who, asks_now
from covey.server.limits.tails import Tails
from covey.server.web import auth, connections
from covey.server.web.auth import ACT, ACT_ON_OWN, MANAGE, SEE, SEE_OWN, Needs
from covey.server.web.problems import HttpProblem
from covey.server.web.refusals import STRANGERS, Refusals
from covey.server.web.requests import Asking, caller_of, choice, number
from covey.wire import HostView, PilotView, ServerView

# What it gives becomes JSON, unless it is a Response.
Handler = Callable[[Request], Awaitable[Any]]
Endpoint = Callable[[Request], Awaitable[Response]]
PREFIX = "/api/v1"
MOST_AT_ONCE = 1000  # rows that are encoded before others are served


class FileHandlers(Protocol):
    """Uploads and downloads; `guarded` makes an endpoint of a handler and what it needs."""

    def routes(self, guarded: Callable[[Handler, Needs], Endpoint]) -> list[Route]: ...


class MoreRoutes(Protocol):
    """Calls of another module's."""

    def routes(self, guarded: Callable[[Handler, Needs, int], Endpoint]) -> list[BaseRoute]: ...


class Api:
    def __init__(
        self,
        *,
        asking: Asking,
        admission: Admission,
        tails: Tails,
        files: FileHandlers,
        token: str,
        store: str,
        stop: Callable[[bool], int],
        more: Sequence[MoreRoutes] = (),
        refusals: Refusals | None = None,
        removing: Callable[[BagId], bool] = lambda bag: False,
        surroundings: Callable[[], Surroundings] | None = None,
    ) -> None:
        """`token` is the server's own; `removing` is told by the store."""
        self._requests = Shares(REQUESTS)
        self._refusals = refusals or Refusals()
        self._asking = asking
        self._guard = auth.Guard(token, asking.state, asking.clock.now)
        self._rights = RightCalls(asking)
        self._more = more
        self._bags = BagCalls(asking, admission, removing)
        self._results = ResultCalls(asking, tails)
        self._policies = PolicyCalls(asking)
        self._files = files
        self._started = asking.clock.now()
        self._store = store
        self._stop = stop
        self._surroundings = surroundings or (lambda: Surroundings(__version__, 0, 0.0))
        self.last_request = asyncio.get_running_loop().time()
        self.open_requests = 0

    def routes(self) -> list[BaseRoute]:
        def see(path: str, handler: Handler, needs: Needs) -> Route:
            return Route(PREFIX + path, self.guarded(handler, needs), methods=["GET"])

        def act(path: str, handler: Handler, needs: Needs, status: int = 200) -> Route:
            return Route(PREFIX + path, self.guarded(handler, needs, status), methods=["POST"])

        def put(path: str, handler: Handler, needs: Needs) -> Route:
            return Route(PREFIX + path, self.guarded(handler, needs), methods=["PUT"])

        bags, results, rights, policies = self._bags, self._results, self._rights, self._policies
        return [
            see("/openapi.json", self._describe, SEE),
            see("/server", self._server, SEE),
            act("/stop", self._stop_server, MANAGE),
            see("/pilots", self._pilots, SEE),
            act("/pilots/{pilot}/dismiss", self._dismiss, ACT),
            see("/hosts", self._hosts, SEE),
            see("/tokens", rights.all, ACT),
            act("/tokens", rights.issue, ACT, 201),
            act("/tokens/{token}/revoke", rights.revoke, ACT),
            see("/policy/attributes", policies.attributes, SEE),
            see("/policy/presets", policies.presets, SEE),
            act("/policy/check", policies.check, ACT),
            act("/bags", bags.submit, ACT, 201),
            see("/bags", bags.all, SEE),
            see("/bags/{bag}", bags.one, SEE),
            act("/bags/{bag}/append", bags.append, ACT_ON_OWN),
            act("/bags/{bag}/close", bags.close, ACT_ON_OWN),
            act("/bags/{bag}/cancel", bags.cancel, ACT_ON_OWN),
            act("/bags/{bag}/pause", bags.pause, ACT_ON_OWN),
            act("/bags/{bag}/resume", bags.resume, ACT_ON_OWN),
            act("/bags/{bag}/retry", bags.retry, ACT_ON_OWN),
            act("/bags/{bag}/purge", bags.purge, ACT_ON_OWN),
            see("/bags/{bag}/policy", policies.one, SEE_OWN),
            put("/bags/{bag}/policy", policies.change, ACT_ON_OWN),
            act("/bags/{bag}/policy/check", policies.check_of, ACT_ON_OWN),
            see("/bags/{bag}/explain", policies.explain, SEE_OWN),
            see("/bags/{bag}/inputs", bags.inputs, SEE_OWN),
            see("/bags/{bag}/running", bags.running, SEE_OWN),
            see("/bags/{bag}/unfinished", results.unfinished, SEE_OWN),
            see("/bags/{bag}/results", results.results, SEE_OWN),
            see("/bags/{bag}/failures", results.failures, SEE_OWN),
            see("/bags/{bag}/files", results.files, SEE_OWN),
            see("/bags/{bag}/live", results.live, SEE_OWN),
            see("/bags/{bag}/tasks/{task}", results.attempts, SEE_OWN),
            see("/bags/{bag}/tasks/{task}/output", results.output, SEE_OWN),
            *self._files.routes(self.guarded),
            *(route for one in self._more for route in one.routes(self.guarded)),
        ]

    def guarded(self, handler: Handler, needs: Needs, status: int = 200) -> Endpoint:
        """An endpoint for those who may."""

        async def endpoint(request: Request) -> Response:
            caller, who = self._let_in(request)
            auth.admit(caller, needs.role)
            request.state.caller = caller
            with self._counted(who):
                if "bag" in request.path_params:
                    await self._find_bag(request, needs)
                found = await handler(request)
            if isinstance(found, Response):
                return _CountedResponse(found, lambda: self._counted(who))
            return Response(await _encoded(found), status, media_type="application/json")

        endpoint.needs = needs  # type: ignore[attr-defined]
        return endpoint

    def _let_in(self, request: Request) -> tuple[auth.Caller, Who]:
        """Before anything of the request's body is read."""
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
        """Which one it is, and whose."""
        bag = request.state.bag = await self._asking.named_bag(request)
        caller = caller_of(request)
        if needs.own and not caller.may(Role.ADMIN):
            auth.admit_to(caller, await self._asking.owner(bag), f"bag {bag}")

    @contextmanager
    def _counted(self, who: Who) -> Iterator[None]:
        """Raises HttpProblem if too many requests of this one are open."""
        self._requests.demand(who)
        self.open_requests += 1
        try:
            yield
        finally:
            self._requests.give(who)
            self.open_requests -= 1
            self.last_request = asyncio.get_running_loop().time()

    async def _stop_server(self, request: Request) -> dict[str, int]:
        return {"count": self._stop(choice(request, "drain", "0", "1") == "1")}

    async def _describe(self, _: Request) -> Response:
        return Response(openapi.text().encode(), media_type="application/json")

    async def _server(self, request: Request) -> ServerView:
        state, caller = self._asking.state(), caller_of(request)
        refused = [
            one
            for one in self._refusals.lately()
            if one.owner in (STRANGERS, caller.owner) or caller.may(Role.ADMIN)
        ]
        around = self._surroundings()
        return ServerView(
            version=around.version,
            epoch=state.epoch if state else 0,
            pid=os.getpid(),
            started=self._started,
            state=self._asking.trouble or "ready",
            store=self._store,
            bags=len(state.bags) if state else 0,
            pilots=len(state.pilots) if state else 0,
            slots=state.slots() if state else 0,
            quarantined=sum(1 for bag in state.bags.values() if bag.quarantine.reason)
            if state
            else 0,
            overruns=state.budget.overruns if state else 0,
            refused=refused,
            disk_free_bytes=around.disk_free_bytes,
            certificate_expires=around.certificate_expires,
        )

    async def _pilots(self, request: Request) -> list[PilotView]:
        """Those that are here, or might be; with `all=1` also the last that were."""
        everyone = request.query_params.get("all", "0") == "1"
        recorded: list[PilotView] = []
        if everyone or self._asking.state() is None:
            recorded = await self._asking.read(lambda reader: reader.pilots())
        state, caller = self._asking.state(), caller_of(request)
        found = recorded
        if state is not None:
            here = [pilot_view(pilot) for pilot in reversed(state.pilots.values())]
            gone = [one for one in recorded if one.id not in state.pilots and one.status == "left"]
            found = sorted(here + gone, key=lambda one: -one.id)
        seen = (pilot_seen_by(state, caller, view) for view in found)
        return [view for view in seen if view is not None]

    async def _dismiss(self, request: Request) -> ReplyMessage:
        id_ = PilotId(number(request, "pilot", 0))
        state = self._asking.state()
        pilot = state.pilots.get(id_) if state is not None else None
        if pilot is not None:
            auth.admit_to(caller_of(request), pilot.record.owner, f"pilot {id_}")
        return await self._asking.ask(lambda request: PilotDismissed(request, id_))

    async def _hosts(self, request: Request) -> list[HostView]:
        found, owners = await self._asking.read(
            lambda reader: (reader.hosts(), reader.host_owners())
        )
        state, caller = self._asking.state(), caller_of(request)
        if state is not None:
            found = host_views(state, found, self._asking.clock.now(), caller)
        return hosts_seen_by(state, caller, found, owners)


async def _encoded(found: Any) -> bytes:
    """As JSON. Others are served while a long list is encoded."""
    if not isinstance(found, list) or len(found) <= MOST_AT_ONCE:
        return msgspec.json.encode(found)
    parts: list[bytes] = []
    for start in range(0, len(found), MOST_AT_ONCE):
        parts.append(msgspec.json.encode(found[start : start + MOST_AT_ONCE])[1:-1])
        await asyncio.sleep(0)
    return b"[" + b",".join(parts) + b"]"


class _CountedResponse(Response):
    """A long answer is a request until its last byte is sent."""

    def __init__(self, inner: Response, counted: Callable[[], Any]) -> None:
        self._inner = inner
        self._counted = counted

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._counted():
            await self._inner(scope, receive, send)
