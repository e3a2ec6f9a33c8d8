"""Rules that choose what a task needs by its parameters."""

from covey.core.record.model import (
    BagSpec,
    Condition,
    Need,
    Rule,
)
from covey.core.values.space import Axis, Product, Values
from tests.unit.core.bags.test_bag_requests import asked, enrol
from tests.unit.core.table import Table


def test_conditions_compare_numbers_as_numbers_and_text_as_text() -> None:
    rule = Rule(
        when=(Condition(name="m", values=("large",)), Condition(name="n", values=(1,))),
        need=Need(cores=2),
    )
    space = Product((Axis("m", Values(("small", "large"))), Axis("n", Values(("1", 1.0, 2)))))
    table = Table()
    table.submit(BagSpec(argv=("x",), space=space, rules=(rule,)))
    got = asked(enrol(table, 16), 16)
    assert {task.task for task in got if task.need} == {3, 4}
