"""Sites that fail rest, are probed, and recover; one that is slow or away slows nobody."""

import pytest

from covey.core.record.events import (
    CancelRequested,
    JobRefused,
    PilotLeft,
    SiteAnswered,
    SiteFailed,
)
from covey.core.record.model import BagId, JobRecord, SiteSpec
from covey.core.sites import demand, overlay, site_table
from covey.pilot.protocol.messages import Leave
from tests.unit.core.placing import Grounds, asked, counted, site, taken_back
from tests.unit.core.table import end, spec


def test_more_wait_as_pilots_start() -> None:
    grounds = Grounds(site(ramp=2))
    grounds.submit(spec(100))
    assert len(grounds.jobs) == 2
    grounds.begin(grounds.jobs[0])
    grounds.later(1)
    waiting = [job for job in grounds.scheduler.state.jobs.values() if not job.running]
    assert (grounds.site().ramp, len(waiting)) == (4, 4)


def test_fewer_wait_as_they_fail_and_the_rests_grow() -> None:
    grounds = Grounds(site(ramp=8, queued=8))
    grounds.submit(spec(100))
    rests = []
    for _ in range(4):
        grounds.now += 1
        grounds.ends(*grounds.jobs)
        rests.append(round(grounds.site().rests_until - grounds.now))
        assert not asked(grounds.later(rests[-1] - 1))
        assert len(asked(grounds.later(1))) == 1
    assert rests == [5, 10, 20, 40]
    assert grounds.site().ramp == 1


def test_a_refused_job_is_not_there() -> None:
    grounds = Grounds(site())
    grounds.submit(spec(1))
    [job] = grounds.jobs
    grounds.handle(JobRefused(job.id, "the account has expired"))
    assert not grounds.jobs
    assert grounds.site().problem == "the account has expired"
    assert not asked(grounds.later(4))
    assert len(asked(grounds.later(2))) == 1


def test_one_job_probes_a_site_that_failed_until_it_is_well() -> None:
    grounds = Grounds(site(ramp=4))
    grounds.measure(grounds.submit(spec(100)), 3000.0)
    grounds.ends(*grounds.jobs)
    grounds.later(120)
    [probe] = grounds.jobs
    hand = grounds.begin(probe)
    assert not asked(grounds.later(20)), "it has not shown anything yet"
    hand.sync(1, [end(grounds.latest(), 0)])
    assert grounds.site().failures == 0
    assert len(asked(grounds.later(1))) == 4


@pytest.mark.parametrize(
    "limited", [site(ramp=3, running=2), site(ramp=3, all_memory_mb=2000, memory_mb=1000)]
)
def test_a_probe_is_within_the_limits_of_its_site(limited: SiteSpec) -> None:
    grounds = Grounds(limited)
    grounds.measure(grounds.submit(spec(100)), 3000.0)
    for job in grounds.jobs:
        hand = grounds.begin(job)
        hand.sync(1, [end(grounds.latest(), 0)])
    grounds.site().failures = 1
    grounds.later(30)
    assert len(grounds.jobs) == 2
    grounds.ends(grounds.jobs[0])
    grounds.later(30)
    assert len(grounds.jobs) == 2


def test_a_probe_that_stays_has_shown_enough() -> None:
    """Its task may take hours."""
    grounds = Grounds(site(ramp=4))
    grounds.submit(spec(100))
    grounds.ends(*grounds.jobs)
    grounds.later(120)
    hand = grounds.begin(grounds.jobs[0])
    for _ in range(6):
        assert grounds.site().failures
        assert len(grounds.jobs) == 1
        grounds.later(10)
        hand.sync(1)
    grounds.later(1)
    assert (grounds.site().failures, len(grounds.jobs)) == (0, 5)


def test_pilots_of_better_times_do_not_speak_for_a_site_that_fails_now() -> None:
    grounds = Grounds(site(ramp=1))
    grounds.measure(grounds.submit(spec(100)), 3000.0)
    old = grounds.begin(grounds.jobs[0])
    for _ in range(3):
        grounds.later(30)
        for job in grounds.jobs[1:]:
            grounds.handle(JobRefused(job.id, "no more"))
        old.sync(1, [end(grounds.latest(), 0)])
    assert grounds.site().failures == 3


def test_jobs_that_were_cancelled_do_not_count_against_their_site() -> None:
    grounds = Grounds(site())
    bag = grounds.submit(spec(3))
    grounds.handle(CancelRequested(grounds.request(), BagId(bag)))
    grounds.later(15)
    grounds.ends(*grounds.jobs)
    assert (grounds.site().failures, grounds.jobs) == (0, [])


def test_a_pilot_that_has_left_in_order_does_not_count_against_its_site() -> None:

    grounds = Grounds(site())
    grounds.submit(spec(1))
    [job] = grounds.jobs
    hand = grounds.begin(job)
    grounds.handle(PilotLeft(grounds.request(), Leave(hand.pilot, 1, "idle")))
    grounds.ends(job)
    assert not grounds.site().failures


def test_a_site_that_fails_does_not_slow_the_others() -> None:
    grounds = Grounds(site("bad", ramp=4), site("good", ramp=4))
    grounds.submit(spec(8))
    assert counted(grounds.jobs) == {"bad": 4, "good": 4}
    grounds.ends(*[job for job in grounds.jobs if job.site == "bad"])
    grounds.runs(*grounds.jobs)
    grounds.later(1)
    assert counted(grounds.jobs) == {"good": 8}


def test_a_site_that_does_not_answer_gets_nothing_and_others_need_not_wait_for_it() -> None:
    grounds = Grounds(site("away", ramp=2), site("here", ramp=2, queued=2))
    grounds.submit(spec(4))
    assert counted(grounds.jobs) == {"away": 2, "here": 2}
    grounds.handle(SiteFailed("away", "connection refused"))
    grounds.runs(*[job for job in grounds.jobs if job.site == "here"])
    grounds.later(1)
    assert counted(grounds.jobs) == {"away": 2, "here": 4}
    grounds.handle(SiteAnswered("away"))
    assert not grounds.site("away").unanswered


def test_what_waits_for_long_is_not_counted_on() -> None:
    """A queue of hours keeps nobody from trying elsewhere, and what waits there is kept."""
    grounds = Grounds(site("slow", ramp=2))
    grounds.submit(spec(2))
    grounds.later(demand.LATE_SECONDS + 1)
    assert counted(grounds.jobs) == {"slow": 2}, "not twice at the same place"
    grounds.save(site("fast"))
    grounds.later(1)
    assert counted(grounds.jobs) == {"slow": 2, "fast": 2}
    assert not taken_back(grounds.later(30))


def test_a_job_that_runs_without_a_word_is_given_up() -> None:
    grounds = Grounds(site(ramp=1))
    grounds.submit(spec(1))
    [job] = grounds.jobs
    grounds.runs(job)
    actions = grounds.later(overlay.MUTE_SECONDS + 1)
    assert taken_back(actions) == [job.id]
    assert "can it reach the server?" in grounds.site().problem
    assert grounds.site().failures == 1


# -- pilots that say goodbye -----------------------------------------------------------------


def say_goodbye(grounds: Grounds, job: JobRecord, reason: str = "the site's check ended") -> None:
    """Its pilot enrols and leaves, without having asked for work."""
    hand = grounds.begin(job, want=0)
    grounds.handle(PilotLeft(grounds.request(), Leave(hand.pilot, 1, reason)))


def test_a_pilot_that_leaves_before_it_could_work_is_a_failure_of_its_site() -> None:
    grounds = Grounds(site(ramp=4, queued=10, running=20))
    grounds.submit(spec(200))
    total, rests = 0, []
    for _ in range(60):
        grounds.now += 0.5
        for job in grounds.jobs:
            say_goodbye(grounds, job)
            total += 1
            grounds.ends(job)
        rests.append(round(grounds.site().rests_until - grounds.now))
        grounds.later(0.5)
    assert total <= 8, "in a minute: a few at first, then one probe after each rest"
    assert max(rests) == 40
    site_ = grounds.site()
    assert "could not work: the site's check ended" in site_table.condition(site_, grounds.now)
    assert "could not work" in site_table.condition(site_, site_.rests_until + 1.0), (
        "not only at rest"
    )
    assert site_table.trouble(site_, site_.rests_until + 1.0) == ""


def test_a_pilot_that_has_worked_may_leave() -> None:
    grounds = Grounds(site())
    grounds.submit(spec(5))
    hand = grounds.begin(grounds.jobs[0])
    grounds.handle(PilotLeft(grounds.request(), Leave(hand.pilot, 1, "idle")))
    assert grounds.site().failures == 0


def test_a_pilot_that_said_goodbye_frees_its_place() -> None:
    """Whatever the site's list says: over SSH it comes seconds later."""
    grounds = Grounds(site(running=2, per_user=2))
    grounds.submit(spec(9))
    first, second = grounds.jobs
    hand = grounds.begin(first)
    grounds.begin(second)
    start = len(grounds.actions)
    grounds.handle(PilotLeft(grounds.request(), Leave(hand.pilot, 1, "its time is over")))
    assert len(asked(grounds.actions[start:])) == 1
    assert first.id in grounds.scheduler.state.jobs
    assert not asked(grounds.later(site_table.GOODBYE_SECONDS + 1)), (
        "it is still there: it counts again"
    )
