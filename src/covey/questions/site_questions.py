"""Questions about sites and their jobs. The answer None means: there is no such site or job."""

from collections.abc import Mapping

from msgspec import Struct

from covey.core.explain import broker_answers, site_answers
from covey.core.explain.answers import BrokerAnswer, SiteAnswer, WeightsAt
from covey.core.explain.steps import Steps
from covey.core.match.site_access import bar_for_owner
from covey.core.record.model import JobId, PilotId
from covey.core.sites import site_table
from covey.core.sites.site_measures import measures_of
from covey.core.state import Pilot, Site, State
from covey.questions.question import LongQuestion, Question
from covey.wire import SiteView


def hides(state: State, site: str, owner: str) -> bool:
    """Whether the site is not for tasks of this owner, who therefore does not see it."""
    known = state.sites.get(site)
    return known is not None and bar_for_owner(known.record.spec, owner) is not None


class HiddenSites(Question[frozenset[str]], frozen=True):
    """Names of the sites that this owner may not use."""

    owner: str

    def answer(self, state: State, now: float) -> frozenset[str]:
        return frozenset(name for name in state.sites if hides(state, name, self.owner))


class ViewsOfSites(Question[list[SiteView]], frozen=True):
    """`viewer`: only sites that this owner may use. None: all of them."""

    viewer: str | None

    def answer(self, state: State, now: float) -> list[SiteView]:
        pilots: dict[str, list[Pilot]] = {}
        for pilot in state.pilots.values():
            pilots.setdefault(pilot.record.site, []).append(pilot)
        return [
            _view(state, site, pilots.get(name, []), now)
            for name, site in state.sites.items()
            if self.viewer is None or not hides(state, name, self.viewer)
        ]


def _view(state: State, site: Site, pilots: list[Pilot], now: float) -> SiteView:
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
        slots=sum(pilot.record.slots for pilot in pilots),
        busy=sum(min(pilot.load, pilot.record.slots) for pilot in pilots),
        queued_limit=spec.queued,
        running_limit=spec.running,
        ramp=site.ramp,
        price=spec.price,
        users=list(spec.users),
        failover=spec.failover,
        shared=spec.shared,
        here=spec.facts.here,
        measures=measures_of(state, now, spec.name),
        spec=spec,
    )


class WeightsOfSites(Question[BrokerAnswer | str], frozen=True):
    """What every site is worth now, or words for people that there is no such broker.
    `algorithm`: empty: the server's. `viewer`: only sites that this owner may use are told; None:
    all of them."""

    algorithm: str
    viewer: str | None

    def answer(self, state: State, now: float) -> BrokerAnswer | str:
        rules = state.settings.broker
        if self.algorithm and self.algorithm not in rules.names():
            return rules.unknown(self.algorithm)
        stops = {
            name: site_answers.stop_words(state, now, site) for name, site in state.sites.items()
        }
        answer = broker_answers.table(state, now, self.algorithm, stops)
        if self.viewer is not None:
            owner = self.viewer
            answer.sites = [one for one in answer.sites if not hides(state, one.site, owner)]
            for service in answer.services:
                service.url = ""
                service.weights = _seen(state, service.weights, owner)
        return answer


class PastWeights(Question[list[WeightsAt]], frozen=True):
    """What sites were worth, the oldest first. `viewer`: as of `WeightsOfSites`."""

    viewer: str | None

    def answer(self, state: State, now: float) -> list[WeightsAt]:
        viewer = self.viewer
        return [
            WeightsAt(at=at, weights=weights if viewer is None else _seen(state, weights, viewer))
            for at, weights in state.broker.history
        ]


def _seen(state: State, weights: Mapping[str, float], owner: str) -> dict[str, float]:
    """Those of sites that are there, and that the owner may use. Who could use a site that is gone,
    nobody knows any more."""
    return {
        name: weight
        for name, weight in weights.items()
        if name in state.sites and not hides(state, name, owner)
    }


class WhySite(LongQuestion[SiteAnswer | None], frozen=True):
    """Why a site gets no pilots, or no more. `owner`: whose bags are named; None: everybody's."""

    site: str
    owner: str | None

    def steps(self, state: State, now: float) -> Steps[SiteAnswer | None]:
        site = state.sites.get(self.site)
        if site is None:
            return None
        return (yield from site_answers.of_site(state, now, site, self.owner))


class LogOfSite(Question[str], frozen=True):
    """Where jobs of a site print to; {job} and {handle} stand for the job."""

    site: str

    def answer(self, state: State, now: float) -> str:
        site = state.sites.get(self.site)
        return site.record.spec.facts.log if site is not None else ""


class TrialNow(Struct, frozen=True):
    """A site, and a site job that was started to test it."""

    trouble: str  # of the site
    submitted: float = 0.0  # when the test was asked for; 0: the job has ended, or is no test
    alive: bool = False  # the job has not ended
    pilot: int = 0  # 0: the job has no pilot now
    host: str = ""


class TrialAt(Question[TrialNow | None], frozen=True):
    site: str
    job: JobId

    def answer(self, state: State, now: float) -> TrialNow | None:
        site, job = state.sites.get(self.site), state.jobs.get(self.job)
        if site is None:
            return None
        trouble = site_table.condition(site, now)
        if job is None:
            return TrialNow(trouble)
        pilot = state.pilots.get(job.pilot) if job.pilot is not None else None
        return TrialNow(
            trouble,
            submitted=job.record.submitted if job.record.trial else 0.0,
            alive=True,
            pilot=pilot.record.id if pilot is not None else 0,
            host=pilot.record.host if pilot is not None else "",
        )


class TrialSince(Question[float], frozen=True):
    """When this test was asked for; 0: the job has ended, or is no test."""

    job: JobId

    def answer(self, state: State, now: float) -> float:
        job = state.jobs.get(self.job)
        return job.record.submitted if job is not None and job.record.trial else 0.0


class JobOfPilot(Question[JobId], frozen=True):
    """The pilot's site job; empty if core does not know the pilot."""

    pilot: PilotId

    def answer(self, state: State, now: float) -> JobId:
        pilot = state.pilots.get(self.pilot)
        return pilot.record.job if pilot is not None else JobId("")
