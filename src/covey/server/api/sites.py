"""The API's sites: seen, added, changed, paused, drained, removed, tried, explained.

Everybody sees the sites that their tasks may run at, and how these stand; what a site is made of
(its host, its options, its environment) only admins see, and only they change it. A site of the
server's covey.toml is changed there; whether it is on is for both.
"""

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from covey.config_sites import read
from covey.core.errors import BadConfig
from covey.core.record.actions import ReplyMessage, Tried
from covey.core.record.events import (
    SiteRemoved,
    SiteSaved,
    SiteStatusRequested,
    SiteTried,
    TrialEnded,
)
from covey.core.record.model import JobId, Role, SiteSpec, SiteStatus
from covey.questions.site_questions import TrialAt, ViewsOfSites, WhySite
from covey.server.api.trials import OVER, Trials
from covey.server.web.auth import MANAGE, SEE, Caller, Needs
from covey.server.web.problems import HttpProblem
from covey.server.web.requests import Asking, caller_of, deadline, number, order
from covey.whoami import user
from covey.wire import SiteExplanation, SiteView, TrialView

PATH = "/api/v1/sites"
ONE = PATH + "/{site}"

Handler: TypeAlias = Callable[[Request], Awaitable[Any]]
Guarded: TypeAlias = Callable[[Handler, Needs, int], Callable[[Request], Awaitable[Response]]]
# Whether there is such a driver, and it understands the options. Raises BadConfig.
Check: TypeAlias = Callable[[SiteSpec], object]


class SiteCalls:
    """`address`: where pilots are told to find the server."""

    def __init__(
        self, asking: Asking, check: Check, trials: Trials, address: Callable[[], str]
    ) -> None:
        self._asking = asking
        self._check = check
        self._trials = trials
        self._address = address

    def routes(self, guarded: Guarded) -> list[BaseRoute]:
        def route(
            method: str, path: str, handler: Handler, needs: Needs, status: int = 200
        ) -> Route:
            return Route(path, guarded(handler, needs, status), methods=[method])

        return [
            route("GET", PATH, self.all, SEE),
            route("GET", ONE, self.one, SEE),
            route("PUT", ONE, self.save, MANAGE),
            route("DELETE", ONE, self.remove, MANAGE),
            route("POST", ONE + "/pause", self._status(SiteStatus.PAUSED), MANAGE),
            route("POST", ONE + "/resume", self._status(SiteStatus.ON), MANAGE),
            route("POST", ONE + "/drain", self._status(SiteStatus.DRAINING), MANAGE),
            route("POST", ONE + "/test", self.test, MANAGE, 201),
            route("GET", ONE + "/trials/{job}", self.trial, MANAGE),
            route("POST", ONE + "/trials/{job}/end", self.end_trial, MANAGE),
            route("GET", ONE + "/explain", self.explain, SEE),
        ]

    # -- seeing --------------------------------------------------------------------------------

    async def all(self, request: Request) -> list[SiteView]:
        return _seen_by(caller_of(request), self._asking.decider.ask(ViewsOfSites()))

    async def one(self, request: Request) -> SiteView:
        name = request.path_params["site"]
        for view in await self.all(request):
            if view.name == name:
                return view
        raise HttpProblem(404, "not-found", f"there is no site {name[:100]}")

    async def explain(self, request: Request) -> SiteExplanation:
        site, caller = await self.one(request), caller_of(request)
        owner = None if caller.may(Role.ADMIN) else caller.owner
        answer = await self._asking.decider.ask_long(WhySite(site.name, owner))
        if answer is None:
            raise HttpProblem(404, "not-found", f"there is no site {site.name[:100]} any more")
        return SiteExplanation(name=site.name, summary=answer.summary, answer=answer)

    # -- changing ------------------------------------------------------------------------------

    async def save(self, request: Request) -> ReplyMessage:
        """The body is a `SiteTable`; what is wrong with it is said as of one in covey.toml."""
        table = await order(request, dict[str, Any])
        try:
            spec = read(request.path_params["site"], table)
            self._check(spec)
        except BadConfig as error:
            raise HttpProblem(400, "invalid", str(error)) from error
        return await self._asking.ask(lambda id_: SiteSaved(id_, spec))

    async def remove(self, request: Request) -> ReplyMessage:
        name = request.path_params["site"]
        return await self._asking.ask(lambda id_: SiteRemoved(id_, name))

    def _status(self, status: SiteStatus) -> Handler:
        async def change(request: Request) -> ReplyMessage:
            name = request.path_params["site"]
            return await self._asking.ask(lambda id_: SiteStatusRequested(id_, name, status))

        return change

    # -- trying --------------------------------------------------------------------------------

    async def test(self, request: Request) -> TrialView:
        """One pilot, whatever the demand. It serves like any other, until it is taken back: its
        owner is whoever asks, or whose server it is."""
        name, owner = request.path_params["site"], caller_of(request).owner or user()
        tried = await self._asking.ask(lambda id_: SiteTried(id_, name, owner))
        assert isinstance(tried, Tried)
        return self._trial(name, tried.job)

    async def trial(self, request: Request) -> TrialView:
        """With `wait`, answers when there are more than `seen` steps."""
        name, job = request.path_params["site"], JobId(request.path_params["job"])
        until, seen = deadline(request), number(request, "seen", -1)
        while True:
            found, changed = self._trial(name, job), self._trials.changed
            if len(found.steps) > seen or found.over:
                return found
            if not await self._asking.news(until, changed):
                return self._trial(name, job)

    async def end_trial(self, request: Request) -> ReplyMessage:
        """Of one that is not there, nothing is left to do."""
        job = JobId(request.path_params["job"])
        return await self._asking.ask(lambda id_: TrialEnded(id_, job))

    def _trial(self, site: str, id_: JobId) -> TrialView:
        trial = self._asking.decider.ask(TrialAt(site, id_))
        steps = self._trials.steps(id_, trial) if trial is not None else None
        if trial is None or steps is None:
            raise HttpProblem(
                404, "not-found", f"there is no trial {id_[:100]} at site {site[:100]}"
            )
        return TrialView(
            job=id_,
            site=site,
            steps=list(steps),
            over=not trial.alive or (not trial.pilot and steps[-1].kind in OVER),
            pilot=trial.pilot,
            host=trial.host,
            trouble=trial.trouble,
            address=self._address(),
        )


def _seen_by(caller: Caller, sites: list[SiteView]) -> list[SiteView]:
    """Those that the caller may use; only admins see what they are made of."""
    if caller.may(Role.ADMIN):
        return sites
    found = [view for view in sites if not view.users or caller.owner in view.users]
    for view in found:
        view.spec = None
    return found
