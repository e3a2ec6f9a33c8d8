"""How many pilots the waiting tasks want, and of which kind."""

from typing import Any

import pytest

from covey.core.record.events import CancelRequested, PauseRequested
from covey.core.record.model import BagId, Condition, Need, PilotId, PilotStatus, Rule
from tests.unit.core.placing import Grounds, asked, counted, site
from tests.unit.core.sites.test_overlay import SLOW
from tests.unit.core.table import spec


def test_nothing_is_asked_for_an_empty_queue() -> None:
    grounds = Grounds(site())
    assert not asked(grounds.actions + grounds.later(5))
    bag = grounds.submit(spec(3))
    grounds.handle(PauseRequested(grounds.request(), BagId(bag), "wait"))
    before = len(grounds.jobs)
    grounds.later(5)
    assert len(grounds.jobs) == before == 3, "and none for a bag that is paused"


def test_each_task_wants_a_slot_as_long_as_nothing_is_measured() -> None:
    grounds = Grounds(site(slots=4))
    grounds.submit(spec(10))
    assert [job.slots for job in grounds.jobs] == [4, 4, 4]
    assert not asked(grounds.later(5)), "they are on their way"


@pytest.mark.parametrize(
    ("seconds", "slots"), [(0.1, 10), (1.0, 100), (10.0, 1000), (3600.0, 1000)]
)
def test_short_tasks_share_slots(seconds: float, slots: int) -> None:
    """A slot must have ten seconds of work to be worth a pilot."""
    grounds = Grounds()
    bag = grounds.submit(spec(1000))
    grounds.measure(bag, seconds)
    grounds.save(site(wall_seconds=0.0, running=0))
    assert len(grounds.jobs) == slots


def test_what_pilots_do_next_is_not_asked_for() -> None:
    grounds = Grounds()
    bag = grounds.submit(spec(100))
    hand = grounds.enrol(slots=10)
    hand.sync(10)
    grounds.measure(bag, 1.0)
    grounds.save(site(wall_seconds=0.0))
    assert not grounds.jobs, "90 tasks wait; ten slots do a hundred of them in ten seconds"


def test_a_pilot_that_takes_no_more_covers_nothing() -> None:
    """It is about to end, though it may be long until its last task has."""
    grounds = Grounds()
    grounds.submit(spec(5))
    hand = grounds.enrol(slots=8)
    hand.ask(1)
    hand.sync(0)
    grounds.save(site())
    assert len(grounds.jobs) == 4


def test_one_that_is_suspected_is_still_there() -> None:
    grounds = Grounds(site())
    grounds.submit(spec(2))
    hands = [grounds.begin(job) for job in grounds.jobs]
    for hand in hands:
        hand.sync(2)
    for hand in hands:
        pilot = grounds.scheduler.state.pilots[PilotId(hand.pilot)]
        pilot.status = PilotStatus.SUSPECTED
    grounds.submit(spec(2, owner="ann"))
    assert len(grounds.jobs) == 4
    for hand in hands:
        pilot = grounds.scheduler.state.pilots[PilotId(hand.pilot)]
        pilot.status = PilotStatus.SUSPECTED
    assert not asked(grounds.later(1))


def test_classes_are_counted_by_what_they_need() -> None:
    grounds = Grounds(site("small", slots=2), site("large", slots=8))
    rule = Rule(when=(Condition(name="i", low=6),), need=Need(cores=4))
    grounds.submit(spec(8, rules=(rule,)))
    grounds.later(1)
    large = [job for job in grounds.jobs if job.site == "large"]
    assert sum(job.slots // 4 for job in large) >= 2
    assert sum(job.slots for job in grounds.jobs) >= 6 + 2 * 4


@pytest.mark.parametrize(
    "need", [Need(memory_mb=9000), Need(gpus=1), Need(disk_mb=600), Need(cores=5)]
)
def test_what_fits_nowhere_is_not_asked_for(need: Need) -> None:
    grounds = Grounds(site(slots=4, memory_mb=8000, disk_mb=500))
    grounds.submit(spec(3, need=need))
    assert not grounds.jobs


@pytest.mark.parametrize(
    "need", [Need(memory_mb=3000), Need(disk_mb=900), Need(gpus=1), Need(cores=3), Need(gpus=2)]
)
def test_a_pilot_that_is_asked_for_can_hold_the_task(need: Need) -> None:
    """Else it would be asked for again and again."""
    grounds = Grounds(site(slots=8, memory_mb=8000, disk_mb=1000, gpus=2))
    grounds.submit(spec(1, need=need))
    [job] = grounds.jobs
    assert not asked(grounds.later(3))
    record: dict[str, Any] = {"memory_mb": job.memory_mb, "disk_mb": job.disk_mb, "gpus": job.gpus}
    hand = grounds.enrol(job.slots, site=job.site, job=job.id, **record)
    assert len(hand.ask().tasks) == 1


def test_tasks_that_take_long_want_pilots_that_live_long() -> None:
    grounds = Grounds(site("short", wall_seconds=900.0), site("long", wall_seconds=2000.0))
    grounds.submit(spec(2, need=SLOW))
    assert counted(grounds.jobs) == {"long": 2}
    assert not asked(grounds.later(5)), "whatever the units in which lifetimes are told apart"


def test_a_pilot_whose_time_is_nearly_over_covers_none_of_them() -> None:
    grounds = Grounds(site(wall_seconds=2000.0), lease_seconds=1e6, poll_seconds=1e6)
    first = grounds.submit(spec(1))
    [job] = grounds.jobs
    hand = grounds.begin(job)
    grounds.handle(CancelRequested(grounds.request(), BagId(first)))
    grounds.now += 1100
    hand.sync(1)
    grounds.submit(spec(1, need=SLOW))
    assert len(grounds.jobs) == 2
