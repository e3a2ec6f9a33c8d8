"""Why a site gets no pilots, or only so many; which sites could get some for a bag."""

from typing import Any

import pytest

from covey.core.explain import bag_answers, site_answers
from covey.core.explain.answers import SiteAnswer
from covey.core.explain.steps import finish
from covey.core.record.actions import CancelJobs, Done, SubmitPilots, Tried
from covey.core.record.events import (
    DrainRequested,
    JobEnded,
    JobStarted,
    JobSubmitted,
    SiteAnswered,
    SiteFailed,
    SiteStatusRequested,
    SiteTried,
    TrialEnded,
)
from covey.core.record.model import BagId, JobId, JobRecord, Need, SiteFacts, SiteSpec, SiteStatus
from covey.core.sites import overlay
from tests.unit.core.match.test_policies import policy
from tests.unit.core.placing import Grounds
from tests.unit.core.table import Table, only, spec


def site(name: str = "s", **more: Any) -> SiteSpec:
    return SiteSpec(name=name, driver="slurm", **{"slots": 2, **more})


def table_with(*sites: SiteSpec) -> Table:
    return Table(sites=sites or (site(),))


def ask(table: Table, name: str = "s", owner: str | None = None) -> SiteAnswer:
    state = table.scheduler.state
    return finish(site_answers.of_site(state, table.now, state.sites[name], owner))


def kinds(answer: SiteAnswer) -> list[str]:
    return [reason.kind for reason in answer.reasons]


def jobs(table: Table) -> list[JobRecord]:
    return [job for one in table.actions if isinstance(one, SubmitPilots) for job in one.jobs]


def enrol(table: Table, job: JobRecord, slots: int = 2) -> None:
    table.handle(JobSubmitted(job.id, "7"))
    table.handle(JobStarted(job.id))
    table.enrol(slots, key=f"pilot-key-{job.id}", host=f"n{job.id}", job=job.id, site=job.site)


# -- may anything be started there? --------------------------------------------------------------


def test_nothing_waits() -> None:
    found = ask(table_with())
    assert kinds(found) == ["idle"]
    assert found.summary == ("0 pilots with 0 slots there: no task waits, so no pilot is needed")
    assert (found.room, found.wanting) == (4, [])


@pytest.mark.parametrize(
    ("status", "told"),
    [
        (SiteStatus.PAUSED, "it is paused: no new pilot is started there; to continue: covey site"),
        (SiteStatus.DRAINING, "it is draining: waiting pilots are cancelled"),
    ],
)
def test_a_site_that_is_not_on(status: SiteStatus, told: str) -> None:
    table = table_with()
    table.handle(SiteStatusRequested(table.request(), "s", status))
    table.submit(spec(4))
    found = ask(table)
    assert kinds(found)[0] == status.value
    assert told in found.summary
    assert not jobs(table)
    assert found.wanting[0].missing == 4


def test_a_site_that_does_not_answer() -> None:
    table = table_with()
    table.handle(SiteFailed("s", "no credentials: ~/proxy is missing"))
    table.submit(spec(4))
    assert kinds(ask(table))[0] == "unanswered"
    assert "~/proxy is missing" in ask(table).summary
    table.handle(SiteAnswered("s"))
    assert "unanswered" not in kinds(ask(table))


def test_a_site_that_rests_says_until_when_and_then_is_probed() -> None:
    table = table_with()
    table.submit(spec(8))
    table.now += 1
    for job in jobs(table):
        table.handle(JobEnded(job.id, "node on fire"))
    (first, *_) = ask(table).reasons
    assert (first.kind, first.until > table.now) == ("resting", True)
    assert "1 failure in a row: node on fire" in first.text
    table.later(first.until - table.now + 2)
    found = ask(table)
    assert kinds(found)[0] == "probing"
    assert "one pilot tests whether it works again" in found.summary
    assert found.waiting == 1


def test_a_server_that_is_about_to_end() -> None:
    table = table_with()
    table.handle(DrainRequested())
    assert kinds(explaining_sites_of(table))[0] == "ending"


def explaining_sites_of(table: Table) -> SiteAnswer:
    state = table.scheduler.state
    return finish(site_answers.of_site(state, table.now, state.sites["s"]))


def test_a_site_whose_pilots_are_started_by_hand() -> None:
    table = table_with(SiteSpec(name="s", driver="manual", facts=SiteFacts(by_hand=True)))
    assert "covey pilot-command --site s" in explaining_sites_of(table).summary


# -- is there room? ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "key", "told"),
    [
        ({"queued": 3}, "queued", "3 pilots wait there; no more are allowed (queued = 3)"),
        ({"ramp": 2}, "ramp", "2 pilots wait there; more are submitted when one has started"),
        (
            {"running": 1},
            "running",
            "1 pilot runs or waits there; no more are allowed (running = 1)",
        ),
        (
            {"memory_mb": 100, "all_memory_mb": 250},
            "all_memory",
            "its pilots have 200 MB of memory; at most 250 MB are allowed (all_memory)",
        ),
        (
            {"disk_mb": 100, "all_disk_mb": 100},
            "all_disk",
            "its pilots have 100 MB of disk; at most 100 MB are allowed (all_disk)",
        ),
    ],
)
def test_limits(more: dict[str, Any], key: str, told: str) -> None:
    table = table_with(site(**more))
    table.submit(spec(100))
    found = ask(table)
    assert kinds(found) == ["limit"]
    assert told in found.reasons[0].text
    assert found.room == 0
    (limit,) = [one for one in found.limits if one.key == key]
    assert limit.left <= 0
    assert found.wanting[0].missing > 0


def test_a_limit_for_each_owner() -> None:
    table = table_with(site(per_user=2))
    table.submit(spec(100, owner="ann"))
    found = ask(table)
    assert (found.waiting, found.room, kinds(found)) == (2, 2, ["limit"])
    assert (
        "2 pilots are there for tasks of ann; no more are allowed (per_user = 2)" in found.summary
    )


def test_pilots_that_start_make_room() -> None:
    table = table_with()
    table.submit(spec(100))
    assert (ask(table).waiting, ask(table).running) == (4, 0)
    enrol(table, jobs(table)[0])
    table.later(1)
    found = ask(table)
    assert (found.running, found.pilots, found.slots) == (1, 1, 2)
    assert found.waiting > 4


# -- does anything wait that may go there? -------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "kind", "told"),
    [
        ({"need": Need(cores=4)}, "resources", "a task needs 4 slots; its pilots have 2"),
        ({"need": Need(gpus=1)}, "resources", "a task needs 1 GPUs; its pilots have 0"),
        ({"need": Need(memory_mb=900)}, "resources", "900 MB of memory; its pilots have 500"),
        (
            {"need": Need(limit_seconds=7200)},
            "time",
            "tasks may take 7,200 s, but its pilots live for 3,600 s (wall)",
        ),
        (
            {"policy": policy(only_sites=("other", "b"))},
            "policy",
            "its policy allows other sites only: only_sites = other, b",
        ),
        ({"policy": policy(avoid_sites=("s",))}, "policy", "avoid_sites = s"),
        (
            {"policy": policy(requirements='Host.Memory > 5 && Site.Name != "s"')},
            "policy",
            'requirements is false there: Site.Name != "s", where Site.Name is "s"',
        ),
        (
            {"policy": policy(grid='Site.Name == "t" || Site.Name == "u"')},
            "policy",
            'grid is false there: Site.Name == "t" || Site.Name == "u"',
        ),
        ({"owner": "eve"}, "users", "it is for tasks of ann, bob only (users)"),
    ],
)
def test_tasks_that_cannot_go_there(given: dict[str, Any], kind: str, told: str) -> None:
    table = table_with(site(memory_mb=500, users=("ann", "bob")))
    table.submit(spec(5, **{"owner": "ann", **given}))
    assert not jobs(table)
    found = ask(table)
    assert kinds(found) == [kind]
    assert told in found.reasons[0].text
    assert found.reasons[0].text.startswith("5 tasks of bag 1 cannot go there: ")
    assert (found.wanting[0].kind, found.wanting[0].missing) == (kind, 0)


def test_a_site_for_what_failed_elsewhere() -> None:
    table = table_with(site(failover=True))
    table.submit(spec(5))
    assert kinds(ask(table)) == ["failover"]


def test_other_sites_cover_what_waits() -> None:
    table = table_with(site("s", slots=1), site("t", slots=8, ramp=20))
    table.submit(spec(6))
    there = [job.site for job in jobs(table)]
    assert "t" in there
    found = ask(table)
    assert kinds(found) == ["covered"]
    assert "on the way at t" in found.reasons[0].text
    assert found.reasons[0].text.endswith("enough for 6 tasks")


def test_others_bags_are_not_told_of() -> None:
    table = table_with()
    table.submit(spec(5, owner="ann", policy=policy(avoid_sites=("s",))))
    found = ask(table, owner="bob")
    assert (kinds(found), found.wanting) == (["idle"], [])
    assert "no task of yours waits" in found.summary
    assert "avoid_sites" in ask(table, owner="ann").summary


def test_asking_changes_nothing() -> None:
    table = table_with()
    table.submit(spec(50, policy=policy(requirements='Site.Name == "s" && Host.Memory > 1')))
    before = len(table.actions)
    first = ask(table)
    assert ask(table) == first
    assert len(table.actions) == before
    table.scheduler.state.check()


# -- a bag's -------------------------------------------------------------------------------------


def of_bag(table: Table, bag: int) -> Any:
    state = table.scheduler.state
    return finish(bag_answers.of_bag(state, table.now, state.bags[BagId(bag)]))


def test_a_bag_without_pilots_says_which_sites_could_get_some() -> None:
    table = table_with(site("s"), site("t"), site("u", users=("eve",)))
    table.handle(SiteStatusRequested(table.request(), "t", SiteStatus.PAUSED))
    bag = table.submit(spec(2, owner="ann"))
    found = of_bag(table, bag)
    assert [(one.site, one.able) for one in found.sites] == [("s", True), ("t", False)]
    assert found.summary.endswith("1 pilot waits to start at s")


def test_sites_that_are_not_on_are_told_of_at_once() -> None:
    table = table_with(site("s"), site("t"))
    for name in ("s", "t"):
        table.handle(SiteStatusRequested(table.request(), name, SiteStatus.PAUSED))
    bag = table.submit(spec(2))
    state = table.scheduler.state
    told = bag_answers.hindrance(state, state.bags[BagId(bag)])
    assert told == "pilots cannot start work at site s: it is paused"
    summary = of_bag(table, bag).summary
    assert "no site can get a pilot for it: s: it is paused: no new pilot is started" in summary
    assert summary.endswith("to continue: covey site resume t")


def test_a_bag_that_no_site_can_get_pilots_for() -> None:
    table = table_with(site("s"))
    bag = table.submit(spec(2, need=Need(cores=64)))
    found = of_bag(table, bag)
    assert [reason.kind for reason in found.reasons] == ["no site"]
    assert "s: a task needs 64 slots; its pilots have 2" in found.summary


# -- trials --------------------------------------------------------------------------------------


def tried(table: Table) -> JobId:
    return only(table.handle(SiteTried(table.request(), "s")), Tried).job


def end(table: Table, job: JobId) -> list[Any]:
    return table.handle(TrialEnded(table.request(), job))


def test_a_trial_that_waits_is_taken_back() -> None:
    table = table_with()
    job = tried(table)
    assert [(one.id, one.slots) for one in jobs(table)] == [(job, 2)], "as large as any"
    table.later(3600)
    assert not [one for one in table.actions if isinstance(one, CancelJobs)], "nobody needs it"
    did = end(table, job)
    assert only(did, Done).count == 1
    assert [one.jobs[0].id for one in did if isinstance(one, CancelJobs)] == [job]
    table.handle(JobEnded(job, "cancelled"))
    assert ask(table).reasons[0].kind == "idle", "the site has not failed"
    assert only(end(table, job), Done).count == 0


def test_a_trial_whose_pilot_came_goes_home() -> None:
    table = table_with()
    job = tried(table)
    enrol(table, jobs(table)[0], 1)
    did = end(table, job)
    assert only(did, Done).count == 1
    assert not [one for one in did if isinstance(one, CancelJobs)]
    (pilot,) = table.scheduler.state.pilots.values()
    assert pilot.until <= table.now


def test_a_trial_that_nobody_looks_at_is_taken_back_after_a_day() -> None:
    table = table_with()
    job = tried(table)
    table.now += overlay.TRIAL_SECONDS + 1
    did = table.later(2)
    assert [[one.id for one in a.jobs] for a in did if isinstance(a, CancelJobs)] == [[job]]


def test_only_trials_can_be_ended() -> None:
    table = table_with()
    table.submit(spec(1))
    (job,) = jobs(table)
    assert only(end(table, job.id), Done).count == 0


def test_demand_that_waits_in_the_queue_of_a_site_is_told_with_the_time() -> None:
    """Few long tasks: some run, the others wait for pilots that a blocked site does not start."""
    grounds = Grounds(site(name="lake"))
    bag = grounds.submit(spec(3))
    grounds.begin(grounds.jobs[0])
    grounds.waits(*grounds.jobs[1:])
    state = grounds.scheduler.state
    known = state.bags[BagId(bag)]
    assert bag_answers.hindrance(state, known) == ""
    grounds.later(site_answers.QUEUE_SECONDS + 5)
    words = "in the queue of site lake, the first for 35 s"
    assert words in bag_answers.hindrance(state, known)
    reasons = finish(bag_answers.of_bag(state, grounds.now, known)).reasons
    assert any(one.kind == "queue" and words in one.text for one in reasons)
