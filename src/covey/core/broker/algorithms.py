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
        lambda one: Worth(
            float(one.room * one.slots), made_of=(("room", one.room), ("slots", one.slots))
        ),
    )


def by_static_weight(rules: BrokerRules, work: Work, candidates: Sequence[SiteCandidate]) -> Worths:
    """In proportion to the weights of the configuration."""
    return _unless_excluded(
        candidates, lambda one: Worth(one.weight, made_of=(("weight", one.weight),))
    )


def by_measures(rules: BrokerRules, work: Work, candidates: Sequence[SiteCandidate]) -> Worths:
    """In proportion to parallelism × speed × f(wait). A site at which the wait is so long that f
    is 0 gets only what others have no room for."""
    found = {}
    for one in candidates:
        if one.measured is None:
            one.measured = _measured(rules, one) if one.weight > 0 else _EXCLUDED
        found[one.site] = one.measured
    return _with_probes(rules, work, candidates, found)


def by_wait(rules: BrokerRules, work: Work, candidates: Sequence[SiteCandidate]) -> Worths:
    """Equal parts for the sites with the shortest expected wait; others if these are full."""
    able = [one for one in candidates if one.weight > 0]
    order = sorted(able, key=lambda one: (expected_wait(one), one.site))
    rank = {one.site: place for place, one in enumerate(order)}

    def worth(one: SiteCandidate) -> Worth:
        wait, near = expected_wait(one), rank[one.site] < rules.nearest
        many = "one site has" if rules.nearest == 1 else f"{rules.nearest} sites have"
        reason = "" if near else f"{many} a shorter wait"
        return Worth(1.0, 0 if near else _WAITING, reason=reason, made_of=(("wait", wait),))

    return _with_probes(rules, work, candidates, _unless_excluded(candidates, worth))


def by_price(rules: BrokerRules, work: Work, candidates: Sequence[SiteCandidate]) -> Worths:
    """The cheapest sites, so many of them as are done in time. Without a time to be done the
    cheapest are enough; if all together are too slow, all are used."""
    able = sorted((one for one in candidates if one.weight > 0), key=lambda one: one.price)
    prices = list(dict.fromkeys(one.price for one in able))
    left, enough = work.tasks, len(prices)
    for number, price in enumerate(prices):
        left -= sum(_done_in_time(work, one) for one in able if one.price == price)
        if left <= 1e-6:
            enough = number + 1
            break

    def worth(one: SiteCandidate) -> Worth:
        tier = prices.index(one.price)
        made_of = (("price", one.price), ("room", one.room), ("slots", one.slots))
        if tier >= enough:
            return Worth(0.0, tier, reason=UNNEEDED, made_of=made_of)
        return Worth(float(max(1, one.room) * one.slots), tier, made_of=made_of)

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


def parallelism(one: SiteCandidate) -> float:
    """Slots that we can have there at most: what the site has, or the configuration allows."""
    ours = float(one.allowance * one.slots)
    cores = one.measures.total_cores
    return ours if cores is None else min(ours, float(max(0, cores)))


def expected_wait(one: SiteCandidate) -> float:
    """Seconds until a pilot that is asked for now is at work. 0: nothing is known."""
    measures = one.measures
    return (measures.wait_median or 0.0) + (measures.start_overhead or 0.0)


def is_unknown(one: SiteCandidate) -> bool:
    """No pilot has started there yet, as far as is remembered."""
    return one.measures.jobs <= one.measures.waiting


def _measured(rules: BrokerRules, one: SiteCandidate) -> Worth:
    wait = one.measures.wait_median or 0.0
    speed = one.measures.speed if one.measures.speed is not None else 1.0
    factor, slots = wait_factor(rules, wait), parallelism(one)
    made_of = (("slots", slots), ("speed", speed), ("wait", wait), ("f", factor))
    weight = slots * speed * factor
    if weight > 0.0:
        return Worth(weight, made_of=made_of)
    reason = f"pilots wait there for {wait / 60.0:,.0f} min"
    return Worth(max(1.0, slots), _WAITING, reason=reason, made_of=made_of)


def _done_in_time(work: Work, one: SiteCandidate) -> float:
    """Tasks that the site could do before the bag should be done; all of them if there is no such
    time. A site where nothing has run yet is taken to start at once."""
    if work.seconds_left is None:
        return work.tasks
    seconds = work.seconds / (one.measures.speed or 1.0)
    left = work.seconds_left - expected_wait(one)
    if left <= 0.0:
        return 0.0
    if seconds <= 0.0:
        return work.tasks
    places = one.allowance * max(1, one.slots // max(1, work.taken))
    return places * math.floor(left / seconds)


# -- what is the same for several -----------------------------------------------------------------


def _unless_excluded(
    candidates: Sequence[SiteCandidate], worth: Callable[[SiteCandidate], Worth]
) -> Worths:
    return {one.site: worth(one) if one.weight > 0 else _EXCLUDED for one in candidates}


def _with_probes(
    rules: BrokerRules, work: Work, candidates: Sequence[SiteCandidate], found: Worths
) -> Worths:
    """Sites about which nothing is known get probes, the first pilots of all. Work for one pilot
    only goes to a site that is known, if there is any."""
    unknown = [one for one in candidates if is_unknown(one) and found[one.site].weight > 0]
    if not unknown:
        return found
    known = any(
        found[one.site].weight > 0 and found[one.site].tier <= 0
        for one in candidates
        if not is_unknown(one)
    )
    few = work.places <= max(one.slots for one in unknown) // max(1, work.taken)
    for one in unknown:
        worth, reason = found[one.site], _probe_words(one)
        tier = worth.tier
        if tier <= 0:
            tier = _WAITING if few and known else _PROBING
        elif worth.reason:
            reason = f"{worth.reason}; {reason}"
        found[one.site] = worth._replace(tier=tier, most=one.probes, reason=reason)
    return found


def _probe_words(one: SiteCandidate) -> str:
    waiting = one.measures.waiting
    if not waiting:
        return f"no pilot has started there yet: {one.probes:,} may be started to try it"
    more = f"{one.probes:,} more may be started" if one.probes else "no more until one has"
    if waiting == 1:
        return f"the pilot that waits there has not started yet: {more}"
    return f"none of the {waiting:,} pilots that wait there has started yet: {more}"
