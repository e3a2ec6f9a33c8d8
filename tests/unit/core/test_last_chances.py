"""Tasks that failed too often have a last chance on fail-over sites; those past their deadline,
another one elsewhere."""

from covey.core.actions import Write
from covey.core.events import PolicyRequested
from covey.core.model import BagId, PolicySpec
from covey.pilot.messages import Answer, End
from covey.store.memory import MemoryRecord
from tests.unit.core.table import Hand, Table, end, replies, spec

FAILOVER = PolicySpec(only_sites=("near",), failover_sites=("far",))


def gets(hand: Hand, want: int = 1) -> list[End]:
    """What it is sent, as ends; asking for none has the open question answered."""
    answers = [*replies(hand.sync(want), Answer), *replies(hand.sync(0), Answer)]
    return [end(answer, index) for answer in answers for index in range(len(answer.tasks))]


def fail(hand: Hand) -> None:
    [one] = gets(hand)
    hand.sync(0, [one._replace(outcome="failed")])


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
    assert table.scheduler.state.bags[BagId(bag)].rescued


def test_a_restart_forgets_no_last_chance() -> None:
    table = Table()
    bag = table.submit(spec(1, policy=FAILOVER))
    fail(table.enrol(host="a", site="near"))
    record = MemoryRecord({})
    record.apply([one.change for one in table.actions if isinstance(one, Write)])
    later = Table(snapshot=record.open())
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
