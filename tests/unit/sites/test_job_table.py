"""What is believed of jobs at a site: rules 2 to 7 of decision 0014."""

from covey.core.record.events import (
    JobEnded,
    JobRequeued,
    JobStarted,
    JobSubmitted,
    JobSuspended,
    JobVanished,
)
from covey.core.record.model import JobId, JobRecord
from covey.sites.driver import Seen, Stand
from covey.sites.job_table import AGAIN_SECONDS, VANISHED_SECONDS, JobTable

A, B = JobId("1-1"), JobId("1-2")


def record(id_: JobId, handle: str = "") -> JobRecord:
    return JobRecord(id=id_, site="there", slots=1, submitted=0.0, handle=handle)


def seen(id_: JobId, stand: Stand, handle: str = "70", **more: object) -> Seen:
    return Seen(f"covey-q-{id_}", handle, stand, **more)  # type: ignore[arg-type]


def submitted(*ids: JobId) -> JobTable:
    """A roll with jobs that were there from 10 on."""
    roll = JobTable("covey-q-")
    roll.watch((), 0.0)
    roll.queue([record(id_) for id_ in ids])
    entries = roll.queued(ids)
    roll.sent(entries, 0.0)
    roll.submitted(entries, [f"7{number}" for number in range(len(ids))], 10.0)
    return roll


def unsure(id_: JobId) -> JobTable:
    """A roll with a job that may arrive until 90."""
    roll = JobTable("covey-q-")
    roll.watch((), 0.0)
    roll.queue([record(id_)])
    roll.sent(roll.queued([id_]), 90.0)
    return roll


def vanish(roll: JobTable, at: float) -> list[object]:
    """What is said after two lists without jobs."""
    assert roll.listed([], at) == []
    assert not roll.missing()
    assert roll.listed([], at + 1) == []
    return list(roll.vanished(roll.missing(), at + 1))


def test_a_job_is_suspended_and_goes_on() -> None:
    roll = submitted(A)
    still = seen(A, Stand.RUNNING, suspended=True)
    assert roll.listed([still], 10) == [JobStarted(A), JobSuspended(A, True)]
    assert roll.listed([still], 20) == []
    roll.watch([record(A, "70")], 25.0)
    assert roll.listed([still], 30)[-1] == JobSuspended(A, True), "another server is told again"
    assert roll.listed([seen(A, Stand.RUNNING)], 40) == [JobSuspended(A, False)]


def test_a_job_starts_and_ends() -> None:
    roll = submitted(A)
    assert roll.listed([seen(A, Stand.WAITING)], 10) == []
    assert roll.listed([seen(A, Stand.RUNNING)], 20) == [JobStarted(A)]
    assert roll.listed([seen(A, Stand.RUNNING)], 30) == []
    assert roll.listed([seen(A, Stand.ENDED, reason="timeout")], 40) == [JobEnded(A, "timeout")]
    assert roll.jobs() == ()


def test_a_list_that_came_too_early_says_nothing() -> None:
    roll = submitted(A)
    for at in (1, 2, 3, 9.9):
        assert roll.listed([], at) == []
    assert not roll.missing()
    assert vanish(roll, 10) == [JobVanished(A, "its site does not list it any more")]


def test_misses_must_be_in_a_row() -> None:
    roll = submitted(A)
    roll.listed([], 10)
    roll.listed([seen(A, Stand.UNKNOWN)], 11)
    roll.listed([], 12)
    assert not roll.missing()


def test_an_unsure_job_is_found_by_its_name() -> None:
    roll = unsure(A)
    assert roll.listed([], 1) == []
    found = roll.listed([seen(A, Stand.RUNNING, "99")], 50)
    assert found == [JobSubmitted(A, "99"), JobStarted(A)]


def test_an_unsure_job_that_never_arrived_is_forgotten_and_unwanted() -> None:
    roll = unsure(A)
    for at in (1, 50, 89):
        assert roll.listed([], at) == []
    assert not roll.missing()
    assert vanish(roll, 90) == [JobVanished(A, "its site never listed it")]
    assert roll.listed([seen(A, Stand.WAITING, "99")], 100) == []
    assert roll.strays() == ["99"]


def test_a_job_that_was_there_and_comes_back_is_told_of() -> None:
    roll = submitted(A)
    roll.listed([seen(A, Stand.RUNNING)], 10)
    vanish(roll, 20)
    assert not roll.waits()
    assert roll.listed([seen(A, Stand.RUNNING)], 30) == [JobSubmitted(A, "70"), JobStarted(A)]
    assert roll.strays() == []


def test_a_vanished_job_is_forgotten_in_the_end() -> None:
    roll = submitted(A)
    vanish(roll, 20)
    roll.listed([], 22 + VANISHED_SECONDS)
    assert roll.jobs() == ()


def test_a_job_that_waits_again_was_requeued() -> None:
    roll = submitted(A)
    roll.listed([seen(A, Stand.RUNNING)], 10)
    found = roll.listed([seen(A, Stand.WAITING, reason="node failed")], 20)
    assert found == [JobRequeued(A, "node failed")]
    assert roll.listed([seen(A, Stand.RUNNING)], 30) == [JobStarted(A)]


def test_a_restart_between_two_lists_is_seen_by_its_count() -> None:
    roll = submitted(A)
    roll.listed([seen(A, Stand.RUNNING)], 10)
    found = roll.listed([seen(A, Stand.RUNNING, restarts=1)], 20)
    assert found == [JobRequeued(A, "its site started it again"), JobStarted(A)]
    assert roll.listed([seen(A, Stand.RUNNING, restarts=1)], 30) == []


def test_restarts_before_we_looked_are_no_news() -> None:
    roll = JobTable("covey-q-")
    roll.watch([record(A, "70")], 0.0)
    found = roll.listed([seen(A, Stand.RUNNING, restarts=3)], 1)
    assert found == [JobSubmitted(A, "70"), JobStarted(A)]


def test_accounts_tell_how_it_ended() -> None:
    roll = submitted(A)
    roll.listed([], 10)
    roll.listed([], 11)
    found = roll.accounted(roll.missing(), [seen(A, Stand.ENDED, reason="preempted")], 12)
    assert found == [JobEnded(A, "preempted")]


def test_accounts_may_lag_but_not_for_ever() -> None:
    roll = submitted(A)
    roll.listed([], 10)
    for at in (11, 12, 13, 14, 19):
        roll.listed([], at)
        assert roll.accounted(roll.missing(), [seen(A, Stand.RUNNING)], at) == []
        assert not roll.missing()
    roll.listed([], 20)
    found = roll.accounted(roll.missing(), [], 20)
    assert found == [JobVanished(A, "its site does not list it any more")]


def test_of_two_jobs_with_one_name_the_known_one_is_ours() -> None:
    roll = submitted(A)
    other = seen(A, Stand.WAITING, "71")
    assert roll.listed([other, seen(A, Stand.RUNNING, "70")], 10) == [JobStarted(A)]
    assert roll.strays() == ["71"]


def test_strays_wait_for_the_whole_record() -> None:
    roll = JobTable("covey-q-")
    roll.listed([seen(A, Stand.RUNNING)], 1)
    assert roll.strays() == []
    roll.watch((), 0.0)
    stranger = Seen("covey-other-1-1", "80", Stand.RUNNING)
    roll.listed([seen(A, Stand.RUNNING), seen(B, Stand.ENDED, "71"), stranger], 2)
    assert roll.strays() == ["70"]
    assert roll.waits()


def test_jobs_of_another_site_on_the_same_machines_are_no_strays() -> None:
    roll = JobTable("covey-q-", {A}.__contains__)
    roll.watch((), 0.0)
    roll.listed([seen(A, Stand.RUNNING), seen(B, Stand.RUNNING, "71")], 1)
    assert roll.strays() == ["71"]


def test_a_job_is_cancelled_again_when_it_stays() -> None:
    roll = submitted(A, B)
    roll.doom([A])
    assert roll.unwanted() == ["70"]
    roll.cancelled(["70"], 20)
    roll.listed([seen(A, Stand.RUNNING), seen(B, Stand.RUNNING, "71")], 21)
    assert roll.unwanted() == []
    roll.listed([seen(A, Stand.RUNNING), seen(B, Stand.RUNNING, "71")], 20 + AGAIN_SECONDS)
    assert roll.unwanted() == ["70"]


def test_an_unsure_job_is_cancelled_when_it_turns_up() -> None:
    roll = unsure(A)
    roll.doom([A])
    assert roll.unwanted() == []
    roll.listed([seen(A, Stand.WAITING, "99")], 20)
    assert roll.unwanted() == ["99"]


def test_a_stuck_job_is_cancelled_and_has_ended_for_its_reason() -> None:
    roll = submitted(A)
    assert roll.listed([seen(A, Stand.STUCK, reason="invalid account")], 10) == []
    assert roll.unwanted() == ["70"]
    found = roll.listed([seen(A, Stand.ENDED, reason="cancelled")], 20)
    assert found == [JobEnded(A, "invalid account")]


def test_a_stuck_job_that_is_gone_has_ended() -> None:
    roll = submitted(A)
    roll.listed([seen(A, Stand.STUCK, reason="invalid account")], 10)
    assert vanish(roll, 20) == [JobEnded(A, "invalid account")]


def test_nothing_is_submitted_twice() -> None:
    roll = submitted(A)
    assert roll.queue([record(A), record(B)]) == [record(B)]
    assert [entry.job.id for entry in roll.queued([A, B])] == [B]


def test_what_is_known_is_told_again_to_whoever_watches() -> None:
    roll = submitted(A)
    roll.listed([seen(A, Stand.RUNNING)], 10)
    roll.watch([record(A, "70")], 100.0)
    assert roll.listed([seen(A, Stand.RUNNING)], 11) == [JobSubmitted(A, "70"), JobStarted(A)]


def test_what_is_no_longer_on_record_becomes_a_stray() -> None:
    roll = submitted(A)
    roll.watch([], 100.0)
    roll.listed([seen(A, Stand.RUNNING)], 11)
    assert roll.strays() == ["70"]


def test_a_requeue_before_the_first_list_that_shows_it_running_is_told() -> None:
    """It ran, its node failed, and it waits again: no list has shown it running."""
    roll = submitted(A)
    [told] = roll.listed([seen(A, Stand.WAITING)._replace(restarts=1)], 21)
    assert isinstance(told, JobRequeued)
    assert not roll.listed([seen(A, Stand.WAITING)._replace(restarts=1)], 31)
    kinds = [type(one) for one in roll.listed([seen(A, Stand.RUNNING)._replace(restarts=2)], 41)]
    assert kinds == [JobRequeued, JobStarted]
