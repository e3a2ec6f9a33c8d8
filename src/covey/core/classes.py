"""Which class a task is of. Decisions are made per class and not per task.

The first rule of its bag that fits a task's values decides what it needs: class 0 is the bag's own
need, class i + 1 that of rule i. A policy that looks at parameters splits these further, by their
values, as tasks with new ones are met (`governing`).
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from covey.core.errors import InvalidBag
from covey.core.model import BagSpec, Condition, Need
from covey.core.space import Scalar

MOST_RULES = 100

Classify: TypeAlias = Callable[[Sequence[Scalar]], int]


def needs_of(spec: BagSpec) -> list[Need]:
    """By class."""
    return [spec.need, *(rule.need for rule in spec.rules)]


def classifier(spec: BagSpec, names: Sequence[str]) -> Classify | None:
    """From a task's values to its class; None if all tasks are of one."""
    if not spec.rules:
        return None
    place = {name: index for index, name in enumerate(names)}
    rules = [[(place[c.name], _test(c)) for c in rule.when] for rule in spec.rules]

    def classify(values: Sequence[Scalar]) -> int:
        for number, tests in enumerate(rules, 1):
            if all(test(values[index]) for index, test in tests):
                return number
        return 0

    return classify


def check(spec: BagSpec, names: Sequence[str]) -> None:
    """Raise InvalidBag, with words, for needs and rules that make no sense."""
    if len(spec.rules) > MOST_RULES:
        raise InvalidBag(f"at most {MOST_RULES} rules for resources, not {len(spec.rules)}")
    for need in needs_of(spec):
        _check_need(need)
    for rule in spec.rules:
        if not rule.when:
            raise InvalidBag("a rule for resources needs a condition on a parameter")
        for condition in rule.when:
            if condition.name not in names:
                raise InvalidBag(
                    f"a rule for resources asks for parameter {condition.name!r}; "
                    f"there are {', '.join(names) or 'none'}"
                )


def _check_need(need: Need) -> None:
    if not 1 <= need.cores <= 100_000:
        raise InvalidBag(f"a task needs at least one core, not {need.cores}")
    for what, amount in (
        ("memory", need.memory_mb),
        ("disk", need.disk_mb),
        ("number of GPUs", need.gpus),
    ):
        if not 0 <= amount < 10**9:
            raise InvalidBag(f"a {what} of {amount} makes no sense")
    if not 0 <= need.limit_seconds < 10**9:
        raise InvalidBag(f"a time limit of {need.limit_seconds} s makes no sense")


def _test(condition: Condition) -> Callable[[Scalar], bool]:
    wanted = {_plain(value) for value in condition.values}
    low = -float("inf") if condition.low is None else condition.low
    high = float("inf") if condition.high is None else condition.high
    bounded = condition.low is not None or condition.high is not None

    def test(value: Scalar) -> bool:
        if wanted and _plain(value) in wanted:
            return True
        return bounded and isinstance(value, int | float) and low <= value <= high

    return test


def _plain(value: Scalar) -> Scalar:
    """1 and 1.0 and "1" are the same to whoever writes a rule."""
    try:
        return float(value)
    except ValueError:
        return value
