"""Finds the class of a task. Decisions are made per class and not per task.

A class is a combination of resources (a need). Needs have numbers, and pilots use the same numbers.
If no resource comes from parameters, 0 is the bag's own need and i + 1 that of rule i; otherwise
each need that some task has is a class (`task_needs`). A policy that reads parameters splits
classes further, by values of the parameters, when tasks with new values are met (`bag_policy`)."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

from msgspec.structs import astuple

from covey.core.errors import InvalidBag
from covey.core.record import task_needs
from covey.core.record.model import GIVEN, LONG_FIRST, BagSpec, Need, Segment
from covey.core.record.resource_rules import rule_finder
from covey.core.record.task_numbers import check_segment, names_in, tasks_in
from covey.core.values.space import Scalar, check_scalar, shown
from covey.pilot.protocol.messages import Need as NeedMessage

MOST_RULES = 100
MOST_CONDITIONS = 300  # in all rules of a bag: any task may have to be compared with all of them
MOST_VALUES = 10_000  # in all these conditions

Classify: TypeAlias = Callable[[Sequence[Scalar]], int]


def needs_of(spec: BagSpec, more: Iterable[Segment] = ()) -> list[Need]:
    """The needs of a bag, by number. `more` are the segments that were appended."""
    if not task_needs.varies(spec):
        return [spec.need, *(rule.need for rule in spec.rules)]
    needs = dict.fromkeys(spec.task_needs or (spec.need,))
    for segment in more:
        needs.update(dict.fromkeys(segment.task_needs))
    return list(needs)


def need_message(need: Need) -> NeedMessage:
    """The need as a message to pilots."""
    return NeedMessage(*astuple(need))


def classifier(spec: BagSpec, names: Sequence[str], numbers: Mapping[Need, int]) -> Classify | None:
    """A function from a task's values to the number of its need; None if all tasks have the same
    need. `numbers` are those of needs that come from parameters; later needs are added to it."""
    if not task_needs.varies(spec):
        return rule_finder(spec, names)
    need_of = task_needs.need_reader(spec, names)
    return lambda values: numbers[need_of(values)]


def find_needs(
    spec: BagSpec,
    segment: Segment,
    rows: Iterable[Sequence[Scalar]] = (),
    most: int = task_needs.MOST_LOOKED,
) -> tuple[Need, ...]:
    """`task_needs` of a segment of such a bag; empty if no resource comes from parameters.
    `rows` are those of its file. Looks at no more than `most` combinations of values. Raises
    InvalidBag."""
    if not task_needs.varies(spec):
        return ()
    check_segment(segment, may_be_empty=True)
    _check_rules(spec, names_in(segment))
    return task_needs.find(spec, segment, rows, most)


def check(spec: BagSpec, segment: Segment) -> None:
    """Raise InvalidBag for needs and rules with mistakes."""
    _check_rules(spec, names_in(segment))
    check_task_needs(spec, segment, spec.task_needs, {})


def check_task_needs(
    spec: BagSpec, segment: Segment, found: Sequence[Need], known: Mapping[Need, int]
) -> None:
    """Raise InvalidBag unless tasks with the needs `found` can be added to a bag that has the
    `known` classes."""
    if not task_needs.varies(spec):
        return
    if not found and tasks_in(segment):
        raise InvalidBag("task_needs must list what the tasks need (the server fills this in)")
    for need in found:
        _check_need(need)
    if len({**known, **dict.fromkeys(found, 0)}) > task_needs.MOST_CLASSES:
        raise task_needs.too_many_classes(spec, "its tasks have")


def _check_rules(spec: BagSpec, names: Sequence[str]) -> None:
    if spec.order not in (LONG_FIRST, GIVEN):
        raise InvalidBag(f"order is {LONG_FIRST} or {GIVEN}, not {shown(spec.order)!r}")
    if len(spec.rules) > MOST_RULES:
        raise InvalidBag(
            f"a bag has at most {MOST_RULES} rules for resources, not {len(spec.rules)}"
        )
    for need in (spec.need, *(rule.need for rule in spec.rules)):
        _check_need(need)
    conditions = [condition for rule in spec.rules for condition in rule.when]
    if len(conditions) > MOST_CONDITIONS:
        raise InvalidBag(
            f"a bag's rules for resources have at most {MOST_CONDITIONS} conditions, not "
            f"{len(conditions):,}"
        )
    if sum(len(condition.values) for condition in conditions) > MOST_VALUES:
        raise InvalidBag(
            f"the conditions of a bag's rules for resources have at most {MOST_VALUES:,} values"
        )
    task_needs.check(spec, names)
    known = frozenset(names)
    for rule in spec.rules:
        if not rule.when:
            raise InvalidBag("a rule for resources needs a condition on a parameter")
        for condition in rule.when:
            if condition.name not in known:
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
