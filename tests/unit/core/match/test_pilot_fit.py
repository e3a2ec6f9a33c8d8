"""A task goes only to pilots that have what it needs."""

from covey.core.record.model import (
    BagSpec,
    Condition,
    Need,
    Rule,
)
from tests.unit.core.bags.test_bag_requests import asked, enrol
from tests.unit.core.table import Table, spec


def sized() -> BagSpec:
    """Tasks 2 and 3 of four need two cores."""
    rule = Rule(when=(Condition(name="i", low=2),), need=Need(cores=2, memory_mb=100))
    return spec(rules=(rule,))


def test_a_task_goes_only_where_it_fits() -> None:
    table = Table()
    table.submit(sized())
    small = enrol(table, 1)
    assert [task.task for task in asked(small, 5)] == [0]
    large = enrol(table, 4)
    got = asked(large, 4)
    assert [(task.task, task.need) for task in got] == [(1, 0), (2, 1)], "four slots: 1 + 2"


def test_no_more_is_sent_than_fits_by_memory_or_gpus() -> None:
    table = Table()
    table.submit(spec(8, need=Need(memory_mb=600)))
    host = enrol(table, 4, memory_mb=1000)
    assert len(asked(host, 4)) == 1, "each takes more than half of the memory"
    blind = Table()
    blind.submit(spec(8, need=Need(gpus=1)))
    assert not asked(enrol(blind, 2), 2), "no GPUs there"
    assert len(asked(enrol(blind, 4, gpus=2), 4)) == 2, "two GPUs, two tasks"


def test_a_pilot_searches_beyond_what_it_cannot_run() -> None:
    table = Table(chunk=4)
    rule = Rule(when=(Condition(name="i", high=29),), need=Need(cores=8))
    table.submit(spec(40, rules=(rule,)))
    small = enrol(table, 1)
    assert [task.task for task in asked(small, 1)] == [30]
