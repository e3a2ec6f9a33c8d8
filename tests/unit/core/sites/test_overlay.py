"""How many pilots are asked for, of what size, within which limits."""

from typing import Any

import pytest

from covey.core.record.model import (
    Need,
    PilotId,
    PolicySpec,
    SiteFacts,
)
from covey.pilot.protocol.messages import Answer
from tests.unit.core.placing import Grounds, asked, local_site, site
from tests.unit.core.table import end, replies, spec

SLOW = Need(limit_seconds=1000.0)


# -- how long ---------------------------------------------------------------------------------


def test_a_task_is_not_sent_to_a_pilot_that_ends_before_it() -> None:
    grounds = Grounds(site(wall_seconds=2000.0), lease_seconds=1e6)
    grounds.submit(spec(2, need=SLOW))
    first, second = grounds.jobs
    assert len(grounds.begin(first, 0).ask().tasks) == 1
    hand = grounds.begin(second, 0)
    grounds.now += 1001
    assert not grounds.sent(hand)


def test_a_task_without_a_limit_is_not_sent_where_others_like_it_would_be_cut() -> None:
    grounds = Grounds(site(wall_seconds=2000.0), lease_seconds=1e6)
    bag = grounds.submit(spec(3))
    grounds.measure(bag, 1000.0)
    first, second, _ = grounds.jobs
    hand, other = grounds.begin(first, 0), grounds.begin(second, 0)
    assert len(hand.ask().tasks) == 1
    grounds.now += 1001
    assert not grounds.sent(other)
    assert asked(grounds.later(3)), "it covers none of them either"
    grounds.measure(bag, 5000.0)  # on average more than it ever had
    assert grounds.sent(other), "somebody may be quicker"


def test_a_pilot_goes_home_before_its_site_would_end_it() -> None:
    grounds = Grounds(site(wall_seconds=600.0), lease_seconds=1e6)
    grounds.submit(spec(1))
    hand = grounds.begin(grounds.jobs[0])
    grounds.now += 571
    assert [answer.leave for answer in replies(hand.sync(0), Answer)] == [True]


def test_what_runs_longer_than_its_limit_gets_more_time_but_no_more_than_there_is() -> None:
    grounds = Grounds(site(wall_seconds=2000.0))
    grounds.submit(spec(1, need=SLOW, retries=3))
    hand = grounds.begin(grounds.jobs[0], 0)
    answer = hand.ask()
    again = hand.ask(1, [end(answer, 0, "timeout")])
    assert [task.limit_seconds for task in again.tasks] == [1970.0], "it needs time to go home"


# -- limits ----------------------------------------------------------------------------------


def test_no_more_wait_than_may() -> None:
    grounds = Grounds(site(queued=3))
    grounds.submit(spec(10))
    assert len(grounds.jobs) == 3
    grounds.runs(grounds.jobs[0])
    assert len(asked(grounds.later(1))) == 1


def test_no_more_run_and_wait_than_may() -> None:
    grounds = Grounds(site(running=4))
    grounds.submit(spec(10))
    grounds.runs(*grounds.jobs)
    grounds.later(5)
    assert len(grounds.jobs) == 4
    gone = grounds.ends(grounds.jobs[0])
    assert not asked(gone), "it failed, and rests"
    assert len(grounds.jobs) == 3


@pytest.mark.parametrize("limit", ["queued", "running"])
def test_nought_is_no_limit(limit: str) -> None:
    none: dict[str, Any] = {limit: 0}
    grounds = Grounds(site(**none))
    grounds.submit(spec(30))
    assert len(grounds.jobs) == 30


@pytest.mark.parametrize(
    "limits",
    [{"memory_mb": 2000, "all_memory_mb": 9000}, {"disk_mb": 200, "all_disk_mb": 900}],
)
def test_budgets_of_memory_and_disk_hold(limits: dict[str, Any]) -> None:
    grounds = Grounds(site(slots=2, **limits))
    grounds.submit(spec(20))
    grounds.later(5)
    assert len(grounds.jobs) == 4


def test_one_owner_leaves_room_for_others() -> None:
    grounds = Grounds(site(per_user=2))
    grounds.submit(spec(10, owner="ann"))
    assert [job.wanted_by for job in grounds.jobs] == ["ann", "ann"]
    grounds.submit(spec(10, owner="bob"))
    grounds.later(2)
    assert sorted(job.wanted_by for job in grounds.jobs) == ["ann", "ann", "bob", "bob"]


def test_who_has_enough_is_not_counted_again_after_a_restart() -> None:
    grounds = Grounds(site(per_user=2))
    grounds.submit(spec(10, owner="ann"))
    later = Grounds(site(per_user=2), snapshot=grounds.after())
    later.later(3)
    assert len(later.jobs) == 2
    assert not asked(later.actions)


# -- sharing out ------------------------------------------------------------------------------


def test_sites_share_by_their_room() -> None:
    grounds = Grounds(site("a", queued=60), site("b", queued=30), site("c", queued=10, slots=3))
    grounds.submit(spec(60))
    slots = {
        name: sum(job.slots for job in grounds.jobs if job.site == name) for name in ("a", "b", "c")
    }
    assert slots == {"a": 30, "b": 15, "c": 15}


def test_a_little_work_asks_for_small_pilots() -> None:
    grounds = Grounds(site(slots=16, memory_mb=16000))
    grounds.submit(spec(3))
    assert [(job.slots, job.memory_mb) for job in grounds.jobs] == [(3, 3000)]


def test_some_sites_give_whole_nodes() -> None:
    grounds = Grounds(site(slots=16, facts=SiteFacts(whole_nodes=True)))
    grounds.submit(spec(3))
    assert [job.slots for job in grounds.jobs] == [16]


@pytest.mark.parametrize(
    ("seconds", "tasks", "wall"),
    [
        (0.0, 10, 86400.0),
        (1.0, 10, 600.0),
        (1000.0, 10, 10020.0),
        (1000.0, 1, 3000.0),
        (3600.0, 20, 72000.0),
        (1e5, 1, 0.0),
    ],
)
def test_pilots_live_as_long_as_the_work_wants(seconds: float, tasks: int, wall: float) -> None:
    """For short jobs start sooner."""
    grounds = Grounds()
    bag = grounds.submit(spec(tasks))
    if seconds:
        grounds.measure(bag, seconds)
    grounds.save(site(wall_seconds=86400.0, running=2))
    assert {job.wall_seconds for job in grounds.jobs} == ({wall} if wall else set())


def test_gpus_of_this_machine_are_found_out_by_its_pilot() -> None:
    grounds = Grounds(local_site(1, 4))
    grounds.submit(spec(2, need=Need(gpus=1)))
    assert len(grounds.jobs) == 1
    assert not asked(grounds.later(5))


# -- idle pilots -------------------------------------------------------------------------------


def test_pilots_that_a_bag_does_not_want_do_not_keep_it_from_others() -> None:
    grounds = Grounds()
    hands = [grounds.enrol(2, host=f"old-{k}") for k in range(2)]
    for hand in hands:
        hand.sync(2)
    grounds.submit(spec(2, policy=PolicySpec(requirements='Host.Name != "old-0" && Host.fast')))
    grounds.save(site())
    assert not grounds.jobs, "they might want it"
    grounds.later(3)
    assert len(grounds.jobs) == 2, "they do not"


def test_a_site_whose_hosts_a_bag_does_not_want_is_not_filled_with_them() -> None:
    grounds = Grounds(site(ramp=1, queued=100), lease_seconds=1e6)
    grounds.submit(spec(50, policy=PolicySpec(requirements="Host.fast")))
    for _ in range(6):
        for job in grounds.jobs:
            if not grounds.scheduler.state.jobs[job.id].running:
                grounds.begin(job)
        grounds.later(4)
    assert 2 <= len(grounds.jobs) <= 4


# -- tasks that took too long ------------------------------------------------------------------


def test_a_task_that_took_too_long_gets_a_pilot_that_lives_long_enough() -> None:
    """With three times the limit, on the only site that has the time."""
    grounds = Grounds(site("short", wall_seconds=200.0))
    grounds.submit(spec(1, need=Need(limit_seconds=100.0)))
    hand = grounds.begin(grounds.jobs[0], 0)
    answer = hand.ask()
    grounds.save(site("long", wall_seconds=2000.0))
    hand.sync(1, [end(answer, outcome="timeout")])
    assert not grounds.scheduler.state.pilots[PilotId(hand.pilot)].attempts
    grounds.later(1)
    [fresh] = [job for job in grounds.jobs if job.site == "long"]
    assert fresh.wall_seconds >= 300.0
    assert [task.limit_seconds for task in grounds.begin(fresh, 0).ask().tasks] == [300.0]
