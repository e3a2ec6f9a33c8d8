"""Whose tasks a site takes: one function decides, for dispatch, for demand and for explaining."""

import pytest

from covey.core.match.site_access import SiteBar, admits, bar_for_owner, bar_for_tasks
from covey.core.record.model import BagId, PilotId, PolicySpec
from tests.unit.core.placing import Grounds, site
from tests.unit.core.table import spec


@pytest.mark.parametrize(
    ("users", "owner", "bar"),
    [
        ((), "eve", None),
        (("ann",), "ann", None),
        (("ann",), "eve", SiteBar.USERS),
        (("ann",), "", SiteBar.USERS),
        (("ann", ""), "", None),
    ],
)
def test_users_of_a_site(users: tuple[str, ...], owner: str, bar: SiteBar | None) -> None:
    assert bar_for_owner(site(users=users), owner) == bar


@pytest.mark.parametrize(
    ("name", "policy", "usual", "rescued"),
    [
        ("plain", PolicySpec(), None, SiteBar.FAILOVER),
        ("plain", PolicySpec(failover_sites=("plain",)), None, None),
        ("last", PolicySpec(), SiteBar.FAILOVER, None),
        ("last", PolicySpec(failover_sites=("plain",)), SiteBar.FAILOVER, SiteBar.FAILOVER),
        ("last", PolicySpec(avoid_sites=("last",)), SiteBar.FAILOVER, SiteBar.FAILOVER),
        ("others", PolicySpec(failover_sites=("others",)), SiteBar.USERS, SiteBar.USERS),
    ],
)
def test_what_keeps_tasks_away(
    name: str, policy: PolicySpec, usual: SiteBar | None, rescued: SiteBar | None
) -> None:
    grounds = Grounds(site("plain"), site("last", failover=True), site("others", users=("eve",)))
    state = grounds.scheduler.state
    bag = state.bags[BagId(grounds.submit(spec(1, owner="ann", policy=policy)))]
    there = state.sites[name].record.spec
    assert bar_for_tasks(state, there, bag, rescue=False) == usual
    assert bar_for_tasks(state, there, bag, rescue=True) == rescued


def test_a_pilot_of_a_fail_over_site_is_for_bags_with_failed_tasks() -> None:
    grounds = Grounds(site("last", failover=True))
    state = grounds.scheduler.state
    bag = state.bags[BagId(grounds.submit(spec(2)))]
    record = state.pilots[PilotId(grounds.enrol(site="last").pilot)].record
    assert not admits(state, record, bag)
    bag.places.rescue.add(0)
    assert admits(state, record, bag)
