"""Every task is in exactly one place, without a scheduler."""

import pytest
from pyroaring import BitMap

from covey.core.record.attempts import Attempt
from covey.core.record.model import AttemptId, BagId, PilotId, TaskNumber
from covey.core.state.places import TaskPlaces


def attempt(task: int) -> Attempt:
    return Attempt(AttemptId(1, task + 1), BagId(1), TaskNumber(task), PilotId(1), 0.0)


def places() -> TaskPlaces:
    """Eight tasks of two classes, each somewhere else."""
    return TaskPlaces(
        next=8,
        done=BitMap([0]),
        failed=BitMap([1]),
        ready=[BitMap([2]), BitMap([3])],
        parked=BitMap([4]),
        aside=BitMap([5]),
        rescue=BitMap([6]),
        live={7: [attempt(7)]},
    )


def test_each_task_is_somewhere() -> None:
    found = places()
    found.check()
    assert found.waiting() == 5
    assert list(found.running()) == [7]


def test_a_late_attempt_of_a_task_that_has_its_result_is_no_second_place() -> None:
    found = places()
    found.live[0] = [attempt(0)]
    found.check()
    assert list(found.running()) == [7]


@pytest.mark.parametrize("task", range(2, 8))
def test_two_places_are_one_too_many(task: int) -> None:
    found = places()
    found.done.add(task)
    if task == 7:  # it has its result, and its attempt is told to stop
        found.check()
        found.done.remove(task)
        found.doubt.add(task)
    with pytest.raises(AssertionError, match=r"two places|also waiting"):
        found.check()


def test_a_lost_task_is_noticed_unless_the_bag_is_cancelled() -> None:
    found = places()
    found.hold(3)
    with pytest.raises(AssertionError, match="lost or invented"):
        found.check()
    found.check(all_there=False)


def test_held_tasks_do_not_wait() -> None:
    found = places()
    found.hold(3)
    found.hold(6)
    found.hold(7)
    assert found.waiting() == 3
    found.hold_all()
    assert found.waiting() == 0
    assert list(found.done) == [0]


def test_what_is_set_aside_waits_in_another_place() -> None:
    found = places()
    found.set_aside(3, 6)
    found.check()
    assert [list(ready) for ready in found.ready] == [[2], []]
    assert list(found.aside) == [3, 5]


def test_merged_classes() -> None:
    found = places()
    found.merge_classes()
    found.check()
    assert [list(ready) for ready in found.ready] == [[2, 3], []]
