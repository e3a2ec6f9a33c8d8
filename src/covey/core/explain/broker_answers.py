"""How the broker split pilots over sites, and why a site got so many and another one none."""

from collections.abc import Mapping

from covey.core.broker import choices
from covey.core.broker.worth import BrokerDecision, SiteChoice, Worth
from covey.core.explain.answers import BagShare, BrokerAnswer, ServiceAnswer, SiteShare
from covey.core.record.broker_rules import WeightService
from covey.core.state import Bag, State

# Words for the factors of a weight; others are shown by their names.
_FACTORS = {
    "weight": "weight = {:g} in the configuration",
    "speed": "speed {:.3g}",
    "f": "f = {:.3g}",
    "given": "{:g} given by the service",
}
_COUNTED = {"room": ("room for", "pilot"), "slots": ("", "slot")}
_ASIDE = ("wait", "price")  # parts of what an algorithm looked at that are no factors


def of_bag(state: State, now: float, bag: Bag) -> BrokerAnswer | None:
    """None: no pilot was asked for yet, and the bag names no broker."""
    decision = state.broker.decisions.get(bag.id)
    if decision is None:
        if not (named := bag.spec.broker):
            return None
        text = f"{named}; it has not been asked for pilots of this bag yet"
        return BrokerAnswer(at=now, algorithm=named, tasks=0.0, text=text, sites=[])
    return BrokerAnswer(
        at=decision.at,
        algorithm=decision.choice.algorithm,
        instead_of=decision.choice.instead_of,
        drawn=decision.choice.drawn,
        source=decision.choice.source,
        given_at=decision.choice.given_at,
        tasks=decision.tasks,
        text=_words(decision, now),
        sites=[_share(decision, name, now) for name in _by_pilots(decision)],
    )


def of_site(state: State, now: float, site: str, owner: str | None) -> list[BagShare]:
    """`owner`: of whose bags; None: of all."""
    found = []
    for id_, decision in state.broker.decisions.items():
        bag = state.bags.get(id_)
        seen = bag is not None and owner in (None, bag.spec.owner)
        if bag is None or not seen or site not in decision.choice.worths:
            continue
        found.append(
            BagShare(
                bag=id_,
                name=bag.spec.name,
                at=decision.at,
                algorithm=decision.choice.algorithm,
                share=_share(decision, site, now),
            )
        )
    return found


def table(
    state: State, now: float, algorithm: str, stops: Mapping[str, str] | None = None
) -> BrokerAnswer:
    """What every site is worth now to a bag without wishes. `stops`: why no pilot can be started
    at a site now, whatever it is worth."""
    stopped = stops or {}
    choice = choices.weights(state, now, algorithm)
    decision = BrokerDecision(at=now, tasks=0.0, choice=choice, pilots={})
    sites = [
        SiteShare(
            site=name,
            pilots=0,
            weight=worth.weight,
            tier=worth.tier,
            room=choice.candidates[name].room,
            made_of=dict(worth.made_of),
            measured_at=choice.candidates[name].measures.measured_at,
            text=stopped.get(name) or worth.reason or _made_of(worth),
        )
        for name, worth in choice.worths.items()
    ]
    return BrokerAnswer(
        at=now,
        algorithm=choice.algorithm,
        instead_of=choice.instead_of,
        drawn=choice.drawn,
        source=choice.source,
        given_at=choice.given_at,
        tasks=0.0,
        text=_by_whom(decision, now),
        sites=sites,
        services=[_service(state, now, service) for service in state.settings.broker.services],
    )


def _service(state: State, now: float, service: WeightService) -> ServiceAnswer:
    given = state.broker.given.get(service.name)
    return ServiceAnswer(
        name=service.name,
        url=service.url,
        source=given.source if given is not None else "",
        given_at=given.at if given is not None else None,
        weights=given.weights if given is not None else {},
        problem=choices.service_problem(state, now, service, given),
        failure=state.broker.problems.get(service.name, ""),
        fallback=service.fallback,
    )


def _by_pilots(decision: BrokerDecision) -> list[str]:
    """The site that got most comes first."""
    pilots, worths = decision.pilots, decision.choice.worths
    return sorted(worths, key=lambda name: (-pilots.get(name, 0), -worths[name].weight, name))


def _words(decision: BrokerDecision, now: float) -> str:
    pilots = sum(decision.pilots.values())
    many = f"{pilots:,} {'pilot' if pilots == 1 else 'pilots'}"
    tasks = f"{decision.tasks:,.0f} {'task' if round(decision.tasks) == 1 else 'tasks'}"
    when = _ago(now - decision.at)
    return f"{many} for {tasks} without one, {when}, by {_by_whom(decision, now)}"


def _by_whom(decision: BrokerDecision, now: float) -> str:
    choice = decision.choice
    words = choice.algorithm
    if choice.drawn:
        words += ": a site is drawn for each pilot, by weight"
    if choice.given_at is not None:
        words += f": weights of {choice.source}, given {_ago(now - choice.given_at)}"
    if choice.instead_of:
        words += f" instead of {choice.instead_of}: {choice.problem}"
    return words


def _share(decision: BrokerDecision, site: str, now: float) -> SiteShare:
    choice, pilots = decision.choice, decision.pilots.get(site, 0)
    worth, candidate = choice.worths[site], choice.candidates[site]
    measured_at = candidate.measures.measured_at
    notes = _why(choice, worth, pilots, candidate.room)
    if measured_at is not None:
        notes.append(f"measured {_ago(now - measured_at)}")
    return SiteShare(
        site=site,
        pilots=pilots,
        weight=worth.weight,
        tier=worth.tier,
        room=candidate.room,
        made_of=dict(worth.made_of),
        measured_at=measured_at,
        text="; ".join(notes),
    )


def _why(choice: SiteChoice, worth: Worth, pilots: int, room: int) -> list[str]:
    """Why it got so many, or none: notes, the most important first."""
    whole = sum(other.weight for other in choice.worths.values() if other.tier == worth.tier)
    factors = _made_of(worth)
    factors = f" ({factors})" if factors else ""
    part = f"weight {worth.weight:.4g} of {whole:.4g}{factors}"
    if worth.weight <= 0:
        return [f"no pilots: {worth.reason or 'its weight is 0'}{factors}"]
    if pilots:
        full = [f"it has room for no more than {room:,}"] if pilots >= room else []
        return [part, *full, *([worth.reason] if worth.reason else [])]
    if room <= 0:
        return ["no pilots: it is full", part]
    if worth.reason:
        return [f"no pilots: {worth.reason}", part]
    if any(other.tier < worth.tier for other in choice.worths.values()):
        return ["no pilots: sites that come first had room for all", part]
    if choice.drawn:
        return ["no pilots: it was not drawn", part]
    return ["no pilots: its part is less than one pilot, or others needed its room", part]


def _made_of(worth: Worth) -> str:
    """Such as: 40 slots × speed 1.2 × f = 0.83, for a wait of 7 min."""
    factors = [_factor(name, value) for name, value in worth.made_of if name not in _ASIDE]
    parts = [" × ".join(factors)] if factors else []
    for name, value in worth.made_of:
        if name == "wait":
            parts.append(f"for a wait of {_span(value)}")
        elif name == "price":
            parts.append(f"at a price of {value:g}")
    return ", ".join(parts)


def _factor(name: str, value: float) -> str:
    if name in _COUNTED:
        before, noun = _COUNTED[name]
        return f"{before} {value:,.0f} {noun if round(value) == 1 else noun + 's'}".strip()
    return _FACTORS.get(name, name + " {:g}").format(value)


def _ago(seconds: float) -> str:
    return "just now" if seconds < 1.0 else f"{_span(seconds)} ago"


def _span(seconds: float) -> str:
    if seconds < 120.0:
        return f"{seconds:.0f} s"
    return f"{seconds / 60.0:,.0f} min" if seconds < 7200.0 else f"{seconds / 3600.0:,.1f} h"
