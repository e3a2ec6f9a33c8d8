"""Sites that were added or are not simply on, and the jobs that pilots are asked for with."""

from msgspec.structs import replace

from covey.core.record.actions import (
    EndJob,
    ForgetSite,
    SaveJob,
    SavePilot,
    SaveSite,
    SaveSiteHistory,
)
from covey.core.record.histories import SiteHistory
from covey.core.record.model import (
    JobId,
    JobOutcome,
    JobRecord,
    JobStatus,
    SiteRecord,
    SiteSpec,
    SiteStatus,
)
from covey.store.sqlite.site_jobs import MOST_ENDED, MOST_MEASURED
from tests.contract.keeping import Kept
from tests.unit.store.builders import pilot

SPEC = SiteSpec(
    name="lake",
    driver="slurm",
    host="login.lake",
    options={"partition": "long", "whole_nodes": True, "extra": ("--qos=low", "-x n1")},
    environment={"SLURM_CONF": "/etc/lake.conf"},
    users=("ann", "bob"),
    wall_seconds=7200.5,
    price=0.25,
    preference='Bag.Owner == "ann"',
    failover=True,
)
LAKE = SiteRecord(spec=SPEC)
SEA = SiteRecord(spec=SiteSpec(name="sea", driver="manual"), status=SiteStatus.PAUSED, of_file=True)
JOB = JobRecord(
    id=JobId("1-1.0"),
    site="lake",
    slots=8,
    submitted=5.5,
    wall_seconds=3600.0,
    memory_mb=16_000,
    disk_mb=500,
    gpus=2,
    trial=True,
    wanted_by="ann",
)


def test_sites_are_kept_as_they_are(kept: Kept) -> None:
    assert kept.reopen().sites == ()
    kept.record.apply([SaveSite(SEA), SaveSite(LAKE)])
    assert kept.reopen().sites == (LAKE, SEA)


def test_the_last_word_on_a_site_counts(kept: Kept) -> None:
    kept.record.apply([SaveSite(LAKE)])
    changed = replace(LAKE, spec=replace(SPEC, queued=3, users=()), status=SiteStatus.DRAINING)
    kept.record.apply([SaveSite(changed), SaveSite(replace(changed, removed=True))])
    assert kept.reopen().sites == (replace(changed, removed=True),)


def test_a_site_is_forgotten(kept: Kept) -> None:
    kept.record.apply([SaveSite(LAKE), SaveSite(SEA)])
    kept.record.apply([ForgetSite("lake"), ForgetSite("nowhere")])
    assert kept.reopen().sites == (SEA,)
    kept.record.apply([ForgetSite("sea"), SaveSite(SEA)])
    assert kept.reopen().sites == (SEA,), "in the order in which it was said"


def test_all_that_was_asked_for_is_known_of_a_job(kept: Kept) -> None:
    kept.record.apply([SaveJob(JOB)])
    assert kept.reopen().jobs == (JOB,)


def test_what_a_site_calls_a_job_is_kept_once_it_is_known(kept: Kept) -> None:
    other = replace(JOB, id=JobId("1-1.1"), trial=False, wanted_by="")
    kept.record.apply([SaveJob(JOB), SaveJob(other)])
    named = replace(JOB, handle="4711_0")
    kept.record.apply([SaveJob(named)])
    assert kept.reopen().jobs == (named, other), "in the order of their coming"
    kept.record.apply([EndJob(JOB.id, 9.5, "it ended", JobOutcome.FAILED)])
    assert kept.reopen().jobs == (other,)


def test_how_the_jobs_of_pilots_ended(kept: Kept) -> None:
    """A job that was requeued has several pilots, and its end is the last one's."""
    other = replace(JOB, id=JobId("1-1.1"))
    pilots = [
        pilot(1, job=JOB.id),
        pilot(2, job=JOB.id),
        pilot(3, job=other.id),
        pilot(4, job=JobId("")),
    ]
    kept.record.apply([SaveJob(JOB), SaveJob(other), *map(SavePilot, pilots)])
    assert kept.reader.job_ends([1, 2, 3, 4, 99]) == {}
    kept.record.apply([EndJob(JOB.id, 9.5, "PREEMPTED", JobOutcome.PREEMPTED)])
    assert kept.reader.job_ends([1, 2, 3, 4, 99]) == {2: "PREEMPTED"}
    assert kept.reader.job_ends([1, 3]) == {}


def test_what_became_of_jobs_is_kept_when_they_are_over(kept: Kept) -> None:
    done = replace(
        JOB,
        requeued=6.5,
        requeues=2,
        started=7.5,
        enrolled=8.5,
        goodbye=9.5,
        pilot=3,
        outcome=JobOutcome.OK,
    )
    waits = replace(JOB, id=JobId("1-1.1"), cancelled=8.5)
    kept.record.apply([SaveJob(JOB), SaveJob(replace(waits, cancelled=0.0)), SaveJob(done)])
    kept.record.apply([SaveJob(waits), EndJob(JOB.id, 10.5, "COMPLETED", JobOutcome.OK)])
    snapshot = kept.reopen()
    assert snapshot.jobs == (waits,)
    over = replace(done, ended=10.5, reason="COMPLETED", status=JobStatus.ENDED)
    assert snapshot.ended_jobs == (over,)


def test_old_jobs_of_a_site_are_forgotten_but_not_those_that_live(kept: Kept) -> None:
    many = [replace(JOB, id=JobId(f"1-{number}")) for number in range(MOST_ENDED + 5)]
    other = replace(JOB, id=JobId("2-1"), site="sea")
    kept.record.apply([*map(SaveJob, many), SaveJob(other)])
    ends = [EndJob(job.id, 9.5, "so", JobOutcome.FAILED) for job in (other, *many[1:])]
    kept.record.apply([*ends])
    pilots = [pilot(number + 1, job=job.id) for number, job in enumerate(many)]
    kept.record.apply([*map(SavePilot, pilots)])
    known = kept.reader.job_ends([one.id for one in pilots])
    assert sorted(known) == [pilot.id for pilot in pilots[5:]], "the latest ones"
    snapshot = kept.reopen()
    assert snapshot.jobs == (many[0],)
    assert [job.id for job in snapshot.ended_jobs if job.site == "lake"] == [
        job.id for job in many[-MOST_MEASURED:]
    ]
    assert [job.id for job in snapshot.ended_jobs if job.site == "sea"] == [other.id]


def test_with_a_site_all_that_was_known_of_it_goes(kept: Kept) -> None:
    history = SiteHistory(log_speed=0.5, speed_weight=12.0, busy=100.0, slots=200.0, at=9.0)
    kept.record.apply([SaveJob(JOB), EndJob(JOB.id, 9.5, "so", JobOutcome.OK)])
    kept.record.apply([SaveSiteHistory("lake", SiteHistory()), SaveSiteHistory("lake", history)])
    assert kept.reopen().site_histories == {"lake": history}
    kept.record.apply([ForgetSite("lake")])
    assert (kept.reopen().site_histories, kept.reopen().ended_jobs) == ({}, ())


def test_jobs_of_a_site_are_listed_with_their_pilots(kept: Kept) -> None:
    other = replace(JOB, id=JobId("1-1.1"), site="sea")
    later = replace(JOB, id=JobId("1-1.2"), wanted_by="bob", trial=False)
    begun = replace(JOB, handle="7", started=7.5, enrolled=8.5, pilot=1)
    kept.record.apply([*map(SaveJob, (JOB, other, later, begun)), SavePilot(pilot(1, job=JOB.id))])
    second, first = kept.reader.site_jobs("lake")
    assert (first.id, first.state, first.handle, first.pilot, first.host) == (
        JOB.id,
        "running",
        "7",
        1,
        pilot(1).host,
    )
    assert (second.id, second.state, second.host) == (later.id, "waiting", "")
    assert [job.id for job in kept.reader.site_jobs("lake", "bob")] == [later.id]
    assert [job.id for job in kept.reader.site_jobs("lake", None, 1)] == [later.id]
    kept.record.apply([EndJob(JOB.id, 9.5, "PREEMPTED", JobOutcome.PREEMPTED)])
    over = kept.reader.site_jobs("lake")[1]
    assert (over.state, over.ended, over.reason, over.pilot) == ("preempted", 9.5, "PREEMPTED", 1)
