"""Which bags come before this one, and why."""

from tests.unit.core.explain.test_bag_answers import ask, ask_of, kinds
from tests.unit.core.match.test_policies import gets, policy
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
    assert found.first_on == "a"
    assert [one.bag for one in ask(table, bobs).first] == [high, low]
    assert ask(table, high).reasons == []
    assert ask(table, high).summary.endswith("the next free hosts get them")


def test_a_task_that_waits_and_how_many_are_before_it() -> None:
    table = Table()
    bag = table.submit(spec(5))
    assert gets(table.enrol(1, host="a")) == [(bag, 0)]
    assert ask_of(table, bag, 1).summary == "it is next"
    assert ask_of(table, bag, 4).summary == "it waits behind 3 tasks of its bag"
    classes = table.submit(spec(5, policy=policy(requirements="Job.i < 3")))
    assert ask_of(table, classes, 4).summary == "it waits for a host"
