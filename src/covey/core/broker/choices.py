"""Which algorithm splits a bag's pilots over sites, and what it says of them.

A bag names an algorithm, a service or a plugin; else the configuration does. If what is named
cannot be used (a service that has said nothing for long, a plugin that fails), another algorithm
takes its place, and the choice says which and why.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from covey.core.broker import algorithms
from covey.core.broker.worth import BrokerDecision, SiteCandidate, SiteChoice, Work, Worth, Worths
from covey.core.record.broker_rules import (
    MEASURED,
    MOST_WEIGHT,
    PRICE,
    RANDOM,
    ROOM,
    STATIC,
    BrokerRules,
    GivenWeights,
    WeightService,
)
from covey.core.record.model import SiteSpec
from covey.core.sites import site_table
from covey.core.sites.measures import UNKNOWN, SiteMeasures
from covey.core.sites.site_measures import measures_of
from covey.core.state import Bag, Site, State

MOST_DECISIONS = 1000  # that are remembered, each with a worth for every site
WEIGHTS_SECONDS = 300.0  # between two weights of a site that are remembered
NOT_NAMED = "the broker does not name it"
_MOST_PROBLEM = 300  # characters
_UNMEASURED = (ROOM, STATIC)  # algorithms that look at no measures


class Broker(Protocol):
    """An algorithm of a plugin: an object with this method. It must be quick, and it must not do
    input or output: the server waits for it. A site that it does not name gets no pilots."""

    def weigh(
        self, work: Work, candidates: Sequence[SiteCandidate]
    ) -> Mapping[str, float | Worth]: ...


class Choices:
    """The choices of one decision. What is known about a site is looked up once for all bags."""

    def __init__(self, state: State, now: float) -> None:
        self._state, self._now = state, now
        self._rules = state.settings.broker
        self._candidates: dict[tuple[str, int, bool], SiteCandidate] = {}
        self._services = {service.name: service for service in self._rules.services}

    def choose(
        self,
        bag: Bag,
        work: Work,
        rooms: Mapping[str, int],
        full: Callable[[], Iterable[str]] = tuple,
    ) -> SiteChoice:
        """Among the sites that could have pilots for the bag, with their rooms. `full`: sites that
        could have some if they were not full. Only `price` asks for them: a cheap site that is full
        is still a reason not to use a dear one."""
        named = bag.spec.broker or self._rules.algorithm
        if named == PRICE:
            rooms = {**rooms, **dict.fromkeys(full(), 0)}
        return self.by(named, work, rooms)

    def by(self, named: str, work: Work, rooms: Mapping[str, int]) -> SiteChoice:
        measured = named not in _UNMEASURED
        candidates = [self._candidate(name, room, measured) for name, room in rooms.items()]
        if named in algorithms.ALGORITHMS:
            return self._choice(named, work, candidates)
        if named == RANDOM:
            worths = algorithms.by_draw(self._rules, work, candidates)
            return _made(RANDOM, worths, candidates, drawn=True)
        if named in self._services:
            return self._by_service(self._services[named], work, candidates)
        if named in self._rules.plugins:
            return self._by_plugin(named, work, candidates)
        problem = f"there is no broker {named}"
        return self._choice(self._default(), work, candidates, instead_of=named, problem=problem)

    def _default(self) -> str:
        named = self._rules.algorithm
        return named if named in algorithms.ALGORITHMS else ROOM

    def _choice(
        self,
        name: str,
        work: Work,
        candidates: Sequence[SiteCandidate],
        instead_of: str = "",
        problem: str = "",
    ) -> SiteChoice:
        worths = algorithms.ALGORITHMS[name](self._rules, work, candidates)
        return _made(name, worths, candidates, instead_of=instead_of, problem=problem)

    # -- services and plugins ---------------------------------------------------------------------

    def _by_service(
        self, service: WeightService, work: Work, candidates: Sequence[SiteCandidate]
    ) -> SiteChoice:
        given = self._state.broker.given.get(service.name)
        problem = service_problem(self._state, self._now, service, given)
        if given is None or problem:
            fallback = service.fallback if service.fallback in algorithms.ALGORITHMS else MEASURED
            name = service.name
            return self._choice(fallback, work, candidates, instead_of=name, problem=problem)
        worths = {candidate.site: _given(given, candidate) for candidate in candidates}
        return _made(service.name, worths, candidates, source=given.source, given_at=given.at)

    def _by_plugin(self, name: str, work: Work, candidates: Sequence[SiteCandidate]) -> SiteChoice:
        """A plugin may raise anything or answer nonsense: then `room` takes its place."""
        problems = self._state.broker.problems
        broker: Broker = self._rules.plugins[name]
        try:
            answer = broker.weigh(work, candidates)
            worths = {
                candidate.site: _answered(answer.get(candidate.site), candidate)
                for candidate in candidates
            }
        except Exception as error:
            problems[name] = f"{type(error).__name__}: {error}"[:_MOST_PROBLEM]
            return self._choice(ROOM, work, candidates, instead_of=name, problem=problems[name])
        problems.pop(name, None)
        return _made(name, worths, candidates)

    # -- what is known -----------------------------------------------------------------------------

    def _candidate(self, name: str, room: int, measured: bool) -> SiteCandidate:
        key = (name, room, measured)
        if key not in self._candidates:
            site = self._state.sites[name]
            measures = measures_of(self._state, self._now, name) if measured else UNKNOWN
            self._candidates[key] = candidate_of(self._state, site, room, measures)
        return self._candidates[key]


def candidate_of(state: State, site: Site, room: int, measures: SiteMeasures) -> SiteCandidate:
    spec = site.record.spec
    return SiteCandidate(
        site=spec.name,
        slots=spec.slots,
        room=room,
        allowance=allowance(spec),
        weight=spec.weight,
        price=spec.price,
        measures=measures,
        probes=probes_left(state.settings.broker, site, state),
    )


def allowance(spec: SiteSpec) -> int:
    """Pilots that may run or wait there; without such a limit, that may wait there."""
    return max(1, spec.running or spec.queued or 1)


def probes_left(rules: BrokerRules, site: Site, state: State) -> int:
    """Pilots that may still be started at a site about which nothing is known: at most so many
    wait there at a time, and at most a part of those that the site may have."""
    most = min(rules.probes, math.floor(allowance(site.record.spec) * rules.probe_percent / 100.0))
    there = sum(not state.jobs[id_].cancelled for id_ in site.jobs)
    return max(0, max(1, most) - there)


def service_problem(
    state: State, now: float, service: WeightService, given: GivenWeights | None
) -> str:
    """Why its weights are not used; nothing: they are."""
    failed = state.broker.problems.get(service.name, "")
    if given is None:
        return failed or "it has given no weights yet"
    age = now - given.at
    if age > service.most_age_seconds:
        words = f"its weights are {age:,.0f} s old, more than {service.most_age_seconds:,.0f} s"
        return f"{words}: {failed}" if failed else words
    return ""


def _given(given: GivenWeights, candidate: SiteCandidate) -> Worth:
    weight = given.weights.get(candidate.site)
    if weight is None:
        return Worth(0.0, reason=NOT_NAMED)
    if candidate.weight <= 0:
        return Worth(0.0, reason=algorithms.EXCLUDED)
    reason = "" if weight > 0 else "the service gives it no weight"
    return Worth(weight, reason=reason, made_of=(("given", weight),))


def _answered(answer: object, candidate: SiteCandidate) -> Worth:
    """Raises ValueError if a plugin's answer makes no sense."""
    if candidate.weight <= 0:
        return Worth(0.0, reason=algorithms.EXCLUDED)
    if answer is None:
        return Worth(0.0, reason=NOT_NAMED)
    worth = answer if isinstance(answer, Worth) else Worth(float(answer))  # type: ignore[arg-type]
    if not 0.0 <= worth.weight <= MOST_WEIGHT:
        raise ValueError(f"the weight of {candidate.site} is {worth.weight}")
    return Worth(
        float(worth.weight),
        int(worth.tier),
        None if worth.most is None else int(worth.most),
        str(worth.reason)[:_MOST_PROBLEM],
        tuple((str(name), float(value)) for name, value in worth.made_of),
    )


def _made(
    algorithm: str, worths: Worths, candidates: Sequence[SiteCandidate], **more: object
) -> SiteChoice:
    by_site = {candidate.site: candidate for candidate in candidates}
    return SiteChoice(algorithm=algorithm, worths=worths, candidates=by_site, **more)  # type: ignore[arg-type]


# -- what is remembered ----------------------------------------------------------------------------


def remember(
    state: State, now: float, bag: Bag, choice: SiteChoice, tasks: float, pilots: dict[str, int]
) -> None:
    """Keep the split, to explain it. A bag may have several rows of demand: the rows of one
    decision are added up."""
    decisions = state.broker.decisions
    last = decisions.pop(bag.id, None)
    if last is not None and last.at == now:
        tasks += last.tasks
        for name, count in last.pilots.items():
            pilots[name] = pilots.get(name, 0) + count
        if len(last.choice.worths) > len(choice.worths):
            choice = last.choice
    decisions[bag.id] = BrokerDecision(at=now, tasks=tasks, choice=choice, pilots=pilots)
    if len(decisions) > MOST_DECISIONS:
        del decisions[next(iter(decisions))]


def tick(state: State, now: float) -> None:
    """Forget what was decided for bags that are over, and remember the weights of sites."""
    book = state.broker
    for gone in [bag for bag in book.decisions if bag not in state.bags]:
        del book.decisions[gone]
    if state.sites and (not book.history or now - book.history[-1][0] >= WEIGHTS_SECONDS):
        book.history.append(
            (now, {name: w.weight for name, w in weights(state, now).worths.items()})
        )


def weights(state: State, now: float, named: str = "") -> SiteChoice:
    """What every site is worth now to a bag without wishes. `named`: by this broker; empty: by the
    server's."""
    rooms = {name: site_table.room(state, now, site) for name, site in state.sites.items()}
    return Choices(state, now).by(named or state.settings.broker.algorithm, Work(), rooms)
