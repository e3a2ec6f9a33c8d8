"""What the record says of each job when it is over."""

from msgspec.structs import replace

from covey.core.record.actions import EndJob, SaveJob, Write
from covey.core.record.events import CancelRequested, JobRefused, JobRequeued, JobStarted, PilotLeft
from covey.core.record.model import BagId, JobOutcome, JobRecord
from covey.core.sites.job_history import PROVEN_SECONDS
from covey.core.sites.site_measures import measures_of
from covey.pilot.protocol.messages import Leave
from tests.unit.core.placing import Grounds, site
from tests.unit.core.table import Hand, spec


def stage(count: int = 1) -> tuple[Grounds, JobRecord]:
    grounds = Grounds(site())
    grounds.submit(spec(count))
    return grounds, grounds.jobs[0]


def saved(grounds: Grounds, job: JobRecord) -> JobRecord:
    changes = [one.change for one in grounds.actions if isinstance(one, Write)]
    jobs = [one.job for one in changes if isinstance(one, SaveJob)]
    return [one for one in jobs if one.id == job.id][-1]


def outcome(grounds: Grounds) -> JobOutcome:
    changes = [one.change for one in grounds.actions if isinstance(one, Write)]
    return next(one.outcome for one in changes if isinstance(one, EndJob))


def goodbye(grounds: Grounds, hand: Hand) -> None:
    grounds.handle(PilotLeft(grounds.request(), Leave(hand.pilot, hand.epoch, "idle")))


def test_each_step_is_in_the_record_with_its_time() -> None:
    grounds, job = stage()
    grounds.later(10)
    grounds.runs(job)
    grounds.later(5)
    hand = grounds.begin(job)
    grounds.later(20)
    goodbye(grounds, hand)
    wanted = replace(
        job, started=1010.0, enrolled=1015.0, goodbye=1035.0, pilot=1, outcome=JobOutcome.OK
    )
    assert saved(grounds, job) == wanted
    grounds.later(2)
    grounds.ends(job)
    assert outcome(grounds) is JobOutcome.OK


def test_news_that_are_told_again_change_no_time() -> None:
    grounds, job = stage()
    grounds.runs(job)
    grounds.later(10)
    after = Grounds(site(), snapshot=grounds.after())
    after.now = grounds.now
    after.handle(JobStarted(job.id))
    assert after.jobs[0].started == job.submitted


def test_a_pilot_that_could_not_work_is_a_failure() -> None:
    grounds, job = stage()
    goodbye(grounds, grounds.begin(job, want=0))
    grounds.ends(job)
    assert outcome(grounds) is JobOutcome.FAILED


def test_a_job_without_a_pilot_has_failed() -> None:
    grounds, job = stage()
    grounds.runs(job)
    grounds.later(2 * PROVEN_SECONDS)
    grounds.ends(job)
    assert outcome(grounds) is JobOutcome.FAILED


def test_a_job_that_ends_under_a_pilot_that_worked_was_taken_away() -> None:
    grounds, job = stage()
    hand = grounds.begin(job)
    for _ in range(int(PROVEN_SECONDS) // 10):
        grounds.later(10)
        hand.sync()
    grounds.ends(job)
    assert outcome(grounds) is JobOutcome.PREEMPTED


def test_a_job_that_ends_under_a_pilot_that_has_just_come_has_failed() -> None:
    grounds, job = stage()
    grounds.begin(job)
    grounds.ends(job)
    assert outcome(grounds) is JobOutcome.FAILED


def test_a_job_that_its_site_refuses() -> None:
    grounds, job = stage()
    grounds.handle(JobRefused(job.id, "no such queue"))
    assert outcome(grounds) is JobOutcome.REFUSED


def test_a_job_that_covey_took_back_before_it_had_started() -> None:
    grounds, job = stage()
    grounds.handle(CancelRequested(grounds.request(), BagId(1)))
    grounds.later(15)
    grounds.ends(job)
    assert outcome(grounds) is JobOutcome.CANCELLED
    assert (saved(grounds, job).started, saved(grounds, job).cancelled > 0.0) == (0.0, True)


def test_a_job_that_covey_took_back_when_its_pilot_was_there() -> None:
    grounds, job = stage()
    grounds.handle(CancelRequested(grounds.request(), BagId(1)))
    grounds.later(15)
    before = Grounds(site(), snapshot=grounds.after())
    before.now = grounds.now + 5.0
    hand = before.begin(job)
    goodbye(before, hand)
    before.ends(job)
    assert outcome(before) is JobOutcome.OK, "it had a pilot after all"


def test_after_a_requeue_the_times_are_those_of_the_next_start() -> None:
    grounds, job = stage()
    grounds.runs(job)
    grounds.begin(job)
    grounds.later(30)
    grounds.handle(JobRequeued(job.id, "PREEMPTED"))
    again = saved(grounds, job)
    assert again == replace(job, requeued=1030.0, requeues=1)
    assert again.waits_since == 1030.0


def test_a_site_that_tells_for_how_long_a_job_has_run_tells_when_it_started() -> None:
    grounds, job = stage()
    grounds.later(20)
    grounds.begin(job)
    grounds.later(10)
    grounds.handle(JobStarted(job.id, 14.0))
    assert saved(grounds, job).started == grounds.now - 14.0
    measures = measures_of(grounds.scheduler.state, grounds.now, "lake")
    assert measures.start_overhead == 4.0


def test_a_job_did_not_start_before_it_was_submitted() -> None:
    grounds, job = stage()
    grounds.later(20)
    grounds.handle(JobStarted(job.id, 1e9))
    assert saved(grounds, job).started == job.submitted
