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
from covey.core.explain import site_answers
from covey.core.record.actions import ReplyMessage, Tried
from covey.core.record.events import (
    SiteRemoved,
    SiteSaved,
    SiteStatusRequested,
    SiteTried,
    TrialEnded,
)
from covey.core.record.model import JobId, Role, SiteSpec, SiteStatus
from covey.core.sites import site_table
from covey.core.state import Pilot, Site, State
from covey.server.api.trials import OVER, Trials
from covey.server.api.views import concerns
from covey.server.web.auth import MANAGE, SEE, Needs
from covey.server.web.problems import HttpProblem
from covey.server.web.requests import Asking, caller_of, deadline, number, order
from covey.whoami import user
from covey.wire import SiteExplanation, SiteView, TrialView

PATH = "/api/v1/sites"
ONE = PATH + "/{site}"

Handler: TypeAlias = Callable[[Request], Awaitable[Any]]
Guarded: TypeAlias = Callable[[Handler, Needs, int], Callable[[Request], Awaitable[Response]]]
# The site with what its driver knows of it. Raises BadConfig, also if there is no such driver.
Check: TypeAlias = Callable[[SiteSpec], SiteSpec]


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
        state, caller, now = self._state(), caller_of(request), self._asking.clock.now()
        found = [site for site in state.sites.values() if concerns(caller, site)]
        return site_views(state, found, now, caller.may(Role.ADMIN))

    async def one(self, request: Request) -> SiteView:
        caller, now = caller_of(request), self._asking.clock.now()
        return site_views(self._state(), [self._site(request)], now, caller.may(Role.ADMIN))[0]

    async def explain(self, request: Request) -> SiteExplanation:
        site, caller = self._site(request), caller_of(request)
        owner = None if caller.may(Role.ADMIN) else caller.owner
        now = self._asking.clock.now()
        answer = site_answers.of_site(self._state(), now, site, owner)
        return SiteExplanation(name=site.record.spec.name, summary=answer.summary, answer=answer)

    # -- changing ------------------------------------------------------------------------------

    async def save(self, request: Request) -> ReplyMessage:
        """The body is a `SiteTable`; what is wrong with it is said as of one in covey.toml."""
        table = await order(request, dict[str, Any])
        try:
            spec = self._check(read(request.path_params["site"], table))
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
        state = self._state()
        steps = self._trials.steps(id_, state)
        if steps is None or site not in state.sites:
            raise HttpProblem(
                404, "not-found", f"there is no trial {id_[:100]} at site {site[:100]}"
            )
        job = state.jobs.get(id_)
        pilot = state.pilots.get(job.pilot) if job is not None and job.pilot is not None else None
        return TrialView(
            job=id_,
            site=site,
            steps=list(steps),
            over=job is None or (pilot is None and steps[-1].kind in OVER),
            pilot=pilot.record.id if pilot is not None else 0,
            host=pilot.record.host if pilot is not None else "",
            trouble=site_table.condition(state.sites[site], self._asking.clock.now()),
            address=self._address(),
        )

    # -- inside --------------------------------------------------------------------------------

    def _state(self) -> State:
        state = self._asking.state()
        if state is None:
            raise HttpProblem(503, "unavailable", self._asking.trouble, 1)
        return state

    def _site(self, request: Request) -> Site:
        name = request.path_params["site"]
        site = self._state().sites.get(name)
        if site is None or not concerns(caller_of(request), site):
            raise HttpProblem(404, "not-found", f"there is no site {name[:100]}")
        return site


def site_views(state: State, sites_: list[Site], now: float, whole: bool) -> list[SiteView]:
    """With `whole`, also what they are made of."""
    pilots: dict[str, list[Pilot]] = {}
    for one in state.pilots.values():
        pilots.setdefault(one.record.site, []).append(one)
    return [_view(state, one, pilots.get(one.record.spec.name, []), now, whole) for one in sites_]


def _view(state: State, site: Site, pilots: list[Pilot], now: float, whole: bool) -> SiteView:
    record, spec = site.record, site.record.spec
    jobs = [state.jobs[id_] for id_ in site.jobs]
    return SiteView(
        name=spec.name,
        driver=spec.driver,
        status="removed" if record.removed else record.status.value,
        origin="covey.toml" if record.of_file else "added",
        trouble=site_table.condition(site, now),
        rests_until=site.rests_until if site.rests_until > now else 0.0,
        failures=site.failures,
        waiting=sum(not job.running for job in jobs),
        running=sum(job.running for job in jobs),
        suspended=sum(job.suspended for job in jobs),
        pilots=len(pilots),
        slots=sum(one.record.slots for one in pilots),
        busy=sum(min(one.load, one.record.slots) for one in pilots),
        queued_limit=spec.queued,
        running_limit=spec.running,
        ramp=site.ramp,
        price=spec.price,
        users=list(spec.users),
        failover=spec.failover,
        shared=spec.shared,
        here=spec.facts.here,
        spec=spec if whole else None,
    )
