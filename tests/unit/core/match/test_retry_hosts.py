"""Where a task is tried again, how many attempts of it are out, and what a pilot leaves behind."""

import pytest

from covey.core.explain import bag_answers
from covey.core.explain.steps import finish
from covey.core.match import ranking
from covey.core.match.retry_hosts import FAILING, LAST_TRY, WAIT_SECONDS
from covey.core.record.events import PilotLeft
from covey.core.record.model import (
    BagId,
    BagRecord,
    BagSnapshot,
    ChunkRecord,
    JobId,
    Need,
    PilotId,
    PilotRecord,
    PolicySpec,
    Snapshot,
)
from covey.core.state import Bag
from covey.pilot.protocol.messages import Answer, Leave
from tests.unit.core.match.test_blame import Worker, a_worker
from tests.unit.core.table import Table, replies, spec


def only_bag(table: Table) -> Bag:
    (bag,) = table.scheduler.state.bags.values()
    return bag


def tasks_of(worker: Worker) -> list[int]:
    return [one.task for one in worker.held]


def test_a_retry_goes_to_another_host_first() -> None:
    table = Table()
    table.submit(spec(3, retries=2))
    bad, good = a_worker(table, "bad"), a_worker(table, "good")
    assert bad.gets() == 1
    assert tasks_of(bad) == [0]
    bad.ends("failed")
    assert bad.gets() == 1
    assert tasks_of(bad) == [1]
    assert good.gets() == 1
    assert tasks_of(good) == [0]


def test_nobody_else_takes_it_so_the_same_host_may_after_a_while() -> None:
    table = Table(lease_seconds=1e9)
    table.submit(spec(1, retries=2))
    bad, _ = a_worker(table, "bad"), a_worker(table, "good")
    bad.gets()
    bad.ends("failed")
    assert bad.gets() == 0
    answer = bag_answers.of_task(table.scheduler.state, table.now, only_bag(table), 0)
    assert answer.summary.startswith("it waits for another host than bad, where it failed")
    assert f"for {WAIT_SECONDS:.0f} s at most" in answer.summary
    state, bag = table.scheduler.state, only_bag(table)
    answer_of_bag = finish(bag_answers.of_bag(state, table.now, bag))
    [avoided] = [reason for reason in answer_of_bag.reasons if reason.kind == "avoided"]
    assert avoided.text.startswith("the tasks that wait have failed on bad before")
    table.later(WAIT_SECONDS)
    assert bad.gets() == 1


@pytest.mark.parametrize("other", ["none", "too small", "not allowed"])
def test_where_there_is_no_other_host_the_same_one_gets_it_at_once(other: str) -> None:
    table = Table()
    policy = PolicySpec(only_hosts=("bad",)) if other == "not allowed" else PolicySpec()
    table.submit(spec(1, retries=2, policy=policy, need=Need(cores=2)))
    bad = a_worker(table, "bad", 2)
    if other != "none":
        a_worker(table, "other", 1 if other == "too small" else 2)
    assert bad.gets(2) == 1
    bad.ends("failed")
    assert bad.gets(2) == 1


def test_a_host_that_fails_everything_gets_no_last_try() -> None:
    """One bad host among three, two retries: in the report a task was lost in 4 of 4 bags."""
    table = Table(lease_seconds=1e9)
    table.submit(spec(6, retries=1))
    bad, good = a_worker(table, "bad"), a_worker(table, "good")
    for _ in range(FAILING):
        assert bad.gets() == 1
        bad.ends("failed")
    assert good.gets() == 1
    assert tasks_of(good) == [0]
    good.ends("failed")  # task 0 has had all its tries
    assert list(only_bag(table).places.failed) == [0]
    table.later(WAIT_SECONDS + 1)  # long enough for an ordinary retry
    bad.gets()
    assert 1 not in tasks_of(bad), "the last try of task 1 goes to the host that fails"
    bad.ends("ok")
    bag = only_bag(table)
    assert 1 in bag.failures.last_tries
    table.later(LAST_TRY * WAIT_SECONDS)
    assert good.gets() == 1
    assert tasks_of(good) == [1]


def test_a_task_is_not_asked_back_for_a_host_where_it_failed() -> None:
    table = Table()
    table.submit(spec(8, retries=3))
    bad, good = a_worker(table, "bad"), a_worker(table, "good")
    assert good.gets() == 1
    good.ends("ok")
    for _ in range(2):
        assert bad.gets() == 1
        bad.ends("failed")
    assert good.gets(2) == 2
    assert tasks_of(good) == [1, 2], "both have failed on the bad host"
    assert a_worker(table, "large", 5).gets(5) == 5
    good.hand.sync(want=2)
    bad.hand.sync(want=1)
    assert not replies(table.later(1), Answer)
    a_worker(table, "idle").hand.sync(want=1)
    (answer,) = replies(table.later(1), Answer)
    assert [one.task for one in answer.recalls] == [2]


def test_no_task_is_lost_with_one_bad_host_among_three() -> None:
    table = Table(lease_seconds=1e9)
    table.submit(spec(24, retries=2))
    bad, *good = [a_worker(table, name) for name in ("bad", "n1", "n2")]
    for step in range(400):
        bad.gets()
        bad.ends("failed")
        if step % 3 == 0:  # the others are slower
            for one in good:
                one.gets()
                one.ends("ok")
        table.later(1.0)
        if not table.scheduler.state.bags:
            break
    finished = [one for one in table.actions if "bag finished" in str(one)]
    assert any("24 done, 0 failed" in str(one) for one in finished)


def test_a_policy_sees_where_a_task_failed() -> None:
    table = Table(lease_seconds=1e9)
    never_back = PolicySpec(requirements="!member(Host.Name, Job.FailedHosts)")
    table.submit(spec(1, retries=2, policy=never_back))
    bad = a_worker(table, "bad")
    assert bad.gets() == 1
    bad.ends("failed")
    table.later(2 * WAIT_SECONDS)
    assert bad.gets() == 0
    assert a_worker(table, "good").gets() == 1


def test_what_is_done_or_given_up_is_forgotten() -> None:
    table = Table()
    table.submit(spec(3, retries=1))
    bad, good = a_worker(table, "bad"), a_worker(table, "good")
    bad.gets()
    bad.ends("failed")
    bag = only_bag(table)
    assert list(bag.failures.failed_on) == [0]
    good.gets()
    good.ends("ok")
    assert not bag.failures.failed_on
    assert not bag.failures.avoided
    assert not bag.failures.last_tries


# -- deadlines ---------------------------------------------------------------------------------


def test_a_deadline_that_always_passes_keeps_to_max_replicas() -> None:
    table = Table(lease_seconds=1e9)
    table.submit(spec(1, policy=PolicySpec(deadline="5", max_replicas="2")))
    workers = [a_worker(table, f"n{number}") for number in range(10)]
    for _ in range(10):
        for worker in workers:
            worker.gets()
        table.later(6.0)
    bag = only_bag(table)
    assert len(bag.places.live[0]) == 2
    told = bag_answers.of_task(table.scheduler.state, table.now, bag, 0).replication
    assert told is not None
    assert "max_replicas allows no more than 2" in told.text
    holder = next(one for one in workers if one.held)
    holder.ends("host")  # one of them is over: there is room for another
    for worker in workers:
        worker.gets()
    assert len(bag.places.live[0]) == 2


def test_max_replicas_that_is_an_expression_holds_for_deadlines() -> None:
    table = Table(lease_seconds=1e9)
    policy = PolicySpec(deadline="5", max_replicas="JobsTotal + 2")
    table.submit(spec(1, policy=policy))
    workers = [a_worker(table, f"n{number}") for number in range(6)]
    for _ in range(6):
        for worker in workers:
            worker.gets()
        table.later(6.0)
    assert len(only_bag(table).places.live[0]) == 3


# -- leaving -----------------------------------------------------------------------------------


def after_a_restart() -> Table:
    """40 tasks that must not be repeated, 8 of them done; a pilot of the server before."""
    record = BagRecord(id=BagId(1), spec=spec(40, idempotent=False), total=40, created=900.0)
    chunk = ChunkRecord(first=0, stop=40, closed=False)
    bag = BagSnapshot(bag=record, chunks=(chunk,), open_done=tuple(range(8)), failed=(), tries={})
    pilot = PilotRecord(
        id=PilotId(1), key="key", credential="digest", host="host", slots=2, site="local",
        job=JobId(""), tags={}, version="", enrolled=900.0,
    )  # fmt: skip
    snapshot = Snapshot(
        epoch=2, bags=(bag,), pilots=(pilot,), jobs=(), next_bag=2, next_pilot=2, keys={}
    )
    return Table(snapshot=snapshot)


@pytest.mark.parametrize("holds_nothing", [True, False])
def test_a_pilot_that_leaves_with_nothing_fails_no_task(holds_nothing: bool) -> None:
    table = after_a_restart()
    leave = Leave(1, 1, "idle", holds_nothing)
    table.handle(PilotLeft(table.request(), leave))
    bags = list(table.scheduler.state.bags.values())
    if holds_nothing:
        assert [len(bag.places.failed) for bag in bags] == [0]
        assert bags[0].unsent() == 32
        return
    text = str(table.actions)
    assert not bags
    assert "cause='lost: the server restarted" in text


def test_what_was_on_its_way_to_a_pilot_that_left_goes_elsewhere() -> None:
    table = Table()
    table.submit(spec(2, idempotent=False))
    worker, other = a_worker(table, "first"), a_worker(table, "second", 2)
    assert worker.gets() == 1
    leave = Leave(worker.hand.pilot, 1, "idle", holds_nothing=True)
    table.handle(PilotLeft(table.request(), leave))
    assert other.gets(2) == 2


# -- many bags ---------------------------------------------------------------------------------


def test_a_request_does_not_look_at_every_bag_of_a_long_queue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked = 0
    right = ranking.may_go

    def may_go(*arguments: object) -> bool:
        nonlocal looked
        looked += 1
        return right(*arguments)  # type: ignore[arg-type]

    table = Table(chunk=64)
    for _ in range(300):
        table.submit(spec(20))
    worker = a_worker(table, "host", 2)
    assert worker.gets(4) == 2
    worker.ends()
    assert worker.gets(4) == 4  # the first bag is proven
    monkeypatch.setattr(ranking, "may_go", may_go)
    worker.ends()
    worker.gets(4)
    assert 0 < looked < 30


def test_a_bag_that_is_over_is_forgotten_by_pilots() -> None:
    table = Table()
    worker = a_worker(table, "host", 1)
    for _ in range(50):
        table.submit(spec(1))
        assert worker.gets() == 1
        worker.ends()
    (pilot,) = table.scheduler.state.pilots.values()
    table.later(1.0)
    assert not pilot.bodies
    assert not pilot.proven
    assert not table.scheduler.state.bags
    assert not table.scheduler.state.scene.owners.get("", [])


def test_the_order_of_bags_is_as_if_it_were_found_anew() -> None:
    """Bags whose ads have changed are put into their places; all others stay where they are."""
    table = Table(chunk=64)
    policy = PolicySpec(rank="JobsUnsent", concurrency="Pilot.Slots")
    for number in range(40):
        table.submit(spec(5 + number % 7, policy=policy))
    workers = [a_worker(table, f"host{number}", 3) for number in range(3)]
    for step in range(60):
        worker = workers[step % 3]
        worker.gets(3)
        worker.ends()
        state = table.scheduler.state
        pilot = state.pilots[PilotId(worker.hand.pilot)]
        found = ranking.order(state, table.now, pilot, "")
        face = pilot.faces[""]
        assert found == ranking._ranked(state, table.now, pilot, face, "")
        table.now += 0.01
