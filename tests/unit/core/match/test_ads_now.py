"""What is looked at once a second is explained as dispatch sees it, and asking changes nothing."""

import pytest

from covey.core.explain.policy_view import PolicyView, SampledClass
from covey.core.match import ads_now
from covey.core.record.model import BagId, PilotId
from tests.unit.core.match.test_policies import gets, policy
from tests.unit.core.table import Hand, Table, spec


def setting(requirements: str, **fields: object) -> tuple[Table, Hand, PolicyView]:
    """A pilot that has just been asked about a bag."""
    table = Table()
    bag = BagId(table.submit(spec(9, policy=policy(requirements=requirements, **fields))))
    hand = table.enrol(1, host="a")
    gets(hand)
    return table, hand, view_of(table, bag)


def view_of(table: Table, bag: BagId) -> PolicyView:
    state = table.scheduler.state
    return PolicyView(state, table.now, state.bags[bag])


def lets(table: Table, hand: Hand, bag: BagId) -> bool:
    view = view_of(table, bag)
    view.at(table.scheduler.state.pilots[PilotId(hand.pilot)], SampledClass(0))
    return view.match() is not None


@pytest.mark.parametrize("requirements", ["Queue.Pilots < 2", "User.RunningJobs < 1"])
def test_the_queue_and_the_user_are_as_they_were_within_a_second(requirements: str) -> None:
    table, hand, view = setting(requirements)
    table.enrol(1, host="b")
    table.now += 0.5
    assert lets(table, hand, view.bag.id)
    table.now += 0.5
    assert not lets(table, hand, view.bag.id)


def test_the_tail_is_as_dispatch_has_found_it() -> None:
    table, _, view = setting("!Tail", tail="Queue.Pilots > 1")
    assert not view.tail
    table.enrol(1, host="b")
    table.now += 0.5
    assert not view_of(table, view.bag.id).tail
    table.now += 0.5
    assert view_of(table, view.bag.id).tail


def test_statistics_of_a_host_are_kept_until_a_task_fails_there() -> None:
    table, hand, view = setting("Host.SinceFailure > 1")
    state, pilot = table.scheduler.state, table.scheduler.state.pilots[PilotId(hand.pilot)]
    history = state.hosts["a"].history
    history.last_failed = table.now
    assert lets(table, hand, view.bag.id)
    history.row = 1
    assert not ads_now.of_host(state, table.now, pilot, "")
    assert not lets(table, hand, view.bag.id)


def test_asking_brings_nothing_up_to_date() -> None:
    table, hand, view = setting("Queue.Pilots < 2 && !Tail", tail="Queue.Pilots > 1")
    scene, cache = table.scheduler.state.scene, view.bag.cache
    before = (scene.at, scene.stamp, cache.at, cache.stamp, view.bag.replicas.tail)
    table.enrol(1, host="b")
    table.now += 2.0
    assert not lets(table, hand, view.bag.id)
    assert (scene.at, scene.stamp, cache.at, cache.stamp, view.bag.replicas.tail) == before
