"""`covey tasks`: each task of a bag, and how it stands."""

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

import click

from covey.cli import formats, places
from covey.cli.base import Command, bag_argument, json_option, print_json, say, settings
from covey.cli.tables import Column, render
from covey.cli.terminal import echo
from covey.client.client import Client
from covey.core.space import Scalar
from covey.wire import BagView, ResultQuery, ResultRow, RunningRow

STATES = ("waiting", "sent", "running", "done", "failed")
MOST_RUNNING = 100_000
COLUMNS = (
    Column("task", right=True),
    Column("state"),
    Column("ended"),
    Column("time", right=True),
    Column("host"),
    Column("inputs", right=True),
)


class Line(NamedTuple):
    """A task as it stands; a waiting one has nothing but its number."""

    task: int
    state: str
    values: list[Scalar] | None = None
    host: str = ""
    ending: str = ""
    seconds: float | None = None
    inputs_version: int | None = None


@click.command(cls=Command)
@bag_argument
@click.option("--state", type=click.Choice(STATES), help="Only tasks in this state.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=50,
    metavar="N",
    help="At most this many tasks.  [default: 50]",
)
@json_option
def tasks(bag: str, state: str | None, limit: int, as_json: bool) -> None:
    """List the tasks of a bag; the latest one if none is named.

    \b
    covey tasks --state failed
    covey tasks 3 --state running --json
    """
    source = places.reader(settings())
    found = places.find_bag(source, bag)
    lines = list(islice(select(source, found, state), limit + 1))
    more, lines = len(lines) > limit, lines[:limit]
    if as_json:
        print_json([_fields(found, line) for line in lines])
        return
    if lines:
        echo(render(_columns(found), [_row(found, line) for line in lines]))
    else:
        say(f"bag {found.id} has no {state or ''} tasks".replace("  ", " "))
    if more:
        say(f"there are more; see them with --limit {limit * 10}")


def select(source: places.Source, bag: BagView, state: str | None) -> Iterator[Line]:
    """In the order of their numbers; the running ones first where only those are asked for."""
    if state == "failed":
        rows = places.all_results(source, bag.id, ResultQuery(failed_only=True))
        return (_ended(row) for row in rows)
    if state == "done":
        rows = places.all_results(source, bag.id)
        return (_ended(row) for row in rows if formats.state(row) == state)
    running: dict[int, RunningRow] = {}
    for row in _running(source, bag):  # of several attempts of a task, one that has a slot
        if row.task not in running or row.state == "running":
            running[row.task] = row
    if state in ("running", "sent"):
        return (_out(row) for _, row in sorted(running.items()) if row.state == state)
    if state == "waiting":
        return _waiting(source, bag, running)
    return _every(source, bag, running)


def _waiting(source: places.Source, bag: BagView, running: dict[int, RunningRow]) -> Iterator[Line]:
    """Results are not looked at: there may be millions of them before the first one."""
    after = -1
    while not bag.over:
        page = source.unfinished(bag.id, after, places.PAGE)
        yield from (Line(task, "waiting") for task in page if task not in running)
        if len(page) < places.PAGE:
            return
        after = page[-1]


def _running(source: places.Source, bag: BagView) -> list[RunningRow]:
    if bag.over or not isinstance(source, Client):
        return []
    return source.running(bag.id, MOST_RUNNING)


def _every(source: places.Source, bag: BagView, running: dict[int, RunningRow]) -> Iterator[Line]:
    """All numbers; those between the results are running, sent or waiting."""
    expected = 0
    for row in places.all_results(source, bag.id):
        yield from _missing(bag, range(expected, row.task), running)
        yield _ended(row)
        expected = row.task + 1
    yield from _missing(bag, range(expected, bag.total), running)


def _missing(bag: BagView, numbers: range, running: dict[int, RunningRow]) -> Iterator[Line]:
    idle = "not run" if bag.over else "waiting"
    for number in numbers:
        yield _out(running[number]) if number in running else Line(number, idle)


def _ended(row: ResultRow) -> Line:
    return Line(
        row.task,
        formats.state(row),
        row.values,
        row.host,
        formats.ending(row),
        row.wall_seconds,
        row.inputs_version,
    )


def _out(row: RunningRow) -> Line:
    return Line(row.task, row.state, row.values, row.host, inputs_version=row.inputs_version)


def _columns(bag: BagView) -> list[Column]:
    parameters = [Column(name, right=True) for name in bag.names]
    first, *others = (
        column._replace(title=f"covey_{column.title}") if column.title in bag.names else column
        for column in COLUMNS
    )
    return [first, *parameters, *(others if bag.inputs.versions else others[:-1])]


def _row(bag: BagView, line: Line) -> list[str]:
    values = [""] * len(bag.names) if line.values is None else map(str, line.values)
    took = "" if line.seconds is None else formats.duration(line.seconds)
    row = [str(line.task), *values, line.state, line.ending, took, line.host]
    if bag.inputs.versions:
        row.append("" if line.inputs_version is None else f"version {line.inputs_version}")
    return row


def _fields(bag: BagView, line: Line) -> dict[str, object]:
    known = line.values is not None
    return {
        "task": line.task,
        "state": line.state,
        "values": dict(zip(bag.names, line.values or [], strict=known)) if known else None,
        "host": line.host,
        "ending": line.ending,
        "seconds": line.seconds,
        "inputs_version": line.inputs_version,
    }
