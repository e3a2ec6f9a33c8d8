"""What is remembered of failures: by task and by host, until the task is done."""

import pytest

from covey.core.record.model import BagSpec
from covey.core.state.failures import MOST_HOSTS, TaskFailures
from covey.core.values.space import ONE_TASK


def test_hosts_are_known_by_task_and_tasks_by_host() -> None:
    failures = TaskFailures()
    failures.note_host(1, "left", 5.0, last_try=False)
    failures.note_host(1, "right", 7.0, last_try=True)
    failures.note_host(2, "left", 8.0, last_try=False)
    failures.check()
    assert failures.failed_on[1].hosts == ("left", "right")
    assert failures.failed_on[1].at == 7.0
    assert {host: list(tasks) for host, tasks in failures.avoided.items()} == {
        "left": [1, 2],
        "right": [1],
    }
    assert list(failures.last_tries) == [1]


def test_a_task_that_is_done_leaves_nothing() -> None:
    failures = TaskFailures(tries={1: 2}, overtimes={1: 1}, short={1: 1}, losses={1: 3, 2: 1})
    failures.note_host(1, "left", 5.0, last_try=True)
    failures.forget(1)
    failures.check()
    assert failures.losses == {2: 1}
    assert not any((failures.tries, failures.overtimes, failures.short))
    assert not any((failures.failed_on, failures.avoided, failures.last_tries))


def test_few_hosts_are_remembered() -> None:
    failures = TaskFailures()
    for number in range(2 * MOST_HOSTS):
        failures.note_host(1, f"host {number}", float(number), last_try=False)
    failures.check()
    assert len(failures.failed_on[1].hosts) == len(failures.avoided) == MOST_HOSTS


def test_when_a_task_has_no_more_chances() -> None:
    spec = BagSpec(argv=("true",), space=ONE_TASK, retries=2, overtimes=1)
    failures = TaskFailures(tries={1: 2, 2: 3}, overtimes={3: 1, 4: 2})
    assert [task for task in range(6) if failures.spent(task, spec)] == [2, 4]
    assert failures.grown


def test_a_host_that_nobody_failed_on_is_noticed() -> None:
    failures = TaskFailures()
    failures.note_host(1, "left", 5.0, last_try=False)
    del failures.failed_on[1]
    with pytest.raises(AssertionError, match="avoided"):
        failures.check()
