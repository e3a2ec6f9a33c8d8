"""Deadlines: when a task that runs is sent to somebody else as well."""

from covey.core.record.model import BagId, PolicySpec, TaskNumber
from tests.unit.core.protocol.test_pilots import held
from tests.unit.core.protocol.test_recovery import restarted
from tests.unit.core.table import Hand, Table, spec


def attempts_of(table: Table) -> int:
    return len(table.scheduler.state.bags[BagId(1)].places.live.get(TaskNumber(0), ()))


def test_after_a_restart_deadlines_wait_until_all_pilots_are_heard() -> None:
    """One that has not spoken yet may have a newer attempt of the task."""
    before = Table()
    before.submit(spec(1, policy=PolicySpec(deadline="10")))
    first, second = (
        before.enrol(key="key-first", host="a"),
        before.enrol(key="key-second", host="b"),
    )
    given = first.ask(1)
    second.sync(1)
    before.later(11)
    assert attempts_of(before) == 2, "the first has had its time"
    table = restarted(before)
    adopt = table.scheduler.state.settings.adopt_seconds
    one, other = Hand(table, first.pilot), table.enrol(key="key-third", host="c")
    one.sync(0, held=[held(given)], shown=[given.receipt])
    other.sync(1)
    table.later(20)
    assert attempts_of(table) == 1, "the second pilot has not been heard"
    for _ in range(int(adopt // 10)):
        table.later(10)
        one.sync(0)
        other.sync(1)
    assert attempts_of(table) == 2
