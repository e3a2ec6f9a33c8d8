"""A pilot speaks of what it was given: of nothing else it can make anybody believe anything."""

import pytest

from covey.core.record.actions import RecordEnds, SavePilotStatus
from covey.core.record.events import PilotEnrolled, PilotLeft
from covey.core.record.model import BagId, PilotId
from covey.core.sites.site_table import MOST_WORDS
from covey.pilot.protocol.messages import Answer, End, Enrol, Enrolled, Held, Leave
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
    assert not state.bags[bag].places.done
    assert not state.bags[bag].places.failed
    assert len(state.bags[bag].places.live) == 1
    assert [one.ends for one in writes(told, RecordEnds)] == [()]


@pytest.mark.parametrize("sequence", [1, 2, 10**6])
def test_nobody_ends_tasks_of_another_owners(sequence: int) -> None:
    """Whatever attempt they make up: one that was lost, or one that there never was."""
    table = Table()
    bag = BagId(table.submit(spec(4, owner="ann")))
    first = enrol(table, "ann")
    first.ask(1)
    table.later(table.scheduler.state.settings.lease_seconds + 60)
    assert not table.scheduler.state.bags[bag].places.live
    told = enrol(table, "eve").sync(0, [End(1, sequence, bag, 0, "ok", 0)])
    assert not table.scheduler.state.bags[bag].places.done
    assert [one.ends for one in writes(told, RecordEnds)] == [()]


def test_the_one_that_had_it_may_be_late() -> None:
    table = Table()
    bag = BagId(table.submit(spec(4, owner="ann")))
    first = enrol(table, "ann")
    given = first.ask(1)
    table.later(table.scheduler.state.settings.lease_seconds + 60)
    first.sync(0, [end(given)], held=[])
    assert list(table.scheduler.state.bags[bag].places.done) == [0]


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


@pytest.mark.parametrize("outcome", ["ok", "failed"])
@pytest.mark.parametrize("live", [True, False])
def test_nobody_ends_what_another_pilot_gave_up(live: bool, outcome: str) -> None:
    table = Table()
    bag = BagId(table.submit(spec(1)))
    first = enrol(table, "")
    given = first.ask(1)
    table.later(table.scheduler.state.settings.lease_seconds + 60)
    if live:
        assert enrol(table, "").ask(1).tasks
    thief = enrol(table, "")
    told = thief.sync(0, [end(given, 0, outcome)], held=[], shown=[given.receipt])
    assert [one.ends for one in writes(told, RecordEnds)] == [()]
    assert not table.scheduler.state.bags[bag].places.done
    first.sync(0, [end(given)], held=[], shown=[given.receipt])
    assert bag not in table.scheduler.state.bags  # over: its one task is done


@pytest.mark.parametrize("owner", ["eve", ""])
def test_nobody_ends_tasks_of_bags_that_are_over(owner: str) -> None:
    table = Table()
    bag = BagId(table.submit(spec(1, owner="ann")))
    first = enrol(table, "ann")
    given = first.ask(1)
    first.ask(0, [end(given)])
    assert bag not in table.scheduler.state.bags
    lie = End(1, 1, bag, 0, "ok", 0)
    told = enrol(table, owner).sync(0, [lie], held=[], shown=[given.receipt])
    assert [one.ends for one in writes(told, RecordEnds)] == [()]


def test_the_reason_of_a_leave_is_kept_short() -> None:
    """It is recorded with every attempt that the pilot had: a long one would fill the disk."""
    table = Table()
    table.submit(spec(20, owner="ann"))
    pilot = enrol(table, "ann")
    assert len(pilot.ask(20).tasks) > 1
    told = table.handle(PilotLeft(table.request(), Leave(pilot.pilot, 1, "x" * 1_000_000)))
    (recorded,) = writes(told, RecordEnds)
    assert len(recorded.ends) > 1
    assert all(len(one.end.message) < 2 * MOST_WORDS for one in recorded.ends)
    assert all(len(one.reason) <= MOST_WORDS for one in writes(told, SavePilotStatus))
