"""`covey logs`: what tasks printed, or print now (see `tail`)."""

from collections.abc import Iterator
from itertools import islice

import click

from covey.cli.results.tail import WantedTasks, follow_bag, follow_task
from covey.cli.shared.commands import Command, bag_argument, json_option, print_json, settings
from covey.client.client import Client
from covey.core.errors import NotFound
from covey.frontend import bag_places, formats
from covey.frontend.terminal import clean, echo, echo_output, say
from covey.wire import BagView, Output, ResultQuery, ResultRow

REMOVED = "(what it printed was removed with 'covey purge')"


@click.command(cls=Command)
@bag_argument
@click.argument("task", required=False, type=int)
@click.option("-f", "--follow", is_flag=True, help="Follow: print new output as it comes.")
@click.option("--failed", is_flag=True, help="Only failed tasks.")
@click.option(
    "--cause",
    "causes",
    multiple=True,
    metavar="TEXT",
    help="Only tasks that failed with this cause (its first words are enough); repeatable.",
)
@click.option(
    "--tail",
    type=click.IntRange(min=1),
    metavar="N",
    help="Only the last N lines of each task; with -f, of what it printed before.",
)
@click.option("--stdout", "only", flag_value="stdout", help="Only standard output.")
@click.option("--stderr", "only", flag_value="stderr", help="Only standard error.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=10,
    metavar="N",
    help="Without TASK: at most this many tasks.  [default: 10]",
)
@click.option(
    "--raw", is_flag=True, help="Keep colours and control characters, also on a terminal."
)
@json_option
def logs(
    bag: str,
    task: int | None,
    follow: bool,
    failed: bool,
    causes: tuple[str, ...],
    tail: int | None,
    only: str | None,
    limit: int,
    raw: bool,
    as_json: bool,
) -> None:
    """Print what tasks printed: one task, or several, those that failed first.

    On a terminal, colours are left out and control characters are shown as dots. A file or a pipe
    gets everything as it was printed.

    \b
    covey logs                    failed tasks of the latest bag, then others
    covey logs 3 17               task 17 of bag 3
    covey logs 3 17 --stdout      nothing but its standard output
    covey logs -f                 all tasks of the latest bag, live
    covey logs 3 --cause 'exit 1: ValueError' --tail 5
    """
    wanted = WantedTasks(only, tail, failed, causes, raw)
    config = settings()
    source = bag_places.reader(config)
    view = bag_places.find_bag(source, bag)
    if follow and not view.over:
        _follow(bag_places.client(config), view, task, wanted, as_json)
    elif task is not None:
        _one(source, view, task, wanted, as_json)
    else:
        _several(source, view, wanted, limit, as_json)


def _follow(
    client: Client, bag: BagView, task: int | None, wanted: WantedTasks, as_json: bool
) -> None:
    try:
        if task is None:
            follow_bag(client, bag, wanted, as_json)
        elif 0 <= task < bag.total:
            follow_task(client, bag, task, wanted, as_json)
        else:
            raise NotFound(_why_none(bag, task))
    except KeyboardInterrupt:
        say(f"bag {bag.id} keeps running")


def _several(
    source: bag_places.BagSource, bag: BagView, wanted: WantedTasks, limit: int, as_json: bool
) -> None:
    rows = list(islice(_failed_first(source, bag, wanted), limit + 1))
    more, rows = len(rows) > limit, rows[:limit]
    outputs = [(row, source.output(bag.id, row.task)) for row in rows]
    if as_json:
        print_json([_chosen(output, wanted) for _, output in outputs if output is not None])
        return
    for row, output in outputs:
        if output is not None:
            _print(_header(bag, row), output, wanted)
            if _removed(row, output):
                echo(REMOVED)
    _say_what_is_left(bag, wanted, len(rows), more)


def _one(
    source: bag_places.BagSource, bag: BagView, task: int, wanted: WantedTasks, as_json: bool
) -> None:
    output = source.output(bag.id, task)
    if output is None:
        raise NotFound(_why_none(bag, task))
    if as_json:
        print_json(_chosen(output, wanted))
        return
    attempts = source.attempts(bag.id, task)
    shown = [row for row in attempts if row.attempt == output.attempt]
    if wanted.only is not None:
        text = output.stdout if wanted.only == "stdout" else output.stderr
        echo_output(_last(text, wanted.tail), wanted.raw)
    else:
        _print(_header(bag, shown[-1]) if shown else f"task {task}", output, wanted)
    if shown and _removed(shown[-1], output):
        say(REMOVED)


def _removed(row: ResultRow, output: Output) -> bool:
    printed = row.stdout_bytes or row.stderr_bytes
    return bool(printed and not output.stdout and not output.stderr)


def _why_none(bag: BagView, task: int) -> str:
    if not 0 <= task < bag.total:
        return f"bag {bag.id} has tasks 0 to {bag.total - 1:,}; there is no task {task}"
    if bag.over:
        return f"task {task} of bag {bag.id} never ran"
    return f"task {task} of bag {bag.id} has not ended yet; to see it live: covey logs -f " + (
        f"{bag.id} {task}"
    )


def _failed_first(
    source: bag_places.BagSource, bag: BagView, wanted: WantedTasks
) -> Iterator[ResultRow]:
    if bag.failed:
        rows = bag_places.all_results(source, bag.id, ResultQuery(failed_only=True))
        yield from (row for row in rows if wanted.takes(row))
    if bag.done and not wanted.ends_only:
        yield from (row for row in bag_places.all_results(source, bag.id) if row.outcome == "ok")


def _header(bag: BagView, row: ResultRow) -> str:
    title = formats.task_title(bag.names, row.task, row.values)
    return clean(f"{title}: {formats.explained(row)} on {row.host}")


def _streams(output: Output, wanted: WantedTasks) -> Iterator[tuple[str, str]]:
    for name, text in (("stdout", output.stdout), ("stderr", output.stderr)):
        if wanted.only in (None, name):
            yield name, _last(text, wanted.tail)


def _last(text: str, lines: int | None) -> str:
    return text if lines is None else "".join(text.splitlines(keepends=True)[-lines:])


def _print(header: str, output: Output, wanted: WantedTasks) -> None:
    echo(f"==> {header}")
    for name, text in _streams(output, wanted):
        if text:
            if wanted.only is None:
                echo(f"--> {name}")
            echo_output(text if text.endswith("\n") else f"{text}\n", wanted.raw)


def _chosen(output: Output, wanted: WantedTasks) -> dict[str, object]:
    return {
        "task": output.task,
        "attempt": output.attempt,
        "outcome": output.outcome,
        **dict(_streams(output, wanted)),
    }


def _say_what_is_left(bag: BagView, wanted: WantedTasks, shown: int, more: bool) -> None:
    ended = bag.done + bag.failed
    if more and wanted.causes:
        say("there are more: see them with --limit")
    elif more:
        left = (bag.failed if wanted.failed else ended) - shown
        how = f"see them with --limit, or one: covey logs {bag.id} TASK"
        say(f"{left:,} more have {'failed' if wanted.failed else 'ended'}: {how}")
    elif not shown and wanted.ends_only:
        say(f"bag {bag.id} has no {'such ' if wanted.causes else ''}failed tasks")
    elif not ended and bag.over:
        say(f"bag {bag.id} is {bag.status}; none of its tasks has ended")
    elif not ended:
        say(f"no task of bag {bag.id} has ended yet; to see them live: covey logs -f {bag.id}")
