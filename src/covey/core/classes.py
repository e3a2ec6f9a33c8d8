"""Which class a task is of. Decisions are made per class and not per task.

The first rule of its bag that fits a task's values decides what it needs: class 0 is the bag's own
need, class i + 1 that of rule i. A policy that looks at parameters splits these further, by their
values, as tasks with new ones are met (`governing`).
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from covey.core.errors import InvalidBag
from covey.core.model import BagSpec, Condition, Need, Segment
from covey.core.numbering import names_in, readings_in
from covey.core.scalars import Reading, read
from covey.core.space import Scalar, check_scalar, shown

MOST_RULES = 100
MOST_CONDITIONS = 10_000  # in all rules of a bag, each of their values counted

Classify: TypeAlias = Callable[[Sequence[Scalar]], int]


def needs_of(spec: BagSpec) -> list[Need]:
    """By class."""
    return [spec.need, *(rule.need for rule in spec.rules)]


def classifier(spec: BagSpec, names: Sequence[str]) -> Classify | None:
    """From a task's values to its class; None if all tasks are of one."""
    if not spec.rules:
        return None
    place = {name: index for index, name in enumerate(names)}
    first = Segment(space=spec.space, rows=spec.rows)
    readings = dict(zip(names_in(first), readings_in(first), strict=True))

    def tests(conditions: Sequence[Condition]) -> list[tuple[int, Callable[[Scalar], bool]]]:
        return [(place[c.name], _test(c, readings.get(c.name, Reading.VALUE))) for c in conditions]

    rules = [tests(rule.when) for rule in spec.rules]

    def classify(values: Sequence[Scalar]) -> int:
        for number, rule in enumerate(rules, 1):
            if all(test(values[index]) for index, test in rule):
                return number
        return 0

    return classify


def check(spec: BagSpec, names: Sequence[str]) -> None:
    """Raise InvalidBag, with words, for needs and rules that make no sense."""
    if len(spec.rules) > MOST_RULES:
        raise InvalidBag(
            f"a bag has at most {MOST_RULES} rules for resources, not {len(spec.rules)}"
        )
    for need in needs_of(spec):
        _check_need(need)
    if sum(1 + len(one.values) for rule in spec.rules for one in rule.when) > MOST_CONDITIONS:
        raise InvalidBag(f"rules for resources have more than {MOST_CONDITIONS:,} values")
    for rule in spec.rules:
        if not rule.when:
            raise InvalidBag("a rule for resources needs a condition on a parameter")
        for condition in rule.when:
            if condition.name not in names:
                raise InvalidBag(
                    f"a rule for resources names the unknown parameter {shown(condition.name)!r}; "
                    f"parameters: {shown(', '.join(names)) or 'none'}"
                )
            for value in condition.values:
                check_scalar(condition.name, value)


def _check_need(need: Need) -> None:
    if not 1 <= need.cores <= 100_000:
        raise InvalidBag(
            f"a task needs at least one core, and at most 100,000, not {shown(str(need.cores))}"
        )
    for what, amount in (
        ("memory (in MB)", need.memory_mb),
        ("disk (in MB)", need.disk_mb),
        ("gpus", need.gpus),
    ):
        if not 0 <= amount < 10**9:
            raise InvalidBag(f"{what} must be between 0 and 999,999,999, not {shown(str(amount))}")
    if not 0 <= need.limit_seconds < 10**9:
        raise InvalidBag(
            f"a time limit must be between 0 and 999,999,999 s, not {need.limit_seconds}"
        )


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
    """1 and 1.0 and "1" are the same to whoever writes a rule."""
    try:
        return float(value)
    except (ValueError, OverflowError):  # a text, or a number of hundreds of digits
        return value
