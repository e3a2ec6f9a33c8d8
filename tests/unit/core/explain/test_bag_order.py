"""Which bags come before this one, and why."""

import pytest

from covey.core.explain.bag_order import before
from covey.core.record.model import BagId, Need, PilotId
from covey.core.state.hosts import Rest
from tests.unit.core.explain.test_bag_answers import ask, ask_of, kinds
from tests.unit.core.match.test_policies import fails_for_good, gets, policy
from tests.unit.core.placing import Grounds, site
from tests.unit.core.table import Table, spec


def test_other_bags_come_first_by_rank_and_by_age() -> None:
    table = Table()
    low = table.submit(spec(4, policy=policy(rank="1")))
    high = table.submit(spec(4, policy=policy(rank="Host.NumCpus")))
    bobs = table.submit(spec(4, owner="bob"))
    table.enrol(2, host="a")
    found = ask(table, low)
    assert kinds(found) == ["order"]
    assert [(one.bag, one.rank, one.waiting) for one in found.first] == [(high, 2.0, 4)]
    assert found.first[0].why == "it ranks higher there"
    assert f"for example on a: bag {high} (it ranks higher there)" in found.reasons[0].text
    assert found.first_on == "a"
    assert [one.bag for one in ask(table, bobs).first] == [high, low]
    assert {one.why for one in ask(table, bobs).first} == {"its owner has an older bag"}
    assert ask(table, high).reasons == []
    assert ask(table, high).summary.endswith("the next free hosts get them")


def test_of_equal_bags_the_older_comes_first() -> None:
    table = Table()
    older, newer = table.submit(spec(4)), table.submit(spec(4))
    table.enrol(2, host="a")
    assert [(one.bag, one.why) for one in ask(table, newer).first] == [(older, "it is older")]
    assert ask(table, older).first == []


def test_what_the_owners_of_the_site_prefer_comes_first() -> None:
    grounds = Grounds(site(shared=True, preference='User.Name == "ann"'))
    bobs = grounds.submit(spec(2, owner="bob"))
    anns = grounds.submit(spec(2, owner="ann"))
    grounds.enrol(1, site="lake")
    first = [(one.bag, one.why) for one in ask(grounds, bobs).first]
    assert first == [(anns, "the owners of its site prefer it")]


def test_a_bag_that_the_pilot_cannot_have_does_not_come_first() -> None:
    table = Table()
    table.submit(spec(4, need=Need(cores=8)))
    waits, banned, ours = (table.submit(spec(4)) for _ in range(3))
    pilot = table.scheduler.state.pilots[PilotId(table.enrol(2, host="a").pilot)]
    table.enrol(2, host="b")
    pilot.set_aside({BagId(waits): 1})
    pilot.rests[BagId(banned)] = Rest(failures=3, until=table.now + 60)
    state = table.scheduler.state
    assert not before(state, table.now, pilot, state.bags[BagId(ours)])


def test_the_concurrency_of_a_bag_that_rests_there_still_limits() -> None:
    table = Table()
    high = table.submit(spec(4, policy=policy(rank="2", concurrency="1")))
    ours = table.submit(spec(4))
    hand = table.enrol(2, host="a")
    table.enrol(2, host="b")
    assert gets(hand) == [(high, 0)]
    state = table.scheduler.state
    pilot = state.pilots[PilotId(hand.pilot)]
    pilot.rests[BagId(high)] = Rest(failures=3, until=table.now + 60)
    found = before(state, table.now, pilot, state.bags[BagId(ours)])
    assert [rival.bag for rival in found] == [high]
    assert gets(hand, 2) == [], "neither bag has a task for it"


@pytest.mark.parametrize("more", [{}, {"rank": "1"}, {"requirements": 'Host.Name == "a"'}])
def test_a_task_with_one_last_chance_comes_in_its_turn(more: dict[str, object]) -> None:
    """Where its bag's requirements are not met, it comes after those whose requirements are."""
    table = Table()
    last_chance = fails_for_good(table, policy(failover_sites=("b",), **more))
    ours = table.submit(spec(4))
    hand = table.enrol(1, host="b", site="b")
    state = table.scheduler.state
    first = before(state, table.now, state.pilots[PilotId(hand.pilot)], state.bags[BagId(ours)])
    assert [one.bag for one in first] == ([] if "requirements" in more else [last_chance])
    assert gets(hand) == [(ours, 0) if "requirements" in more else (last_chance, 0)]


def test_a_task_that_waits_and_how_many_are_before_it() -> None:
    table = Table()
    bag = table.submit(spec(5))
    assert gets(table.enrol(1, host="a")) == [(bag, 0)]
    assert ask_of(table, bag, 1).summary == "it is next"
    assert ask_of(table, bag, 4).summary == "it waits behind 3 tasks of its bag"
    classes = table.submit(spec(5, policy=policy(requirements="Job.i < 3")))
    assert ask_of(table, classes, 4).summary == "it waits for a host"
