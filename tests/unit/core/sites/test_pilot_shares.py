"""What is missing, shared out over sites: who finds room where."""

from covey.core.record.model import PolicySpec
from tests.unit.core.placing import Grounds, counted, site
from tests.unit.core.table import spec

LAKE_ONLY = PolicySpec(only_sites=("lake",))


def test_whoever_can_go_elsewhere_leaves_room_for_others() -> None:
    before = Grounds()
    before.submit(spec(10, owner="ann"))
    before.submit(spec(10, owner="bob", policy=LAKE_ONLY))
    lake, wood = site("lake", running=10), site("wood", running=10)
    grounds = Grounds(lake, wood, snapshot=before.after())
    grounds.later(2)
    assert counted(grounds.jobs) == {"lake": 10, "wood": 10}
    assert {job.wanted_by for job in grounds.jobs if job.site == "lake"} == {"bob"}


def test_a_limit_for_each_owner_holds_over_several_rows() -> None:
    grounds = Grounds(site("lake", per_user=3), site("wood", per_user=2))
    grounds.submit(spec(4, owner="ann"))
    grounds.submit(spec(4, owner="ann"))
    assert counted(grounds.jobs) == {"lake": 3, "wood": 2}
