"""Classes of tasks: numbers of needs, splits, and whose turn it is."""

import pytest

from covey.core.record.model import Need
from covey.core.state.classes import TaskClasses

SHORT, LONG = Need(limit_seconds=10.0), Need(limit_seconds=500.0)


def test_needs_have_numbers() -> None:
    classes = TaskClasses()
    classes.add_need(SHORT)
    classes.add_need(LONG)
    classes.check()
    assert [(one.need, one.number) for one in classes] == [(SHORT, 0), (LONG, 1)]
    assert classes.numbers == {SHORT: 0, LONG: 1}
    assert classes.by_number == [0, 1]


def test_a_split_class_has_the_same_need() -> None:
    classes = TaskClasses()
    classes.add_need(SHORT)
    assert classes.split(0, ["a"]) == 1
    classes.add_need(LONG)
    assert classes.split(1, ["b"]) == 3
    classes.check()
    assert [one.number for one in classes] == [0, 0, 1, 1]
    assert [one.sample for one in classes] == [None, ["a"], None, ["b"]]
    assert classes.by_number == [0, 2]


@pytest.mark.parametrize(("long_first", "order"), [(True, [1, 2, 0]), (False, [0, 1, 2])])
def test_turns(long_first: bool, order: list[int]) -> None:
    classes = TaskClasses(long_first=long_first)
    classes.add_need(SHORT)
    classes.add_need(LONG)
    classes.split(1, ["a"])
    classes.check()
    assert [kind for _, kind in classes.turns] == order
    assert classes.long_first is long_first


def test_a_class_without_a_turn_is_noticed() -> None:
    classes = TaskClasses()
    classes.add_need(SHORT)
    classes.turns.clear()
    with pytest.raises(AssertionError):
        classes.check()
