"""The server in the API: facts about it, its description, and its shutdown."""

import os
from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from covey.core.record.model import Role
from covey.questions.server_questions import CountAll, ServerCounts
from covey.server.api.metrics import ServerFacts
from covey.server.web.auth import MANAGE, SEE
from covey.server.web.refusals import STRANGERS, Refusals
from covey.server.web.requests import ServerAccess, caller_of, choice
from covey.server.web.route import act, look
from covey.wire import ServerView

NOTHING = ServerCounts(epoch=0, bags=0, pilots=0, slots=0, quarantined=0, overruns=0)


class ServerCalls:
    """`description` gives the API's description. `stop` shuts the server down; with True, when the
    running tasks have ended."""

    def __init__(
        self,
        access: ServerAccess,
        *,
        store: str,
        stop: Callable[[bool], int],
        description: Callable[[], str],
        refusals: Refusals,
        server_facts: Callable[[], ServerFacts],
    ) -> None:
        self._access = access
        self._store = store
        self._stop = stop
        self._description = description
        self._refusals = refusals
        self._server_facts = server_facts
        self._started = access.clock.now()

    @look("/openapi.json", "this description of the API", SEE, gives=dict[str, Any])
    async def describe(self, _: Request) -> Response:
        return Response(self._description().encode(), media_type="application/json")

    @look("/server", "facts about the server", SEE)
    async def server(self, request: Request) -> ServerView:
        caller = caller_of(request)
        counts = self._access.decider.ask_if_ready(CountAll()) or NOTHING
        refused = [
            refusal
            for refusal in self._refusals.recent()
            if refusal.owner in (STRANGERS, caller.owner) or caller.may(Role.ADMIN)
        ]
        facts = self._server_facts()
        return ServerView(
            version=facts.version,
            epoch=counts.epoch,
            pid=os.getpid(),
            started=self._started,
            state=self._access.decider.trouble or "ready",
            store=self._store,
            bags=counts.bags,
            pilots=counts.pilots,
            slots=counts.slots,
            quarantined=counts.quarantined,
            overruns=counts.overruns,
            refused=refused,
            disk_free_bytes=facts.disk_free_bytes,
            certificate_expires=facts.certificate_expires,
        )

    @act("/stop", "shut the server down", MANAGE, query=("drain",))
    async def stop(self, request: Request) -> dict[str, int]:
        return {"count": self._stop(choice(request, "drain", "0", "1") == "1")}
