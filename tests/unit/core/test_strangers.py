"""A pilot speaks of what it was given: of nothing else it can make anybody believe anything."""

import pytest

from covey.core.actions import RecordEnds
from covey.core.events import PilotEnrolled
from covey.core.model import BagId, PilotId
from covey.pilot.messages import Answer, End, Enrol, Enrolled, Held
from tests.unit.core.table import Hand, Table, end, only, spec, writes


def enrol(table: Table, owner: str) -> Hand:
    message = Enrol(f"key-{table.requests:08}", "node", 2)
    event = PilotEnrolled(table.request(), message, "word", "digest", owner)
    return Hand(table, only(table.handle(event), Enrolled).pilot)


def held(answer: Answer) -> Held:
    task = answer.tasks[0]
    return Held(answer.epoch, task.sequence, task.bag, task.task)


@pytest.mark.parametrize("outcome", ["ok", "failed", "returned"])
@pytest.mark.parametrize("owner", ["eve", "ann", ""])
def test_nobody_ends_what_another_pilot_runs(owner: str, outcome: str) -> None:
    table = Table()
    bag = BagId(table.submit(spec(2, owner="ann")))
    given = enrol(table, "ann").ask(1)
    thief = enrol(table, owner)
    told = thief.sync(0, [end(given, 0, outcome)])
    state = table.scheduler.state
    assert not state.bags[bag].done
    assert not state.bags[bag].failed
    assert len(state.bags[bag].live) == 1
    assert [one.ends for one in writes(told, RecordEnds)] == [()]


@pytest.mark.parametrize("sequence", [1, 2, 10**6])
def test_nobody_ends_tasks_of_another_owners(sequence: int) -> None:
    """Whatever attempt they make up: one that was lost, or one that there never was."""
    table = Table()
    bag = BagId(table.submit(spec(4, owner="ann")))
    first = enrol(table, "ann")
    first.ask(1)
    table.later(table.scheduler.state.settings.lease_seconds + 60)
    assert not table.scheduler.state.bags[bag].live
    told = enrol(table, "eve").sync(0, [End(1, sequence, bag, 0, "ok", 0)])
    assert not table.scheduler.state.bags[bag].done
    assert [one.ends for one in writes(told, RecordEnds)] == [()]


def test_the_one_that_had_it_may_be_late() -> None:
    table = Table()
    bag = BagId(table.submit(spec(4, owner="ann")))
    first = enrol(table, "ann")
    given = first.ask(1)
    table.later(table.scheduler.state.settings.lease_seconds + 60)
    first.sync(0, [end(given)], held=[])
    assert list(table.scheduler.state.bags[bag].done) == [0]


@pytest.mark.parametrize("owner", ["eve", "ann", ""])
def test_nobody_takes_over_what_another_pilot_runs(owner: str) -> None:
    """It would have its files, and its result."""
    table = Table()
    table.submit(spec(2, owner="ann"))
    given = enrol(table, "ann").ask(1)
    thief = enrol(table, owner)
    thief.sync(0, held=[held(given)])
    assert not table.scheduler.state.pilots[PilotId(thief.pilot)].attempts


@pytest.mark.parametrize("sequence", [1, 10**6])
def test_nobody_holds_tasks_of_another_owners(sequence: int) -> None:
    table = Table()
    bag = table.submit(spec(4, owner="ann"))
    enrol(table, "ann").ask(1)
    table.later(table.scheduler.state.settings.lease_seconds + 60)
    thief = enrol(table, "eve")
    answer = only(thief.sync(1, held=[Held(1, sequence, bag, 0)]), Answer)
    assert [one.bag for one in answer.cancels] == [bag]
    assert not table.scheduler.state.pilots[PilotId(thief.pilot)].attempts


@pytest.mark.parametrize(("owner", "only_of"), [("eve", "eve"), ("", "")])
def test_of_a_bag_that_is_over_the_record_knows_whose_it_was(owner: str, only_of: str) -> None:
    table = Table()
    bag = BagId(table.submit(spec(1, owner="ann")))
    first = enrol(table, "ann")
    first.ask(0, [end(first.ask(1))])
    assert bag not in table.scheduler.state.bags
    told = enrol(table, owner).sync(0, [End(1, 1, bag, 0, "ok", 0)])
    assert [row.only_of for one in writes(told, RecordEnds) for row in one.ends] == [only_of]
