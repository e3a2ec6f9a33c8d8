"""At which sites pilots are started: what their users and the bags' policies say."""

import pytest

from covey.core.record.model import PolicySpec
from tests.unit.core.placing import Grounds, counted, site
from tests.unit.core.table import end, spec

FAILOVER = PolicySpec(avoid_sites=("last",), failover_sites=("last",))


def test_only_its_users_have_pilots_at_a_site() -> None:
    grounds = Grounds(site("anns", users=("ann",)), site("all", ramp=1))
    grounds.submit(spec(4, owner="bob"))
    assert counted(grounds.jobs) == {"all": 1}
    grounds.submit(spec(4, owner="ann"))
    assert counted(grounds.jobs)["anns"] == 4


def test_a_pilot_there_runs_their_tasks_only() -> None:
    grounds = Grounds(site("anns", users=("ann",)))
    grounds.submit(spec(4, owner="bob"))
    anns = grounds.submit(spec(1, owner="ann"))
    hand = grounds.begin(grounds.jobs[0], 0)
    assert [task.bag for task in hand.ask(4).tasks] == [anns]


@pytest.mark.parametrize(
    ("policy", "where"),
    [
        (PolicySpec(only_sites=("a",)), "a"),
        (PolicySpec(avoid_sites=("a",)), "b"),
        (PolicySpec(requirements='Site.Name == "b"'), "b"),
        (PolicySpec(requirements='Host.fast && Site.Name == "b"'), "b"),
        (PolicySpec(requirements="Host.fast"), "ab"),
        (PolicySpec(grid='Site.Name == "a"'), "a"),
        (PolicySpec(grid="Site.Price < 2"), "a"),
        (PolicySpec(grid='Site.Driver == "virtual" && Site.MaxWall > 4000'), "b"),
        (PolicySpec(grid="JobsTotal > 100 || Site.PilotSlots > 1"), "b"),
        (PolicySpec(grid="JobsTotal > 3"), "ab"),
        (PolicySpec(grid="Host.fast"), "ab"),
        (PolicySpec(grid='"a" + 1'), ""),
        (PolicySpec(grid="false"), ""),
        (PolicySpec(grid="User.Name == undefined"), "ab"),
        (PolicySpec(grid='User.Name == "ann" && Queue.BOTsInQueue == 1'), "ab"),
        (PolicySpec(grid="Site.FreePilots > 10"), "b"),
        (PolicySpec(grid="!Site.Failover && Site.Waiting + Site.Running == 0"), "ab"),
        (PolicySpec(grid='Site.Name == "a"', only_sites=("b",)), ""),
    ],
)
def test_policies_say_where(policy: PolicySpec, where: str) -> None:
    a = site("a", queued=8, price=1.0, wall_seconds=3600.0)
    b = site("b", queued=12, price=3.0, wall_seconds=7200.0, slots=2)
    grounds = Grounds(a, b)
    grounds.submit(spec(8, owner="ann", policy=policy))
    assert "".join(sorted({job.site for job in grounds.jobs})) == where


def test_a_policy_is_asked_again_when_what_it_sees_has_changed() -> None:
    grounds = Grounds(site(queued=0, ramp=2))
    grounds.submit(spec(10, policy=PolicySpec(grid="Site.Running + Site.Waiting < 4")))
    assert len(grounds.jobs) == 2
    for job in grounds.jobs:
        grounds.begin(job)
    grounds.later(10)
    assert 4 <= len(grounds.jobs) <= 10
    waiting = len(grounds.jobs)
    grounds.later(10)
    assert len(grounds.jobs) == waiting


@pytest.mark.parametrize("reserve", [False, True])
def test_a_fail_over_site_has_pilots_for_tasks_that_failed_elsewhere(reserve: bool) -> None:
    grounds = Grounds(site("first", ramp=1), site("last", failover=reserve))
    grounds.submit(spec(3, policy=FAILOVER))
    assert counted(grounds.jobs) == {"first": 1}
    hand = grounds.begin(grounds.jobs[0], 0)
    hand.ask(1, [end(hand.ask(), 0, "failed")])
    grounds.later(1)
    last = [job for job in grounds.jobs if job.site == "last"]
    assert len(last) == 1, "for the one that failed, not for those that wait"
    assert [task.task for task in grounds.begin(last[0], 0).ask(3).tasks] == [0]


def test_a_fail_over_site_runs_nothing_else() -> None:
    grounds = Grounds(site("last", failover=True))
    grounds.submit(spec(3))
    assert not grounds.jobs
    hand = grounds.enrol(4, site="last")
    assert not grounds.sent(hand)


def test_requirements_that_look_at_sites_and_hosts_decide_for_sites_alone() -> None:
    text = 'Site.Name != "lake" && Host.fast'
    grounds = Grounds(site("lake"), site("wood"))
    grounds.submit(spec(4, policy=PolicySpec(requirements=text, rank="Host.mhz", concurrency="2")))
    assert {job.site for job in grounds.jobs} == {"wood"}
