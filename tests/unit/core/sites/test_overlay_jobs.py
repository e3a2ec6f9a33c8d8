"""Site jobs: durable first, submitted once, believed with care, taken back when too many."""

from covey.core.record.actions import Note, Problem, Refuse, Tried
from covey.core.record.events import (
    BagSubmitted,
    CancelRequested,
    Committed,
    JobRefused,
    JobRequeued,
    JobVanished,
    PauseRequested,
    PilotEnrolled,
    PilotLeft,
    SiteAnswered,
    SiteFailed,
    SiteTried,
)
from covey.core.record.model import BagId, JobId, JobRecord, PilotId, Settings
from covey.pilot.protocol.messages import Enrol, Leave
from tests.unit.core.placing import Grounds, asked, counted, site, taken_back
from tests.unit.core.table import only, refusal, spec

LEASE_SECONDS = Settings().lease_seconds

# -- fewer -------------------------------------------------------------------------------------


def test_what_is_not_needed_is_taken_back_after_a_while_in_bounded_numbers() -> None:
    grounds = Grounds(site())
    bag = grounds.submit(spec(250))
    grounds.waits(*grounds.jobs)
    grounds.handle(CancelRequested(grounds.request(), BagId(bag)))
    assert not taken_back(grounds.later(9))
    counts = [len(taken_back(grounds.later(1))) for _ in range(6)]
    assert sorted(counts) == [0, 0, 0, 50, 100, 100]
    assert not taken_back(grounds.later(40)), "once"
    assert len(taken_back(grounds.later(30))) > 0, "until the site has done it"


def test_a_short_pause_takes_nothing_back() -> None:
    grounds = Grounds(site())
    bag = grounds.submit(spec(5))
    grounds.handle(PauseRequested(grounds.request(), BagId(bag), ""))
    grounds.later(6)
    grounds.submit(spec(5))
    assert not taken_back(grounds.later(20))


def test_the_latest_are_taken_back_first_and_no_more_than_is_too_much() -> None:
    grounds = Grounds(site())
    first = grounds.submit(spec(3))
    ids = [job.id for job in grounds.jobs]
    grounds.submit(spec(2))
    grounds.handle(CancelRequested(grounds.request(), BagId(first)))
    back = taken_back(grounds.later(15))
    assert len(back) == 3
    assert {job.id for job in grounds.jobs} - set(back) == set(ids[:2])


def test_pilots_that_run_are_not_taken_back() -> None:
    grounds = Grounds(site())
    bag = grounds.submit(spec(3))
    grounds.runs(*grounds.jobs)
    grounds.handle(CancelRequested(grounds.request(), BagId(bag)))
    assert not taken_back(grounds.later(60))


def test_a_trial_is_started_whatever_the_demand_and_stays() -> None:

    grounds = Grounds(site(slots=4))
    tried = only(grounds.handle(SiteTried(grounds.request(), "lake")), Tried)
    assert [(job.id, job.trial, job.slots) for job in asked(grounds.actions)] == [
        (tried.job, True, 4)
    ], "as large as any: a small one may start where those do not"
    assert not taken_back(grounds.later(60))
    grounds.submit(spec(1))
    assert len(grounds.jobs) == 2, "nobody counts on it"
    refused = refusal(grounds.handle(SiteTried(grounds.request(), "sea")))
    assert refused.problem is Problem.NOT_FOUND


# -- news of jobs --------------------------------------------------------------------------------


def test_a_job_is_durable_before_it_is_submitted() -> None:
    grounds = Grounds(site())
    grounds.durable = False
    actions = grounds.handle(BagSubmitted(grounds.request(), spec(2)))
    assert not asked(actions)
    assert len(asked(grounds.handle(Committed(grounds.scheduler.state.journal.writes)))) == 2


def test_a_restart_doubles_nothing_and_loses_nothing() -> None:
    first = Grounds(site(), site("sea"))
    first.submit(spec(40))
    first.waits(*first.jobs)
    for job in first.jobs[:5]:
        first.begin(job)
    later = Grounds(site(), site("sea"), snapshot=first.after())
    later.later(20)
    assert not asked(later.actions)
    assert {job.id for job in later.jobs} == {job.id for job in first.jobs}
    assert all(job.handle == f"handle-{job.id}" for job in later.jobs)
    later.submit(spec(1))
    assert len({job.id for job in later.jobs}) == 41, "names are never used again"


def test_what_an_earlier_server_started_does_not_count_against_its_site() -> None:
    """Who can say what good it did?"""
    first = Grounds(site())
    first.submit(spec(3))
    later = Grounds(site(), snapshot=first.after())
    later.ends(*later.jobs[:2])
    assert not later.site().failures


def test_jobs_of_a_site_that_is_no_more_are_not_counted_on() -> None:
    first = Grounds(site("gone"))
    first.submit(spec(2))
    later = Grounds(site(), snapshot=first.after())
    later.later(2)
    assert counted(later.jobs) == {"lake": 2}


def test_a_vanished_job_is_over() -> None:
    grounds = Grounds(site())
    grounds.submit(spec(1))
    [job] = grounds.jobs
    grounds.handle(JobVanished(job.id, "not listed"))
    assert not grounds.jobs


def test_what_vanished_is_not_wanted_any_more_should_it_come_back() -> None:
    grounds = Grounds(site())
    grounds.submit(spec(150))
    before = [job.id for job in grounds.jobs]
    for id_ in before:
        grounds.handle(JobVanished(id_, "not listed"))
    assert [len(taken_back(grounds.later(1))) for _ in range(3)] == [100, 50, 0]


def test_a_vanished_job_whose_pilot_is_lost_is_left_alone() -> None:
    """It may come back."""
    grounds = Grounds(site(), lease_seconds=30.0)
    grounds.submit(spec(1))
    [job] = grounds.jobs
    grounds.begin(job)
    grounds.handle(JobVanished(job.id, "not listed"))
    grounds.later(40)
    assert job.id not in {one.id for one in grounds.jobs}
    assert not taken_back(grounds.actions)


def test_a_pilot_that_is_heard_proves_a_list_wrong() -> None:
    grounds = Grounds(site(), lease_seconds=30.0)
    grounds.submit(spec(1))
    [job] = grounds.jobs
    hand = grounds.begin(job, 0)
    assert hand.ask().tasks
    grounds.handle(JobVanished(job.id, "not listed"))
    for _ in range(5):
        grounds.later(10)
        hand.sync(1)
    assert [one.id for one in grounds.jobs] == [job.id]
    grounds.later(35)
    assert job.id not in {one.id for one in grounds.jobs}
    hand.sync(1)
    assert PilotId(hand.pilot) in grounds.scheduler.state.pilots, "nobody knows that it is dead"


def test_an_end_that_the_site_knows_of_is_believed_at_once() -> None:
    grounds = Grounds(site())
    grounds.submit(spec(1))
    [job] = grounds.jobs
    assert grounds.begin(job, 0).ask().tasks
    grounds.ends(job)
    bag = grounds.scheduler.state.bags[BagId(1)]
    assert (list(bag.places.ready[0]), bag.places.live) == ([0], {})


def test_a_requeued_job_waits_again() -> None:
    grounds = Grounds(site())
    grounds.submit(spec(1))
    [job] = grounds.jobs
    assert grounds.begin(job, 0).ask().tasks
    grounds.handle(JobRequeued(job.id, "preempted"))
    state = grounds.scheduler.state
    assert not state.pilots
    assert not asked(grounds.later(5)), "it is to come"
    again = grounds.begin(job, 0, key="another key")
    assert again.ask().tasks


def test_a_requeue_that_is_told_late_is_not_news_of_the_pilot_that_came_since() -> None:
    grounds = Grounds(site())
    grounds.submit(spec(1, idempotent=False, retries=3))
    [job] = grounds.jobs
    grounds.begin(job, 1)
    grounds.later(LEASE_SECONDS)
    new = grounds.begin(job, 1, key="another key")
    before = grounds.scheduler.state.pilots[PilotId(new.pilot)]
    grounds.handle(JobRequeued(job.id, "its site started it again"))
    grounds.runs(job)
    assert list(grounds.scheduler.state.pilots.values()) == [before]
    grounds.handle(JobRequeued(job.id, "once more"))
    assert not grounds.scheduler.state.pilots, "it was told of once"


def test_a_late_requeue_of_a_pilot_that_left_spares_the_next_one() -> None:
    """Whoever is preempted may say goodbye first."""
    grounds = Grounds(site())
    grounds.submit(spec(1))
    [job] = grounds.jobs
    old = grounds.begin(job)
    grounds.handle(PilotLeft(grounds.request(), Leave(old.pilot, 1, "preempted")))
    grounds.later(LEASE_SECONDS)
    new = grounds.begin(job, key="another key")
    grounds.handle(JobRequeued(job.id, "its site started it again"))
    assert list(grounds.scheduler.state.pilots) == [new.pilot]


def shows_secret(grounds: Grounds, job: JobRecord, key: str) -> Problem | None:
    """Why this pilot is not let in; None: it is."""
    request = grounds.request()
    grounds.handle(PilotEnrolled(request, Enrol(key, "host", 1, job.site, job.id), "", key))
    refused = [one for one in grounds.actions if isinstance(one, Refuse)]
    return next((one.problem for one in refused if one.request == request), None)


def test_a_secret_is_for_one_pilot_until_the_site_says_that_its_job_was_requeued() -> None:
    grounds = Grounds(site())
    grounds.submit(spec(1))
    [job] = grounds.jobs
    pilot = grounds.begin(job, key="key of the pilot")
    assert shows_secret(grounds, job, "key of the thief") is Problem.TOO_MANY
    notes = [one.what for one in grounds.actions if isinstance(one, Note)]
    assert notes.count("second pilot of a site job must wait") == 1
    assert shows_secret(grounds, job, "key of the pilot") is None
    pilot.sync(1, held=[])
    grounds.handle(JobRequeued(job.id, "preempted"))
    assert shows_secret(grounds, job, "key of the next one") is None
    assert shows_secret(grounds, job, "key of the pilot") is Problem.TOO_MANY


def test_a_secret_stays_used_when_its_pilot_has_left() -> None:
    """Its process ends when it has said goodbye, and its site says so some time later."""
    grounds = Grounds(site())
    grounds.submit(spec(1))
    [job] = grounds.jobs
    pilot = grounds.begin(job)
    grounds.handle(PilotLeft(grounds.request(), Leave(pilot.pilot, 1, "no more work")))
    assert shows_secret(grounds, job, "key of the thief") is Problem.TOO_MANY
    grounds.later(LEASE_SECONDS)
    assert shows_secret(grounds, job, "key of the next one") is None


def test_a_server_that_starts_knows_whose_the_secrets_are() -> None:
    grounds = Grounds(site())
    grounds.submit(spec(1))
    [job] = grounds.jobs
    grounds.begin(job, key="key of the pilot")
    again = Grounds(site(), snapshot=grounds.after())
    assert shows_secret(again, job, "key of the thief") is Problem.TOO_MANY
    assert shows_secret(again, job, "key of the pilot") is None


def test_a_pilot_that_enrols_again_hides_no_requeue() -> None:
    grounds = Grounds(site())
    grounds.submit(spec(1))
    [job] = grounds.jobs
    grounds.begin(job)
    again = Grounds(site(), snapshot=grounds.after())
    again.begin(job).sync(1, held=[])
    again.handle(JobRequeued(job.id, "preempted"))
    assert not again.scheduler.state.pilots


def test_the_pilot_of_a_job_that_was_started_again_has_all_of_its_time() -> None:
    grounds = Grounds(site(wall_seconds=3600.0))
    grounds.submit(spec(1))
    [job] = grounds.jobs
    old = grounds.begin(job)
    until = grounds.scheduler.state.pilots[PilotId(old.pilot)].until
    grounds.later(LEASE_SECONDS)
    new = grounds.begin(job, key="another key")
    assert grounds.scheduler.state.pilots[PilotId(new.pilot)].until == until + LEASE_SECONDS


def test_news_of_unknown_jobs_and_sites_change_nothing() -> None:
    grounds = Grounds(site())
    before = len(grounds.actions)
    stranger = JobId("9-9")
    for event in (
        JobVanished(stranger, ""),
        JobRequeued(stranger, ""),
        JobRefused(stranger, ""),
        SiteFailed("sea", "away"),
        SiteAnswered("sea"),
    ):
        grounds.handle(event)
    unknown = JobRecord(id=stranger, site="sea", slots=1, submitted=0.0)
    grounds.runs(unknown)
    grounds.waits(unknown)
    assert len(grounds.actions) == before


def test_many_that_end_at_once_do_not_ask_each_time() -> None:
    """A decision over thousands of pilots takes its time: ticks are enough."""
    grounds = Grounds(site(queued=0, running=0, ramp=10_000))
    grounds.submit(spec(5000))
    grounds.later(1)
    asked_at = []
    for job in grounds.jobs[:50]:
        grounds.ends(job)
        asked_at.append(grounds.scheduler.state.plan.provide_at)
    assert len(set(asked_at)) <= 2
