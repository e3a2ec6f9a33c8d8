"""`covey logs`: what tasks printed."""

from collections.abc import Iterator
from itertools import islice

import click

from covey.cli import formats, places
from covey.cli.base import Command, bag_argument, json_option, print_json, say, settings
from covey.core.errors import NotFound
from covey.wire import BagView, Output, ResultRow


@click.command(cls=Command)
@bag_argument
@click.argument("task", required=False, type=int)
@click.option("--stdout", "only", flag_value="stdout", help="Only standard output.")
@click.option("--stderr", "only", flag_value="stderr", help="Only standard error.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=10,
    show_default=True,
    metavar="N",
    help="Without TASK: at most so many tasks.",
)
@json_option
def logs(bag: str, task: int | None, only: str | None, limit: int, as_json: bool) -> None:
    """Print what tasks printed: one task, or several, those that failed first.

    \b
    covey logs                    failed tasks of the latest bag, then others
    covey logs 3 17               task 17 of bag 3
    covey logs 3 17 --stdout      nothing but its standard output
    """
    source = places.reader(settings())
    found = places.find_bag(source, bag)
    if task is not None:
        _one(source, found, task, only, as_json)
        return
    rows = list(islice(_failed_first(source, found), limit))
    outputs = [(row, source.output(found.id, row.task)) for row in rows]
    if as_json:
        print_json([_chosen(output, only) for _, output in outputs if output is not None])
        return
    for row, output in outputs:
        if output is not None:
            _print(_header(found, row), output, only)
    _say_what_is_left(found, len(rows))


def _one(source: places.Source, bag: BagView, task: int, only: str | None, as_json: bool) -> None:
    output = source.output(bag.id, task)
    if output is None:
        raise NotFound(_why_none(bag, task))
    if as_json:
        print_json(_chosen(output, only))
    elif only is not None:
        click.echo(output.stdout if only == "stdout" else output.stderr, nl=False)
    else:
        attempts = source.attempts(bag.id, task)
        shown = [row for row in attempts if row.attempt == output.attempt]
        _print(_header(bag, shown[-1]) if shown else f"task {task}", output, None)


def _why_none(bag: BagView, task: int) -> str:
    if not 0 <= task < bag.total:
        return f"bag {bag.id} has tasks 0 to {bag.total - 1:,}; there is no task {task}"
    if bag.over:
        return f"task {task} of bag {bag.id} never ran"
    return f"task {task} of bag {bag.id} has not ended yet; what it prints is known when it has"


def _failed_first(source: places.Source, bag: BagView) -> Iterator[ResultRow]:
    if bag.failed:
        yield from places.all_results(source, bag.id, failed_only=True)
    if bag.done:
        yield from (row for row in places.all_results(source, bag.id) if row.outcome == "ok")


def _header(bag: BagView, row: ResultRow) -> str:
    return f"{formats.task_title(bag.names, row)}: {formats.explained(row)} on {row.host}"


def _print(header: str, output: Output, only: str | None) -> None:
    click.echo(f"==> {header}")
    for name, text in (("stdout", output.stdout), ("stderr", output.stderr)):
        if only in (None, name) and text:
            if only is None:
                click.echo(f"--> {name}")
            click.echo(text, nl=not text.endswith("\n"))


def _chosen(output: Output, only: str | None) -> dict[str, object]:
    chosen: dict[str, object] = {
        "task": output.task,
        "attempt": output.attempt,
        "outcome": output.outcome,
    }
    for name, text in (("stdout", output.stdout), ("stderr", output.stderr)):
        if only in (None, name):
            chosen[name] = text
    return chosen


def _say_what_is_left(bag: BagView, shown: int) -> None:
    ended = bag.done + bag.failed
    if not ended:
        say(f"no task of bag {bag.id} has ended yet")
    elif shown < ended:
        more = f"{ended - shown:,} more have ended"
        say(f"{more}: see them with --limit, or one: covey logs {bag.id} TASK")
