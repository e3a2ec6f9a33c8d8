"""Whose tasks a site takes: its `users` rule, and what fail-over sites are for.

Every place that needs to know asks here: dispatch, demand for pilots, last chances, answers to
people. The functions return what is in the way, or None.
"""

from enum import StrEnum

from covey.core.record.model import PilotRecord, SiteSpec
from covey.core.state import Bag, State


class SiteBar(StrEnum):
    """Why a site takes none of some tasks, whatever they need."""

    USERS = "users"  # the site has users, and the owner of the tasks is not among them
    FAILOVER = "failover"  # tasks that failed elsewhere go to fail-over sites only, others do not


def bar_for_owner(spec: SiteSpec, owner: str) -> SiteBar | None:
    """What keeps all tasks of the owner away from the site."""
    return SiteBar.USERS if spec.users and owner not in spec.users else None


def bar_for_tasks(state: State, spec: SiteSpec, bag: Bag, *, rescue: bool) -> SiteBar | None:
    """What keeps tasks of the bag away from the site. `rescue`: tasks that failed too often, and
    have one more chance at a fail-over site; otherwise: all other tasks."""
    barred = bar_for_owner(spec, bag.spec.owner)
    if barred is not None:
        return barred
    allowed = spec.name in last_resorts(state, bag) if rescue else not spec.failover
    return None if allowed else SiteBar.FAILOVER


def last_resorts(state: State, bag: Bag) -> tuple[str, ...]:
    """Sites where tasks of the bag that failed too often have one more chance: those that its
    policy names as fail-over sites. If it names none: the sites that are only for fail-over, as far
    as the policy allows them."""
    policy = bag.policy.spec
    if policy.failover_sites or not state.plan.reserves:
        return policy.failover_sites
    return tuple(
        name
        for name in state.plan.reserves
        if (not policy.only_sites or name in policy.only_sites) and name not in policy.avoid_sites
    )


def serves(pilot: PilotRecord, bag: Bag) -> bool:
    """Whether the pilot runs tasks of the bag's owner."""
    return pilot.owner in ("", bag.spec.owner)


def admits(state: State, pilot: PilotRecord, bag: Bag) -> bool:
    """Whether the pilot runs tasks of the bag's owner, and its site takes some of the bag now."""
    if not serves(pilot, bag):
        return False
    spec = state.plan.guarded.get(pilot.site) if state.plan.guarded else None
    if spec is None or bar_for_tasks(state, spec, bag, rescue=False) is None:
        return True
    return bool(bag.places.rescue) and bar_for_tasks(state, spec, bag, rescue=True) is None
