"""`covey tasks`: the tasks of a bag, with their states."""

from itertools import islice

import click

from covey.cli.shared.commands import Command, bag_argument, json_option, print_json, settings
from covey.frontend import bag_places, formats
from covey.frontend.tables import Column, render
from covey.frontend.task_list import STATES, TaskLine, select
from covey.frontend.terminal import echo, say
from covey.wire import BagView

COLUMNS = (
    Column("task", right=True),
    Column("state"),
    Column("ended"),
    Column("time", right=True),
    Column("host"),
    Column("inputs", right=True),
)


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
    source = bag_places.reader(settings())
    view = bag_places.find_bag(source, bag)
    lines = list(islice(select(source, view, state), limit + 1))
    more, lines = len(lines) > limit, lines[:limit]
    if as_json:
        print_json([_fields(view, line) for line in lines])
        return
    if lines:
        echo(render(_columns(view), [_row(view, line) for line in lines]))
    else:
        say(f"bag {view.id} has no {state or ''} tasks".replace("  ", " "))
    if more:
        say(f"there are more; see them with --limit {limit * 10}")


def _columns(bag: BagView) -> list[Column]:
    parameters = [Column(name, right=True) for name in bag.names]
    first, *others = (
        column._replace(title=f"covey_{column.title}") if column.title in bag.names else column
        for column in COLUMNS
    )
    return [first, *parameters, *(others if bag.inputs.versions else others[:-1])]


def _row(bag: BagView, line: TaskLine) -> list[str]:
    values = [""] * len(bag.names) if line.values is None else map(str, line.values)
    took = "" if line.seconds is None else formats.duration(line.seconds)
    row = [str(line.task), *values, line.state, line.ending, took, line.host]
    if bag.inputs.versions:
        row.append("" if line.inputs_version is None else f"version {line.inputs_version}")
    return row


def _fields(bag: BagView, line: TaskLine) -> dict[str, object]:
    has_values = line.values is not None
    return {
        "task": line.task,
        "state": line.state,
        "values": dict(zip(bag.names, line.values or [], strict=has_values))
        if has_values
        else None,
        "host": line.host,
        "ending": line.ending,
        "seconds": line.seconds,
        "inputs_version": line.inputs_version,
    }
