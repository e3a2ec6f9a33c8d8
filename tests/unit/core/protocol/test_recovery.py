"""After a restart a pilot is believed only what it can prove."""

import pytest
from msgspec.structs import replace

from covey.core.record.actions import RecordEnds, Write
from covey.core.record.model import BagId, PilotId, PolicySpec
from covey.pilot.protocol.messages import Answer, End, Held
from tests.memory_store.memory_record import MemoryRecord
from tests.unit.core.protocol.test_pilots import enrol, held
from tests.unit.core.table import Hand, Table, end, only, replies, spec, writes


def restarted(table: Table, *, with_pilots: bool = True) -> Table:
    """The next server, with what was durable."""
    record = MemoryRecord({})
    record.open()
    record.apply([one.change for one in table.actions if isinstance(one, Write)])
    snapshot = record.open()
    return Table(snapshot=snapshot if with_pilots else replace(snapshot, pilots=()))


@pytest.mark.parametrize("outcome", ["ok", "failed"])
@pytest.mark.parametrize("owner", ["eve", "ann", ""])
def test_nobody_ends_what_another_pilot_had_before_a_restart(owner: str, outcome: str) -> None:
    """By the true id of the other's attempt, or by an older one that never was."""
    before = Table()
    bag = BagId(before.submit(spec(2, owner="ann")))
    honest, thief = enrol(before, "ann"), enrol(before, owner)
    given = honest.ask(1)
    table = restarted(before)
    lies = [end(given, 0, outcome), End(0, 1, bag, 0, outcome, 0), End(1, 99, bag, 1, outcome, 0)]
    told = Hand(table, thief.pilot).sync(0, lies, held=[], shown=[])
    state = table.scheduler.state
    assert [one.ends for one in writes(told, RecordEnds)] == [()]
    assert not state.bags[bag].places.done
    assert not state.bags[bag].places.failed
    Hand(table, honest.pilot).sync(0, [end(given)], held=[], shown=[given.receipt])
    assert list(state.bags[bag].places.done) == [0]


@pytest.mark.parametrize("owner", ["ann", ""])
def test_nobody_holds_what_another_pilot_had_before_a_restart(owner: str) -> None:
    """It would have its files."""
    before = Table()
    before.submit(spec(2, owner="ann"))
    honest, thief = enrol(before, "ann"), enrol(before, owner)
    given, own = honest.ask(1), thief.ask(1)
    table = restarted(before)
    lie = Hand(table, thief.pilot)
    lie.sync(0, held=[held(given), held(own)], shown=[own.receipt, given.receipt])
    state = table.scheduler.state
    assert list(state.pilots[PilotId(thief.pilot)].attempts) == [(1, own.tasks[0].sequence)]
    Hand(table, honest.pilot).sync(0, held=[held(given)], shown=[given.receipt])
    assert list(state.pilots[PilotId(honest.pilot)].attempts) == [(1, given.tasks[0].sequence)]


def test_a_receipt_is_for_its_own_tasks_only() -> None:
    """An attempt that it really had is no proof for another task."""
    before = Table()
    bag = BagId(before.submit(spec(3)))
    thief = enrol(before, "")
    own = thief.ask(1)
    table = restarted(before)
    sequence = own.tasks[0].sequence
    lie = End(1, sequence, bag, 1, "ok", 0)
    told = Hand(table, thief.pilot).sync(
        0, [lie], held=[Held(1, sequence, bag, 2)], shown=[own.receipt]
    )
    assert [one.ends for one in writes(told, RecordEnds)] == [()]
    assert not table.scheduler.state.pilots[PilotId(thief.pilot)].attempts


def test_a_pilot_that_was_forgotten_still_has_its_receipts() -> None:
    """It enrols again, has another number, and its result counts."""
    before = Table()
    bag = BagId(before.submit(spec(2)))
    first = before.enrol(key="key-of-one-pilot")
    given = first.ask(1)
    table = restarted(before, with_pilots=False)
    again = table.enrol(key="key-of-one-pilot")
    assert again.pilot != first.pilot
    again.sync(0, [end(given)], held=[], shown=[given.receipt])
    assert list(table.scheduler.state.bags[bag].places.done) == [0]


def test_what_is_held_without_a_receipt_is_not_repeated_if_it_must_not_be() -> None:
    """The pilot says the truth, but cannot prove it."""
    before = Table()
    bag = BagId(before.submit(spec(1, idempotent=False)))
    old = enrol(before, "")
    given = old.ask(1)
    table = restarted(before)
    said = Hand(table, old.pilot).sync(1, held=[held(given)], shown=[])
    assert [one.sequence for one in only(said, Answer).cancels] == [given.tasks[0].sequence]
    assert not only(said, Answer).tasks
    rows = [row for one in writes(said, RecordEnds) for row in one.ends]
    assert [row.end.outcome for row in rows] == ["lost"]
    assert bag not in table.scheduler.state.bags


@pytest.mark.parametrize(
    ("retries", "policy"),
    [(5, PolicySpec()), (0, PolicySpec(only_sites=("near",), failover_sites=("far",)))],
)
def test_an_old_failure_settles_no_doubt(retries: int, policy: PolicySpec) -> None:
    """Another pilot, not heard yet, has a newer attempt. The task does not go out beside it, for a
    last chance neither."""
    before = Table(lease_seconds=10.0)
    before.submit(spec(1, retries=retries, policy=policy))
    silent = before.enrol(host="a", site="near")
    older = silent.ask(1)
    before.later(11)
    second = before.enrol(host="b", site="near")
    newer = second.ask(1)
    table = restarted(before)
    fresh = table.enrol(key="key-of-fresh", host="c", site="far")
    told = fresh.sync(1)
    failure = end(older, 0, "failed")
    told += Hand(table, silent.pilot).sync(0, [failure], held=[], shown=[older.receipt])
    told += table.later(2)
    told += Hand(table, second.pilot).sync(0, held=[held(newer)], shown=[newer.receipt])
    told += table.later(2)
    assert not [task for answer in replies(told, Answer) for task in answer.tasks]
