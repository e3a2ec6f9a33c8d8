"""Tasks that failed too often have a last chance on fail-over sites; those past their deadline,
another one elsewhere."""

import pytest

from covey.core.record.actions import Write
from covey.core.record.events import PolicyRequested, SiteRemoved
from covey.core.record.model import BagId, Need, PolicySpec, SiteSpec, Snapshot
from covey.pilot.protocol.messages import Answer, End, Held
from tests.memory_store.memory_record import MemoryRecord
from tests.unit.core.placing import Grounds, site
from tests.unit.core.table import Hand, Table, end, replies, spec

FAILOVER = PolicySpec(only_sites=("near",), failover_sites=("far",))


def gets(hand: Hand, want: int = 1) -> list[End]:
    """What it is sent, as ends; asking for none has the open question answered."""
    answers = [*replies(hand.sync(want), Answer), *replies(hand.sync(0), Answer)]
    return [end(answer, index) for answer in answers for index in range(len(answer.tasks))]


def fail(hand: Hand) -> None:
    [one] = gets(hand)
    hand.sync(0, [one._replace(outcome="failed")])


def after(table: Table) -> Snapshot:
    """What the next server starts from."""
    record = MemoryRecord({})
    record.open()
    record.apply([one.change for one in table.actions if isinstance(one, Write)])
    return record.open()


def test_a_last_chance_is_on_the_fail_over_site_only() -> None:
    table = Table()
    bag = table.submit(spec(1, policy=FAILOVER))
    near, far = table.enrol(host="a", site="near"), table.enrol(host="b", site="far")
    assert gets(far) == []
    fail(near)
    assert gets(near) == []
    fail(far)
    assert BagId(bag) not in table.scheduler.state.bags


def test_one_that_is_lost_there_is_tried_there_again() -> None:
    table = Table()
    bag = table.submit(spec(1, policy=FAILOVER))
    near, far = table.enrol(host="a", site="near"), table.enrol(host="b", site="far")
    fail(near)
    [one] = gets(far)
    far.sync(0, [one._replace(outcome="host")])
    assert gets(near) == []
    assert [again.task for again in gets(far)] == [0]
    assert table.scheduler.state.bags[BagId(bag)].places.rescued


def test_a_restart_forgets_no_last_chance() -> None:
    table = Table()
    bag = table.submit(spec(1, policy=FAILOVER))
    fail(table.enrol(host="a", site="near"))
    later = Table(snapshot=after(table))
    later.later(later.scheduler.state.settings.adopt_seconds + 1)
    near = later.enrol(key="key-of-near", host="c", site="near")
    far = later.enrol(key="key-of-far", host="d", site="far")
    assert gets(near) == []
    fail(far)
    assert BagId(bag) not in later.scheduler.state.bags


def test_who_fails_over_no_more_lets_its_tasks_go_anywhere() -> None:
    table = Table()
    bag = table.submit(spec(1, policy=FAILOVER))
    near = table.enrol(host="a", site="near")
    fail(near)
    table.handle(PolicyRequested(table.request(), BagId(bag), PolicySpec()))
    assert [one.task for one in gets(near)] == [0]


def test_when_the_one_sent_instead_fails_too_there_is_another() -> None:
    table = Table(lease_seconds=1e9)
    table.submit(spec(1, retries=9, policy=PolicySpec(deadline="30s")))
    stuck, second, third = (table.enrol(host=name) for name in "abc")
    assert len(gets(stuck)) == 1
    table.later(31)
    fail(second)
    assert len(gets(third)) == 1


def test_a_deadline_holds_after_a_restart() -> None:
    table = Table()
    table.submit(spec(1, policy=PolicySpec(deadline="30s")))
    [given] = gets(table.enrol(host="a", key="key-of-a"))
    later = Table(snapshot=after(table), lease_seconds=1e9)
    same = Hand(later, 1)
    same.sync(0, held=[Held(*given[:4])], number=9)
    other = later.enrol(host="b", key="key-of-b")
    later.later(29)
    assert gets(other) == []
    later.later(2)
    assert [one.task for one in gets(other)] == [0]


def test_what_was_set_aside_comes_back_when_its_policy_is_lifted() -> None:
    table = Table(chunk=4, largest_chunk=4, most_lookahead=1, buffer_seconds=1.0)
    bag = table.submit(spec(12, policy=PolicySpec(requirements="Job.i >= 8")))
    hand = table.enrol(12)
    found: list[End] = []
    for _ in range(20):
        found += gets(hand, 12)
        table.later(2)
    assert sorted(one.task for one in found) == [8, 9, 10, 11]
    table.handle(PolicyRequested(table.request(), BagId(bag), PolicySpec()))
    for _ in range(20):
        found += gets(hand, 12)
        table.later(2)
    assert sorted(one.task for one in found) == list(range(12))


def test_failures_beside_one_that_is_stuck_use_up_chances() -> None:
    table = Table(lease_seconds=1e9)
    bag = table.submit(spec(1, retries=1, policy=PolicySpec(deadline="30s")))
    stuck, second, third = (table.enrol(host=name) for name in "abc")
    [late] = gets(stuck)
    table.later(31)
    fail(second)
    fail(third)
    assert BagId(bag) not in table.scheduler.state.bags
    assert stuck.sync(0, [late])  # too late for core; the record takes it


# -- sites that are there for nothing else ---------------------------------------------------


def test_a_site_for_last_chances_needs_not_be_named() -> None:
    grounds = Grounds(site("near"), site("far", failover=True))
    bag = grounds.submit(spec(1))
    [job] = grounds.jobs
    assert job.site == "near"
    near = grounds.begin(job, want=0)
    fail(near)
    grounds.later(1)
    [last] = [one for one in grounds.jobs if one.site == "far"]
    assert gets(near) == []
    far = grounds.begin(last, want=0)
    fail(far)
    assert BagId(bag) not in grounds.scheduler.state.bags


@pytest.mark.parametrize(
    "policy",
    [
        PolicySpec(only_sites=("near",)),
        PolicySpec(avoid_sites=("far",)),
        PolicySpec(failover_sites=("else",), only_sites=("near",)),
    ],
)
def test_a_policy_decides_against_it(policy: PolicySpec) -> None:
    grounds = Grounds(site("near"), site("far", failover=True))
    grounds.submit(spec(1, policy=policy))
    fail(grounds.begin(grounds.jobs[0], want=0))
    assert not [one for one in grounds.jobs if one.site == "far"]


@pytest.mark.parametrize(
    "far",
    [
        site("far", failover=True, users=("eve",)),
        site("far", failover=True, memory_mb=10),
        site("far", failover=True, wall_seconds=20.0),
    ],
)
def test_nobody_waits_for_one_that_cannot_have_them(far: SiteSpec) -> None:
    grounds = Grounds(site("near"), far)
    need = Need(memory_mb=100, limit_seconds=30.0)
    bag = grounds.submit(spec(1, need=need))
    fail(grounds.begin(grounds.jobs[0], want=0))
    assert BagId(bag) not in grounds.scheduler.state.bags


def test_when_it_is_removed_tasks_have_their_chance_anywhere() -> None:
    grounds = Grounds(site("near"))
    grounds.save(site("far", failover=True))
    grounds.submit(spec(1))
    near = grounds.begin(grounds.jobs[0], want=0)
    fail(near)
    assert gets(near) == []
    grounds.handle(SiteRemoved(grounds.request(), "far"))
    assert [one.task for one in gets(near)] == [0]


def test_nobody_waits_for_one_of_which_nothing_is_heard() -> None:
    grounds = Grounds(site("near"), site("far", failover=True))
    bag = grounds.submit(spec(1))
    grounds.site("far").unanswered = "nobody knows its name"
    fail(grounds.begin(grounds.jobs[0], want=0))
    assert BagId(bag) not in grounds.scheduler.state.bags
