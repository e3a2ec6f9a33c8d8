"""Finds the rule for a task's resources: the first rule whose conditions all hold."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from covey.core.record.model import BagSpec, Condition, Segment
from covey.core.record.task_numbers import names_in, readings_in
from covey.core.values.scalars import Reading, read
from covey.core.values.space import Scalar

RuleOf: TypeAlias = Callable[[Sequence[Scalar]], int]


def rule_finder(spec: BagSpec, names: Sequence[str]) -> RuleOf | None:
    """A function from a task's values to the number of its rule, from 1; 0 if no rule fits. None if
    the bag has no rules."""
    if not spec.rules:
        return None
    place = {name: index for index, name in enumerate(names)}
    first = Segment(space=spec.space, rows=spec.rows)
    readings = dict(zip(names_in(first), readings_in(first), strict=True))

    def tests(conditions: Sequence[Condition]) -> list[tuple[int, Callable[[Scalar], bool]]]:
        return [(place[c.name], _test(c, readings.get(c.name, Reading.VALUE))) for c in conditions]

    rules = [tests(rule.when) for rule in spec.rules]

    def rule_of(values: Sequence[Scalar]) -> int:
        for number, rule in enumerate(rules, 1):
            if all(test(values[index]) for index, test in rule):
                return number
        return 0

    return rule_of


def _test(condition: Condition, reading: str) -> Callable[[Scalar], bool]:
    wanted = {_plain(value) for value in condition.values}
    low = -float("inf") if condition.low is None else condition.low
    high = float("inf") if condition.high is None else condition.high
    bounded = condition.low is not None or condition.high is not None

    def test(value: Scalar) -> bool:
        if wanted and _plain(value) in wanted:
            return True
        if not bounded:
            return False
        number = read(value, reading)
        return isinstance(number, int | float) and low <= number <= high

    return test


def _plain(value: Scalar) -> Scalar:
    """1 and 1.0 and "1" are equal in a rule."""
    try:
        return float(value)
    except (ValueError, OverflowError):  # a text, or a number of hundreds of digits
        return value
