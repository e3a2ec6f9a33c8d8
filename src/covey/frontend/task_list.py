"""The tasks of a bag, each with its state, for `covey tasks` and Python."""

from collections.abc import Iterator
from typing import NamedTuple

from covey.client.client import Client
from covey.core.values.space import Scalar
from covey.frontend import bag_places, formats
from covey.wire import BagView, ResultQuery, ResultRow, RunningRow

STATES = ("waiting", "sent", "running", "done", "failed")
MOST_RUNNING = 100_000


class TaskLine(NamedTuple):
    """The state of a task. A waiting task has only its number."""

    task: int
    state: str
    values: list[Scalar] | None = None
    host: str = ""
    ending: str = ""
    seconds: float | None = None
    inputs_version: int | None = None


def select(source: bag_places.BagSource, bag: BagView, state: str | None) -> Iterator[TaskLine]:
    """The tasks in this state, or all tasks, in the order of their numbers."""
    if state == "failed":
        rows = bag_places.all_results(source, bag.id, ResultQuery(failed_only=True))
        return (_ended(row) for row in rows)
    if state == "done":
        rows = bag_places.all_results(source, bag.id)
        return (_ended(row) for row in rows if formats.state(row) == state)
    running: dict[int, RunningRow] = {}
    for row in _running(source, bag):  # if a task has several attempts, take one that has a slot
        if row.task not in running or row.state == "running":
            running[row.task] = row
    if state in ("running", "sent"):
        return (_out(row) for _, row in sorted(running.items()) if row.state == state)
    if state == "waiting":
        return _waiting(source, bag, running)
    return _every(source, bag, running)


def _waiting(
    source: bag_places.BagSource, bag: BagView, running: dict[int, RunningRow]
) -> Iterator[TaskLine]:
    """The waiting tasks. Results are not read: there may be millions of them."""
    after = -1
    while not bag.over:
        page = source.unfinished(bag.id, after, bag_places.PAGE)
        yield from (TaskLine(task, "waiting") for task in page if task not in running)
        if len(page) < bag_places.PAGE:
            return
        after = page[-1]


def _running(source: bag_places.BagSource, bag: BagView) -> list[RunningRow]:
    if bag.over or not isinstance(source, Client):
        return []
    return source.running(bag.id, MOST_RUNNING)


def _every(
    source: bag_places.BagSource, bag: BagView, running: dict[int, RunningRow]
) -> Iterator[TaskLine]:
    """All tasks. A number without a result is running, sent or waiting."""
    expected = 0
    for row in bag_places.all_results(source, bag.id):
        yield from _missing(bag, range(expected, row.task), running)
        yield _ended(row)
        expected = row.task + 1
    yield from _missing(bag, range(expected, bag.total), running)


def _missing(bag: BagView, numbers: range, running: dict[int, RunningRow]) -> Iterator[TaskLine]:
    idle = "not run" if bag.over else "waiting"
    for number in numbers:
        yield _out(running[number]) if number in running else TaskLine(number, idle)


def _ended(row: ResultRow) -> TaskLine:
    return TaskLine(
        row.task,
        formats.state(row),
        row.values,
        row.host,
        formats.ending(row),
        row.wall_seconds,
        row.inputs_version,
    )


def _out(row: RunningRow) -> TaskLine:
    return TaskLine(row.task, row.state, row.values, row.host, inputs_version=row.inputs_version)
