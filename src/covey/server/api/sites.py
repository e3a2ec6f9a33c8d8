"""Sites in the API: list, add, change, pause, drain, remove, test, explain.

Everybody sees the sites that their tasks may use, and the state of these sites. Only admins see a
site's settings (host, options, environment), and only they change them. A site of the server's
covey.toml is changed in that file, but can be paused and drained here too.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

from starlette.requests import Request

from covey.config_sites import SiteTable, read
from covey.core.errors import BadConfig
from covey.core.explain.answers import BrokerAnswer, WeightsAt
from covey.core.record.actions import ReplyMessage, Tried
from covey.core.record.events import (
    SiteRemoved,
    SiteSaved,
    SiteStatusRequested,
    SiteTried,
    TrialEnded,
    WeightsGiven,
)
from covey.core.record.model import JobId, SiteSpec, SiteStatus
from covey.questions.site_questions import (
    LogOfSite,
    PastWeights,
    TrialAt,
    ViewsOfSites,
    WeightsOfSites,
    WhySite,
)
from covey.server.api.trials import OVER, Trials
from covey.server.web.auth import MANAGE, SEE
from covey.server.web.problems import HttpProblem
from covey.server.web.requests import ServerAccess, caller_of, deadline, number, order
from covey.server.web.route import API, H, look, route
from covey.whoami import user
from covey.wire import SiteExplanation, SiteJobView, SiteView, TrialView, WeightsTable

MOST_JOBS = 10_000  # in one answer
SITE = "/sites/{site}"
TRIAL = SITE + "/trials/{job}"

# The site, completed by its driver. Raises BadConfig, also if there is no such driver.
Check: TypeAlias = Callable[[SiteSpec], SiteSpec]


def _manage(method: str, path: str, summary: str, **fields: Any) -> Callable[[H], H]:
    fields.setdefault("refuses", (404,))
    return route(method, API + path, summary, MANAGE, **fields)


class SiteCalls:
    """`address`: the server's address for pilots."""

    def __init__(
        self, access: ServerAccess, check: Check, trials: Trials, address: Callable[[], str]
    ) -> None:
        self._access = access
        self._check = check
        self._trials = trials
        self._address = address

    # -- seeing --------------------------------------------------------------------------------

    @look("/sites", "the sites that the caller may see", SEE)
    async def all(self, request: Request) -> list[SiteView]:
        """Sites that the caller may use; only admins see their settings."""
        viewer = caller_of(request).viewer
        views = self._access.decider.ask(ViewsOfSites(viewer))
        for view in views if viewer is not None else ():
            view.spec = None
        return views

    @look(SITE, "a site", SEE)
    async def one(self, request: Request) -> SiteView:
        name = request.path_params["site"]
        for view in await self.all(request):
            if view.name == name:
                return view
        raise HttpProblem(404, "not-found", f"there is no site {name[:100]}")

    @look(f"{SITE}/explain", "why a site gets no pilots, or no more", SEE)
    async def explain(self, request: Request) -> SiteExplanation:
        site, caller = await self.one(request), caller_of(request)
        answer = await self._access.decider.ask_long(WhySite(site.name, caller.viewer))
        if answer is None:
            raise HttpProblem(404, "not-found", f"there is no site {site.name[:100]} any more")
        return SiteExplanation(name=site.name, summary=answer.summary, answer=answer)

    @look(f"{SITE}/jobs", "the site jobs of a site, ended ones too", SEE, "limit")
    async def jobs(self, request: Request) -> list[SiteJobView]:
        """The latest first. Only admins see jobs for tasks of other owners."""
        site, viewer = await self.one(request), caller_of(request).viewer
        limit = min(max(0, number(request, "limit", 100)), MOST_JOBS)
        jobs = await self._access.read(lambda reader: reader.site_jobs(site.name, viewer, limit))
        log = self._access.decider.ask(LogOfSite(site.name))
        for view in jobs:
            view.log = log.replace("{job}", view.id).replace("{handle}", view.handle)
        return jobs

    @look(
        "/broker/weights",
        "what every site is worth to the broker now",
        SEE,
        "algorithm",
        refuses=(404,),
    )
    async def weights(self, request: Request) -> BrokerAnswer:
        """`algorithm`: another one than the server's."""
        algorithm = request.query_params.get("algorithm", "")
        answer = self._access.decider.ask(
            WeightsOfSites(algorithm[:100], caller_of(request).viewer)
        )
        if isinstance(answer, str):
            raise HttpProblem(404, "not-found", answer)
        return answer

    @look("/broker/history", "what sites were worth to the broker over the last day", SEE)
    async def past_weights(self, request: Request) -> list[WeightsAt]:
        return self._access.decider.ask(PastWeights(caller_of(request).viewer))

    @_manage(
        "PUT",
        "/broker/services/{service}/weights",
        "give the weights of a resource priority service",
        takes=WeightsTable,
        refuses=(404, 413),
    )
    async def give_weights(self, request: Request) -> ReplyMessage:
        """They count until the service gives others, or they are too old. The server forgets them
        when it ends."""
        table = await order(request, WeightsTable)
        name, caller = request.path_params["service"], caller_of(request)
        source = table.source or f"the API, {caller.owner or user()}"
        return await self._access.ask(
            lambda id_: WeightsGiven(id_, name[:100], table.weights, source)
        )

    # -- changing ------------------------------------------------------------------------------

    @_manage("PUT", SITE, "add a site, or change an added one", takes=SiteTable, refuses=(413,))
    async def save(self, request: Request) -> ReplyMessage:
        """The body is a `SiteTable`, with the same errors as a table in covey.toml."""
        table = await order(request, dict[str, Any])
        try:
            spec = self._check(read(request.path_params["site"], table))
        except BadConfig as error:
            raise HttpProblem(400, "invalid", str(error)) from error
        return await self._access.ask(lambda id_: SiteSaved(id_, spec))

    @_manage("DELETE", SITE, "remove an added site as soon as its last job has ended")
    async def remove(self, request: Request) -> ReplyMessage:
        name = request.path_params["site"]
        return await self._access.ask(lambda id_: SiteRemoved(id_, name))

    @_manage("POST", f"{SITE}/pause", "pause a site: start no new pilots there")
    async def pause(self, request: Request) -> ReplyMessage:
        return await self._set(request, SiteStatus.PAUSED)

    @_manage("POST", f"{SITE}/resume", "resume a site, and forget its earlier failures")
    async def resume(self, request: Request) -> ReplyMessage:
        return await self._set(request, SiteStatus.ON)

    @_manage("POST", f"{SITE}/drain", "drain a site: cancel its waiting pilots, let the others end")
    async def drain(self, request: Request) -> ReplyMessage:
        return await self._set(request, SiteStatus.DRAINING)

    async def _set(self, request: Request, status: SiteStatus) -> ReplyMessage:
        name = request.path_params["site"]
        return await self._access.ask(lambda id_: SiteStatusRequested(id_, name, status))

    # -- trying --------------------------------------------------------------------------------

    @_manage("POST", f"{SITE}/test", "test a site: start one pilot there", status=201)
    async def test(self, request: Request) -> TrialView:
        """Start one pilot, whatever the demand. It takes tasks like any other until the test ends.
        Its owner is the caller, or the server's user."""
        name, owner = request.path_params["site"], caller_of(request).owner or user()
        tried = await self._access.ask(lambda id_: SiteTried(id_, name, owner))
        assert isinstance(tried, Tried)
        return self._trial(name, tried.job)

    @look(TRIAL, "the progress of that test", MANAGE, "seen_steps", "wait")
    async def trial(self, request: Request) -> TrialView:
        """With `wait`, answer as soon as there are more than `seen` steps."""
        name, job = request.path_params["site"], JobId(request.path_params["job"])
        until, seen = deadline(request), number(request, "seen", -1)
        while True:
            trial, changed = self._trial(name, job), self._trials.changed
            if len(trial.steps) > seen or trial.over:
                return trial
            if not await self._access.news(until, changed):
                return self._trial(name, job)

    @_manage("POST", f"{TRIAL}/end", "end that test", refuses=())
    async def end_trial(self, request: Request) -> ReplyMessage:
        """Succeeds too if the test has ended already."""
        job = JobId(request.path_params["job"])
        return await self._access.ask(lambda id_: TrialEnded(id_, job))

    def _trial(self, site: str, id_: JobId) -> TrialView:
        trial = self._access.decider.ask(TrialAt(site, id_))
        steps = self._trials.steps(id_, trial) if trial is not None else None
        if trial is None or steps is None:
            raise HttpProblem(
                404, "not-found", f"there is no test {id_[:100]} of site {site[:100]}"
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
