"""Why a task gets another attempt, or none."""

from collections.abc import Callable

import pytest

from covey.core.record.events import CloseRequested
from covey.core.record.model import BagId
from tests.unit.core.explain.test_bag_answers import ask, ask_of
from tests.unit.core.match.test_policies import draw, gets, policy
from tests.unit.core.table import Table, spec


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"idempotent": False}, "must not run twice"),
        ({}, "does not ask for it"),
        ({"open": True, "policy": policy(replication="true")}, "it is open"),
        ({"policy": policy(replication="true", tail="JobsLeft < 1")}, "where JobsLeft is 1"),
    ],
)
def test_why_there_are_no_replicas(fields: dict[str, object], told: str) -> None:
    table = Table()
    bag = table.submit(spec(1, **fields))
    gets(table.enrol())
    found = ask(table, bag).replication
    assert not found.active
    assert told in found.text
    of_task = ask_of(table, bag, 0).replication
    assert of_task is not None
    assert told in of_task.text


def test_why_some_tasks_get_another_attempt() -> None:
    table = Table(lease_seconds=1e9)
    wanted = policy(replication='Job.Replica1.Host.Name == "a"', max_replicas="2")
    bag = table.submit(spec(2, policy=wanted, open=True))
    for name in "ab":
        gets(table.enrol(host=name))
    table.handle(CloseRequested(table.request(), BagId(bag)))
    found = ask(table, bag)
    assert found.tail
    assert (found.replication.wanted, found.replication.refused) == (1, 1)
    assert found.replication.values == {"Job.Replica1.Host.Name": '"b"'}
    of_task: Callable[[int], str] = lambda task: ask_of(table, bag, task).replication.text  # type: ignore[union-attr] # noqa: E731
    assert "wants another attempt" in of_task(0)
    assert of_task(1) == "replication is not true for it"
    draw(table)
    assert of_task(0) == "it is offered to hosts with a free slot"
    assert gets(table.enrol(host="c")) == [(bag, 0)]
    assert of_task(0) == "it has as many attempts as max_replicas allows"
    twice = ask_of(table, bag, 0)
    assert twice.summary == "it runs on a, c, 2 attempts"
    assert [one.replica for one in twice.running] == [False, True]
    assert ask(table, bag).replication.full == 1


def test_a_deadline_that_has_passed() -> None:
    table = Table(lease_seconds=1e9)
    bag = table.submit(spec(1, policy=policy(deadline="30s")))
    gets(table.enrol(host="slow"))
    (running,) = ask_of(table, bag, 0).running
    assert (running.deadline, running.expired) == (table.now + 30.0, False)
    table.later(31)
    found = ask_of(table, bag, 0)
    assert found.running[0].expired
    assert found.replication is not None
    assert found.replication.text == "it is past its deadline, and offered to other hosts"
