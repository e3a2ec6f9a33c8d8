"""Questions about the whole server: counts, and tokens."""

from msgspec import Struct

from covey.core.bags.estimate import in_slots
from covey.core.explain.steps import Steps
from covey.core.match import policy_budget
from covey.core.protocol import tokens
from covey.core.record.model import BagStatus, PilotStatus, TokenRecord
from covey.core.sites.measures import SiteMeasures
from covey.core.sites.site_measures import measures_of
from covey.core.state import Bag, State
from covey.questions.question import LongQuestion, Question

FEW_PILOTS = 100  # counted in one step


class ServerCounts(Struct, frozen=True):
    epoch: int
    bags: int
    pilots: int
    slots: int  # of active pilots
    quarantined: int  # bags
    overruns: int  # how often an owner's policies needed more work than allowed


class CountAll(Question[ServerCounts], frozen=True):
    def answer(self, state: State, now: float) -> ServerCounts:
        return ServerCounts(
            epoch=state.epoch,
            bags=len(state.bags),
            pilots=len(state.pilots),
            slots=state.slots(),
            quarantined=_quarantined(state),
            overruns=state.budget.overruns,
        )


class SiteFigures(Struct, frozen=True):
    running: int  # site jobs
    suspended: int  # of these
    waiting: int
    failures: int  # in a row
    rests_until: float
    measures: SiteMeasures
    weight: float | None  # for the server's broker, when it was last remembered


class Figures(Struct, frozen=True, kw_only=True):
    """What /metrics shows of core."""

    epoch: int
    durable: int  # writes
    ended: dict[str, int]  # attempts by outcome
    running: int  # tasks
    sent: int
    waiting: int
    in_doubt: int
    quarantined: int  # bags
    overruns: int
    pilots: dict[str, int]  # by status
    short: int  # pilots that wait for disk space
    aside: int  # slots' worth of attempts that wait for files
    slots: int
    sites: dict[str, SiteFigures]


class AllFigures(LongQuestion[Figures], frozen=True):
    def steps(self, state: State, now: float) -> Steps[Figures]:
        started: set[tuple[int, int]] = set()
        pilots = {status.value: 0 for status in PilotStatus}
        short = aside = 0
        for number, pilot in enumerate(list(state.pilots.values())):
            if number % FEW_PILOTS == FEW_PILOTS - 1:
                yield
            started.update((attempt.bag, attempt.task) for attempt in in_slots(pilot))
            pilots[pilot.status.value] += 1
            short += bool(pilot.shortage)
            aside += pilot.aside
        live = sum(len(bag.places.live) for bag in state.bags.values())
        return Figures(
            epoch=state.epoch,
            durable=state.journal.durable,
            ended=dict(state.counters.ended),
            running=len(started),
            sent=max(0, live - len(started)),
            waiting=state.unsent(),
            in_doubt=sum(len(bag.places.doubt) for bag in state.bags.values()),
            quarantined=_quarantined(state),
            overruns=state.budget.overruns,
            pilots=pilots,
            short=short,
            aside=aside,
            slots=state.slots(),
            sites=_of_sites(state, now),
        )


def _quarantined(state: State) -> int:
    return sum(1 for bag in state.bags.values() if bag.quarantine.reason)


def _of_sites(state: State, now: float) -> dict[str, SiteFigures]:
    figures, past = {}, state.broker.history
    weights = past[-1][1] if past else {}
    for name, site in state.sites.items():
        running = sum(state.jobs[id_].running for id_ in site.jobs)
        suspended = sum(state.jobs[id_].suspended for id_ in site.jobs)
        waiting = len(site.jobs) - running
        measures, weight = measures_of(state, now, name), weights.get(name)
        figures[name] = SiteFigures(
            running, suspended, waiting, site.failures, site.rests_until, measures, weight
        )
    return figures


class MoreToDo(Question[bool], frozen=True):
    """Whether core has more to do before the next tick, after this number of `DrawContinued`."""

    steps: int

    def answer(self, state: State, now: float) -> bool:
        return policy_budget.goes_on(state, self.steps)


class AnyWork(Question[bool], frozen=True):
    """Whether any bag needs this server to run."""

    def answer(self, state: State, now: float) -> bool:
        return any(map(works, state.bags.values()))


def works(bag: Bag) -> bool:
    """Whether the bag has work to do. A bag that is paused, or waits for more tasks, needs no
    running server."""
    if bag.status is BagStatus.PAUSED:
        return bool(bag.places.live)
    return bool(bag.places.live) or len(bag.places.done) + len(bag.places.failed) < bag.total


class ValidToken(Question[TokenRecord | None], frozen=True):
    """The record of a token; None: the token is invalid or has expired."""

    token: str

    def answer(self, state: State, now: float) -> TokenRecord | None:
        return tokens.find(state, self.token, now)


class AllTokens(Question[list[TokenRecord]], frozen=True):
    def answer(self, state: State, now: float) -> list[TokenRecord]:
        return list(state.access.tokens.values())
