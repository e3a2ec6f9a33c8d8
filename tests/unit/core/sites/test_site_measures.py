"""What is known about a site, from its jobs."""

import pytest

from covey.core.record.capacity import SiteCapacity
from covey.core.record.events import (
    CancelRequested,
    JobRefused,
    JobRequeued,
    PilotLeft,
    SiteMeasured,
)
from covey.core.record.model import BagId, JobRecord, PolicySpec
from covey.core.sites.measures import UNKNOWN, SiteMeasures
from covey.core.sites.site_measures import MOST_OWNERS, measures_of
from covey.pilot.protocol.messages import Leave
from tests.unit.core.placing import Grounds, site
from tests.unit.core.table import Hand, spec


def measured(grounds: Grounds, owner: str = "", name: str = "lake") -> SiteMeasures:
    return measures_of(grounds.scheduler.state, grounds.now, name, owner)


def goodbye(grounds: Grounds, hand: Hand) -> None:
    grounds.handle(PilotLeft(grounds.request(), Leave(hand.pilot, hand.epoch, "idle")))


def at_a_site(count: int = 4, **bag: object) -> tuple[Grounds, list[JobRecord]]:
    grounds = Grounds(site())
    grounds.submit(spec(count, **bag))
    return grounds, grounds.jobs


def test_nothing_is_known_at_first_and_of_no_site() -> None:
    grounds = Grounds(site())
    assert measured(grounds) == UNKNOWN
    assert measured(grounds, name="nowhere") == UNKNOWN


def test_jobs_that_wait_count_with_the_time_they_have_waited() -> None:
    grounds, _ = at_a_site(3)
    grounds.later(50)
    found = measured(grounds)
    assert (found.jobs, found.waiting) == (3, 3)
    assert (found.wait_median, found.wait_p90, found.wait_at_least) == (50, 50, True)
    grounds.later(10)
    assert measured(grounds).wait_median == 60, "they have waited for longer meanwhile"


def test_a_wait_ends_when_the_site_says_so_or_the_pilot_speaks() -> None:
    grounds, (first, second, third) = at_a_site(3)
    grounds.later(10)
    grounds.runs(first, second)
    grounds.later(10)
    grounds.begin(third)
    found = measured(grounds)
    assert (found.jobs, found.waiting) == (3, 0)
    assert (found.wait_median, found.wait_p90, found.wait_at_least) == (10, 20, False)
    grounds.later(30)
    assert measured(grounds).wait_p90 == 20


def test_start_up_is_from_the_sites_start_to_the_pilots_enrolment() -> None:
    grounds, (job, *_) = at_a_site(1)
    grounds.later(10)
    grounds.runs(job)
    assert measured(grounds).start_overhead is None
    grounds.later(7)
    grounds.begin(job)
    assert measured(grounds).start_overhead == 7


def test_who_speaks_before_its_site_does_says_nothing_of_start_up() -> None:
    grounds, (job, *_) = at_a_site(1)
    grounds.later(10)
    grounds.begin(job)
    grounds.runs(job)
    assert measured(grounds).start_overhead is None


def test_a_lifetime_is_from_enrolment_to_goodbye_or_to_the_end() -> None:
    grounds, (first, second, *_) = at_a_site(2)
    one, _ = grounds.begin(first), grounds.begin(second)
    grounds.later(20)
    goodbye(grounds, one)
    grounds.later(5)
    grounds.ends(first)
    assert measured(grounds).lifetime == 20
    grounds.later(15)
    grounds.ends(second)
    assert measured(grounds).lifetime == 30, "the middle of 20 and 40"


def test_the_shares_of_jobs_that_failed_and_that_were_taken_away() -> None:
    grounds, (good, bad, taken, _) = at_a_site(4)
    hand = grounds.begin(good)
    grounds.begin(taken)
    grounds.later(70)
    goodbye(grounds, hand)
    grounds.ends(good, bad, taken)
    found = measured(grounds)
    assert found.failure_rate == pytest.approx(1 / 3, abs=0.02)
    assert found.preemption_rate == pytest.approx(1 / 3, abs=0.02)


def test_what_covey_took_back_or_was_refused_is_no_failure() -> None:
    grounds, (refused, *_) = at_a_site(3)
    bag = next(iter(grounds.scheduler.state.bags))
    grounds.handle(JobRefused(refused.id, "no such partition"))
    grounds.handle(CancelRequested(grounds.request(), BagId(bag)))
    grounds.later(30)
    grounds.ends(*grounds.jobs)
    found = measured(grounds)
    assert found.failure_rate is None
    assert found.wait_at_least


def test_a_requeued_job_was_taken_away_and_waits_anew() -> None:
    grounds, (job, *_) = at_a_site(1)
    grounds.begin(job)
    grounds.later(30)
    grounds.handle(JobRequeued(job.id, "NODE_FAIL"))
    grounds.later(5)
    found = measured(grounds)
    assert (found.preemption_rate, found.waiting, found.lifetime) == (1.0, 1, 30)


def test_an_owners_figures_come_from_the_owners_jobs() -> None:
    grounds = Grounds(site())
    grounds.submit(spec(1, owner="ann"))
    grounds.submit(spec(1, owner="bob"))
    ann, bob = grounds.jobs
    grounds.later(10)
    grounds.runs(ann)
    grounds.later(30)
    grounds.runs(bob)
    assert measured(grounds, "ann").wait_median == 10
    assert measured(grounds, "bob").wait_median == 40
    assert measured(grounds, "eve").jobs == 0
    assert measured(grounds).jobs == 2


def test_an_answer_is_kept_as_long_as_nothing_has_changed() -> None:
    grounds, (first, second) = at_a_site(2)
    grounds.runs(first, second)
    found = measured(grounds)
    assert measured(grounds) is found
    grounds.begin(first)
    grounds.later(3)
    grounds.ends(first)
    assert measured(grounds).failure_rate == 1.0


def test_answers_are_not_kept_for_any_number_of_owners() -> None:
    grounds, _ = at_a_site(1)
    for number in range(2 * MOST_OWNERS):
        measured(grounds, f"owner {number}")
    assert len(grounds.site().samples.answers) <= MOST_OWNERS


def test_all_is_known_again_after_a_restart() -> None:
    grounds, (good, bad, taken, _) = at_a_site(4)
    grounds.later(10)
    grounds.runs(good)
    grounds.later(5)
    hand = grounds.begin(good)
    grounds.begin(taken)
    grounds.later(70)
    goodbye(grounds, hand)
    grounds.ends(good, bad, taken)
    before = measured(grounds)
    after = Grounds(site(), snapshot=grounds.after())
    after.now = grounds.now
    found = measured(after)
    kept = ("wait_median", "start_overhead", "lifetime")
    assert [getattr(found, name) for name in kept] == [getattr(before, name) for name in kept]
    assert found.failure_rate == pytest.approx(before.failure_rate, abs=0.05)
    assert found.preemption_rate == pytest.approx(before.preemption_rate, abs=0.05)


def test_what_the_batch_system_says_is_known_with_its_time() -> None:
    grounds = Grounds(site())
    grounds.later(5)
    grounds.handle(SiteMeasured("lake", SiteCapacity(free_cores=3, total_cores=8, queue_length=-4)))
    found = measured(grounds)
    assert (found.free_cores, found.total_cores, found.queue_length) == (3, 8, None)
    assert found.capacity_at == grounds.now
    assert found.measured_at is None, "no job has shown anything"
    grounds.handle(SiteMeasured("nowhere", SiteCapacity(free_cores=3)))
    grounds.later(5)
    grounds.handle(SiteMeasured("lake", SiteCapacity(free_cores=2)))
    assert (measured(grounds).free_cores, measured(grounds).total_cores) == (2, None)


def test_policies_see_what_is_known_and_else_nothing() -> None:
    grounds = Grounds(site("lake"), site("wood"))
    policy = PolicySpec(grid="isUndefined(Site.FreeCores) || Site.FreeCores > 10")
    grounds.handle(SiteMeasured("lake", SiteCapacity(free_cores=3)))
    grounds.submit(spec(4, policy=policy))
    assert {job.site for job in grounds.jobs} == {"wood"}
