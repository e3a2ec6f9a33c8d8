"""Who a pilot is, where it runs, and whose tasks it runs."""

import pytest

from covey.core.explain.bag_answers import hindrance
from covey.core.protocol import hosts
from covey.core.protocol.tokens import hand_job, read_hand_job
from covey.core.record.actions import (
    Action,
    Done,
    Problem,
    RecordEnds,
    Refuse,
    SaveHost,
    SavePilotStatus,
)
from covey.core.record.events import DrainRequested, PilotDismissed, PilotEnrolled
from covey.core.record.model import BagId, JobId, JobRecord, PilotId, Settings, SiteSpec
from covey.core.state import Job
from covey.pilot.protocol.messages import Answer, Enrol, Enrolled
from tests.unit.core.placing import local_site
from tests.unit.core.table import Hand, Table, end, only, replies, spec, writes

LEASE_SECONDS = Settings().lease_seconds


def enrol(
    table: Table,
    owner: str = "",
    *,
    host: str = "node",
    job: str = "",
    machine: str = "",
    boot: str = "",
    key: str = "",
) -> Hand:
    key = key or f"key-{table.requests:08}"
    if job and read_hand_job(job) is None:
        record = JobRecord(id=JobId(job), site="", slots=2, submitted=table.now)
        table.scheduler.state.jobs.setdefault(record.id, Job(record, table.now))
    message = Enrol(key, host, 2, job=job, machine=machine, boot=boot, shared=True)
    event = PilotEnrolled(table.request(), message, "word", "digest", owner)
    return Hand(table, only(table.handle(event), Enrolled).pilot)


def refusal(table: Table, job: str, key: str) -> Problem:
    message = Enrol(key, "node", 2, job=job)
    return problem(table.handle(PilotEnrolled(table.request(), message, "word", "digest", "")))


def problem(actions: list[Action]) -> Problem:
    (refused,) = [action for action in actions if isinstance(action, Refuse)]
    return refused.problem


def host_of(table: Table, hand: Hand) -> str:
    return table.scheduler.state.pilots[PilotId(hand.pilot)].record.host


def test_a_host_keeps_its_name_whatever_it_is_called_later() -> None:
    table = Table()
    first = enrol(table, machine="m1", boot="b1")
    again = enrol(table, machine="m1", boot="b1", host="renamed")
    assert host_of(table, first) == host_of(table, again) == "node"


def test_two_machines_of_one_name_are_two_hosts() -> None:
    table = Table()
    names = [host_of(table, enrol(table, machine=f"m{n}", boot="b")) for n in range(3)]
    assert names == ["node", "node~2", "node~3"]


def test_clones_that_are_there_at_once_are_told_apart() -> None:
    table = Table()
    first = enrol(table, machine="m1", boot="b1")
    first.sync(0)
    clone = enrol(table, machine="m1", boot="b2")
    assert (host_of(table, first), host_of(table, clone)) == ("node", "node~2")
    saved = writes(table.actions, SaveHost)
    assert [one.machine for one in saved] == ["m1@hand/*", "m1/b2@hand/*"]


def test_a_machine_that_was_started_again_is_the_same_host() -> None:
    table = Table()
    first = enrol(table, machine="m1", boot="b1")
    first.sync(0)
    table.later(45.0)
    assert host_of(table, enrol(table, machine="m1", boot="b2")) == "node"


def test_a_pilot_that_enrols_again_makes_up_no_hosts() -> None:
    """Hosts are remembered for ever: one pilot could fill the record and the server's memory."""
    table = Table()
    job = hand_job("ann", table.now + 3600, "x")
    first = enrol(table, "ann", job=job, key="one-pilot", machine="m0", boot="b0")
    for number in range(1, 20):
        host, machine = f"node{number}", f"m{number}"
        enrol(table, "ann", job=job, key="one-pilot", host=host, machine=machine, boot="b1")
    assert host_of(table, first) == "node"
    assert len(table.scheduler.state.histories.machines) == len(table.scheduler.state.hosts) == 1


def test_a_requeued_job_fences_the_pilot_that_it_had() -> None:
    table = Table()
    table.submit(spec(1))
    old = enrol(table, job="hand-1")
    assert len(only(old.sync(2), Answer).tasks) == 1
    start = len(table.actions)
    table.later(LEASE_SECONDS)
    new = enrol(table, job="hand-1")
    assert not writes(table.actions[start:], RecordEnds), "it may be a late message"
    assert len(only(new.sync(2), Answer).tasks) == 1, "its task goes on there"
    actions = table.actions[start:]
    (lost,) = writes(actions, RecordEnds)[0].ends
    assert (lost.end.outcome, lost.pilot) == ("lost", old.pilot)
    assert [one.pilot for one in writes(actions, SavePilotStatus)] == [old.pilot]


def test_a_secret_that_its_pilot_has_used_lets_in_nobody_else() -> None:
    """Not before the pilot has been silent for a whole lease; the pilot itself comes back."""
    table = Table()
    mine = enrol(table, job="hand-1", key="key of the pilot")
    mine.sync(2)
    assert refusal(table, "hand-1", "key of the thief") is Problem.TOO_MANY
    table.later(LEASE_SECONDS - 1)
    assert refusal(table, "hand-1", "key of the thief") is Problem.TOO_MANY
    mine.sync(2)
    table.later(LEASE_SECONDS - 1)
    assert refusal(table, "hand-1", "key of the thief") is Problem.TOO_MANY
    assert enrol(table, job="hand-1", key="key of the pilot").pilot == mine.pilot


def test_two_pilots_with_one_secret_do_not_put_each_other_out_for_ever() -> None:
    """The first one is sent away, once the second has shown that it lives."""
    table = Table()
    old = enrol(table, job="hand-1", key="key of the old one")
    old.sync(2)
    table.later(LEASE_SECONDS)
    new = enrol(table, job="hand-1", key="key of the new one")
    new.sync(2)
    assert problem(old.sync(2)) is Problem.UNKNOWN_PILOT
    assert refusal(table, "hand-1", "key of the old one") is Problem.SUPERSEDED
    assert list(table.scheduler.state.pilots) == [new.pilot]


def test_a_late_word_of_a_dead_pilot_does_not_put_out_a_living_one() -> None:
    table = Table()
    living = enrol(table, job="hand-1", key="key of the new one")
    living.sync(2)
    assert refusal(table, "hand-1", "key of the dead one") is Problem.TOO_MANY
    only(living.sync(2), Answer)


def test_pilots_of_different_jobs_do_not_disturb_each_other() -> None:
    table = Table()
    enrol(table, job="a")
    enrol(table, job="b")
    enrol(table)
    enrol(table)
    assert len(table.scheduler.state.pilots) == 4


def test_a_pilot_runs_only_the_tasks_of_its_owner() -> None:
    table = Table()
    bag = BagId(table.submit(spec(4, owner="ann")))
    bobs = enrol(table, owner="bob")
    assert not replies(bobs.sync(2), Answer)
    state = table.scheduler.state
    told = hindrance(state, state.bags[bag])
    assert (
        told == "no pilot that runs tasks of ann is connected; start one with: covey pilot-command"
    )
    assert len(only(enrol(table, owner="ann").sync(2), Answer).tasks) == 2
    assert len(only(enrol(table).sync(2), Answer).tasks) == 2, "anybody's pilot"


def test_a_pilot_that_somebody_started_stays_for_its_time_and_is_then_sent_home() -> None:
    table = Table()
    table.submit(spec(8))
    hand = enrol(table, job=hand_job("*", table.now + 10, "0"))
    told = [one.idle_seconds for one in replies(table.actions, Enrolled)]
    assert told == [10.0]
    first = only(hand.sync(2), Answer)
    assert len(first.tasks) == 2
    assert not first.leave
    table.later(10.0)
    last = only(hand.sync(2, [end(first, 0), end(first, 1)]), Answer)
    assert last.leave
    assert not last.tasks


def test_a_server_without_pilots_says_what_to_do() -> None:
    """Unless it starts one by itself."""
    told = {}
    for sites in ((), (local_site(1, 1),)):
        table = Table(sites=sites)
        bag = BagId(table.submit(spec(4, owner="ann")))
        state = table.scheduler.state
        told[len(sites)] = hindrance(state, state.bags[bag])
    assert told == {0: "no pilot is connected; start one with: covey pilot-command", 1: ""}


def test_pilots_by_hand_outlive_the_server_that_ends() -> None:
    """Others are sent home: their site starts new ones."""
    table = Table()
    by_hand = enrol(table, "ann", job=hand_job("ann", table.now + 600, "x"))
    other = enrol(table)
    for hand in (by_hand, other):
        hand.sync(1)
    (answer,) = replies(table.handle(DrainRequested()), Answer)
    assert answer.leave
    assert not any(one.leave for one in replies(by_hand.sync(1), Answer))


def test_pilots_at_sites_stay_for_the_next_server_if_they_have_work() -> None:
    table = Table(sites=(SiteSpec(name="far", driver="slurm"),))
    table.submit(spec(1))
    busy, idle = (table.enrol(site="far", key=f"pilot-key-{n}") for n in range(2))
    assert len(busy.ask(1).tasks) == 1
    idle.sync(1)
    (answer,) = replies(table.handle(DrainRequested()), Answer)
    assert answer.leave
    assert not any(one.leave for one in replies(busy.sync(1), Answer))


def test_a_pilot_that_is_dismissed_gets_no_more_tasks_and_goes() -> None:
    table = Table()
    table.submit(spec(8))
    pilot = enrol(table, job="1-1")
    first = only(pilot.sync(2), Answer)
    parked = pilot.sync(2)
    assert not replies(parked, Answer)
    actions = table.handle(PilotDismissed(table.request(), PilotId(pilot.pilot)))
    assert only(actions, Done).count == 1
    assert only(actions, Answer).leave, "at once"
    last = only(pilot.sync(2, [end(first, 0)]), Answer)
    assert (last.leave, last.tasks) == (True, [])
    assert problem(table.handle(PilotDismissed(table.request(), PilotId(99)))) is Problem.NOT_FOUND


def test_a_pilot_of_a_job_that_is_over_is_not_let_in() -> None:
    """Nobody could say whose tasks it may run."""
    assert refusal(Table(), "1-1", "key-of-it") is Problem.NOT_FOUND


# -- whose hosts ---------------------------------------------------------------------------------


def hand_pilot(table: Table, owner: str, host: str = "node", machine: str = "m1") -> Hand:
    """As the server would let in a pilot with the secret of such a job."""
    job = hand_job(owner or "*", 1e9, f"{table.requests}")
    return enrol(table, job=job, owner=owner, host=host, machine=machine)


@pytest.mark.parametrize("machine", ["m1", ""])
@pytest.mark.parametrize("owner", ["eve", ""])
def test_who_claims_the_machine_of_another_owner_is_another_host(owner: str, machine: str) -> None:
    table = Table()
    first = hand_pilot(table, "ann", machine=machine)
    thief = hand_pilot(table, owner, machine=machine)
    assert (host_of(table, first), host_of(table, thief)) == ("node", "node~2")
    again = hand_pilot(table, "ann", machine=machine)
    assert host_of(table, again) == "node"
    thief.sync(0)
    assert [one.host for one in writes(table.actions, SaveHost)] == ["node", "node~2", "node"]


def test_a_pilot_by_hand_is_none_of_a_sites_hosts() -> None:
    table = Table()
    record = JobRecord(id=JobId("j1"), site="cluster", slots=2, submitted=table.now)
    table.scheduler.state.jobs[record.id] = Job(record, table.now)
    real = enrol(table, job="j1", machine="m1")
    claimed = hand_pilot(table, "")
    assert (host_of(table, real), host_of(table, claimed)) == ("node", "node~2")
    state = table.scheduler.state
    assert state.pilots[PilotId(real.pilot)].record.site == "cluster"


def test_a_pilot_by_hand_cannot_say_that_it_is_of_a_site_which_the_server_knows() -> None:
    table = Table(sites=(SiteSpec(name="cluster", driver="slurm"),))
    found = []
    for site in ("cluster", "lab"):
        job = hand_job("eve", 1e9, site)
        message = Enrol(f"key-of-{site}", "node", 2, site=site, job=job, machine=site)
        event = PilotEnrolled(table.request(), message, "word", "digest", "eve")
        pilot = only(table.handle(event), Enrolled).pilot
        found.append(table.scheduler.state.pilots[PilotId(pilot)].record.site)
    assert found == ["hand", "lab"]


def test_a_forged_name_bans_nobody_elses_host() -> None:
    """All tasks fail on the host that claims to be another: only that one is to blame."""
    table = Table(lease_seconds=1e9)
    table.submit(spec(400, owner="ann", retries=99))
    real, good = hand_pilot(table, ""), hand_pilot(table, "", "other", "m2")
    liar = hand_pilot(table, "ann")
    for _ in range(10):
        for hand, outcome in ((good, "ok"), (liar, "failed")):
            answers = [one for one in replies(hand.sync(1), Answer) if one.tasks]
            if answers:
                hand.sync(0, [end(answers[0], 0, outcome)])
        table.later(1.0)
    hosts = table.scheduler.state.hosts
    assert hosts[host_of(table, liar)].history.bans
    assert not hosts[host_of(table, real)].history.bans
    assert hosts[host_of(table, real)].history.failed == 0.0


@pytest.mark.parametrize(
    ("host", "called"), [("node", "node"), ("node~2", "node"), ("~2", "~2"), ("a~b", "a~b")]
)
def test_what_a_host_is_called(host: str, called: str) -> None:
    assert hosts.called_name(host) == called
