"""The algorithms that a bag or the configuration can name. Each says what every candidate is worth.

A site with weight 0 in the configuration gets nothing from any of them. A site about which nothing
is known gets probes (`measured`, `least-loaded`, `price`): a few pilots, before anybody else. If
they wait for long, the time that they have waited so far counts as the site's wait.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from covey.core.broker.worth import SiteCandidate, Work, Worth, Worths
from covey.core.record.broker_rules import (
    LEAST_LOADED,
    MEASURED,
    PRICE,
    ROOM,
    STATIC,
    BrokerRules,
)

Algorithm: TypeAlias = Callable[[BrokerRules, Work, Sequence[SiteCandidate]], Worths]

UNNEEDED = "cheaper sites are enough"
EXCLUDED = "its weight is 0 in the configuration"
_EXCLUDED = Worth(0.0, reason=EXCLUDED)
_PROBING, _WAITING = -1, 1  # tiers of sites that are explored, and of those that make us wait


def by_room(rules: BrokerRules, work: Work, candidates: Sequence[SiteCandidate]) -> Worths:
    """In proportion to the slots for which there is room now."""
    return _unless_excluded(
        candidates,
        lambda candidate: Worth(
            float(candidate.room * candidate.slots),
            made_of=(("room", candidate.room), ("slots", candidate.slots)),
        ),
    )


def by_static_weight(rules: BrokerRules, work: Work, candidates: Sequence[SiteCandidate]) -> Worths:
    """In proportion to the weights of the configuration."""
    return _unless_excluded(
        candidates,
        lambda candidate: Worth(candidate.weight, made_of=(("weight", candidate.weight),)),
    )


def by_measures(rules: BrokerRules, work: Work, candidates: Sequence[SiteCandidate]) -> Worths:
    """In proportion to parallelism × speed × f(wait). A site at which the wait is so long that f
    is 0 gets only what others have no room for."""
    found = {}
    for candidate in candidates:
        if candidate.measured is None:
            candidate.measured = _measured(rules, candidate) if candidate.weight > 0 else _EXCLUDED
        found[candidate.site] = candidate.measured
    return _with_probes(rules, work, candidates, found)


def by_wait(rules: BrokerRules, work: Work, candidates: Sequence[SiteCandidate]) -> Worths:
    """Equal parts for the sites with the shortest expected wait; others if these are full."""
    able = [candidate for candidate in candidates if candidate.weight > 0]
    order = sorted(able, key=lambda candidate: (expected_wait(candidate), candidate.site))
    rank = {candidate.site: place for place, candidate in enumerate(order)}

    def worth(candidate: SiteCandidate) -> Worth:
        wait, near = expected_wait(candidate), rank[candidate.site] < rules.nearest
        many = "one site has" if rules.nearest == 1 else f"{rules.nearest} sites have"
        reason = "" if near else f"{many} a shorter wait"
        return Worth(1.0, 0 if near else _WAITING, reason=reason, made_of=(("wait", wait),))

    return _with_probes(rules, work, candidates, _unless_excluded(candidates, worth))


def by_price(rules: BrokerRules, work: Work, candidates: Sequence[SiteCandidate]) -> Worths:
    """The cheapest sites, so many of them as are done in time. Without a time to be done the
    cheapest are enough; if all together are too slow, all are used."""
    able = sorted(
        (candidate for candidate in candidates if candidate.weight > 0),
        key=lambda candidate: candidate.price,
    )
    prices = list(dict.fromkeys(candidate.price for candidate in able))
    left, enough = work.tasks, len(prices)
    for number, price in enumerate(prices):
        left -= sum(
            _done_in_time(work, candidate) for candidate in able if candidate.price == price
        )
        if left <= 1e-6:
            enough = number + 1
            break

    def worth(candidate: SiteCandidate) -> Worth:
        tier = prices.index(candidate.price)
        made_of = (("price", candidate.price), ("room", candidate.room), ("slots", candidate.slots))
        if tier >= enough:
            return Worth(0.0, tier, reason=UNNEEDED, made_of=made_of)
        return Worth(float(max(1, candidate.room) * candidate.slots), tier, made_of=made_of)

    found = _unless_excluded(candidates, worth)
    return _with_probes(rules, work, candidates, found)


ALGORITHMS: Mapping[str, Algorithm] = {
    ROOM: by_room,
    STATIC: by_static_weight,
    MEASURED: by_measures,
    LEAST_LOADED: by_wait,
    PRICE: by_price,
}


def by_draw(rules: BrokerRules, work: Work, candidates: Sequence[SiteCandidate]) -> Worths:
    """`random` has the weights of another algorithm, and draws by them."""
    name = rules.draw_by if rules.draw_by in ALGORITHMS else STATIC
    return ALGORITHMS[name](rules, work, candidates)


# -- factors -----------------------------------------------------------------------------------


def wait_factor(rules: BrokerRules, seconds: float) -> float:
    """f(x) = 1 - log(x) / divisor for x minutes, between 0 and 1."""
    if seconds <= 60.0:
        return 1.0
    factor = 1.0 - math.log(seconds / 60.0) / math.log(rules.log_base) / rules.log_divisor
    return min(1.0, max(0.0, factor))


def parallelism(candidate: SiteCandidate) -> float:
    """Slots that we can have there at most: what the site has, or the configuration allows."""
    ours = float(candidate.allowance * candidate.slots)
    cores = candidate.measures.total_cores
    return ours if cores is None else min(ours, float(max(0, cores)))


def expected_wait(candidate: SiteCandidate) -> float:
    """Seconds until a pilot that is asked for now is at work. 0: nothing is known."""
    measures = candidate.measures
    return (measures.wait_median or 0.0) + (measures.start_overhead or 0.0)


def is_unknown(candidate: SiteCandidate) -> bool:
    """No pilot has started there yet, as far as is remembered."""
    return candidate.measures.jobs <= candidate.measures.waiting


def _measured(rules: BrokerRules, candidate: SiteCandidate) -> Worth:
    wait = candidate.measures.wait_median or 0.0
    speed = candidate.measures.speed if candidate.measures.speed is not None else 1.0
    factor, slots = wait_factor(rules, wait), parallelism(candidate)
    made_of = (("slots", slots), ("speed", speed), ("wait", wait), ("f", factor))
    weight = slots * speed * factor
    if weight > 0.0:
        return Worth(weight, made_of=made_of)
    reason = f"pilots wait there for {wait / 60.0:,.0f} min"
    return Worth(max(1.0, slots), _WAITING, reason=reason, made_of=made_of)


def _done_in_time(work: Work, candidate: SiteCandidate) -> float:
    """Tasks that the site could do before the bag should be done; all of them if there is no such
    time. A site where nothing has run yet is taken to start at once. While nobody knows how long a
    task takes, a site that is full does none of these."""
    if work.seconds_left is None:
        return work.tasks
    seconds = work.seconds / (candidate.measures.speed or 1.0)
    left = work.seconds_left - expected_wait(candidate)
    if left <= 0.0:
        return 0.0
    if seconds <= 0.0:
        return work.tasks if candidate.room > 0 else 0.0
    places = candidate.allowance * max(1, candidate.slots // max(1, work.taken))
    return places * math.floor(left / seconds)


# -- what is the same for several -----------------------------------------------------------------


def _unless_excluded(
    candidates: Sequence[SiteCandidate], worth: Callable[[SiteCandidate], Worth]
) -> Worths:
    return {
        candidate.site: worth(candidate) if candidate.weight > 0 else _EXCLUDED
        for candidate in candidates
    }


def _with_probes(
    rules: BrokerRules, work: Work, candidates: Sequence[SiteCandidate], found: Worths
) -> Worths:
    """Sites about which nothing is known get probes, the first pilots of all. Work for one pilot
    only goes to a site that is known, if there is any."""
    unknown = [
        candidate
        for candidate in candidates
        if is_unknown(candidate) and found[candidate.site].weight > 0
    ]
    if not unknown:
        return found
    known = any(
        found[candidate.site].weight > 0 and found[candidate.site].tier <= 0
        for candidate in candidates
        if not is_unknown(candidate)
    )
    few = work.places <= max(candidate.slots for candidate in unknown) // max(1, work.taken)
    for candidate in unknown:
        worth, reason = found[candidate.site], _probe_words(candidate)
        tier = worth.tier
        if tier <= 0:
            tier = _WAITING if few and known else _PROBING
        elif worth.reason:
            reason = f"{worth.reason}; {reason}"
        found[candidate.site] = worth._replace(tier=tier, most=candidate.probes, reason=reason)
    return found


def _probe_words(candidate: SiteCandidate) -> str:
    waiting = candidate.measures.waiting
    if not waiting:
        return f"no pilot has started there yet: {candidate.probes:,} may be started to try it"
    more = (
        f"{candidate.probes:,} more may be started" if candidate.probes else "no more until one has"
    )
    if waiting == 1:
        return f"the pilot that waits there has not started yet: {more}"
    return f"none of the {waiting:,} pilots that wait there has started yet: {more}"
