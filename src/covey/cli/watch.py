"""`covey watch`, and what `covey run` shows until a bag is over."""

import sys
import time
from typing import TYPE_CHECKING

import click

from covey.cli import formats, places, progress
from covey.cli.base import Command, bag_argument, json_option, leave, print_json, say, settings
from covey.cli.tables import clean, fit, terminal_width
from covey.core.errors import NotFound

if TYPE_CHECKING:
    from covey.client.client import Client
    from covey.wire import BagView, ResultRow

LOOKED_AT = 20
SHOWN = 5
NO_FILE = ("No such file or directory", "can't open file", "cannot open")


@click.command(cls=Command)
@bag_argument
@json_option
def watch(bag: str, as_json: bool) -> None:
    """Follow a bag until it is over; the latest one if none is named.

    An unfinished bag without a server gets one, and goes on. With --json, prints
    a line of JSON whenever something has changed.

    \b
    covey watch
    covey watch 3
    """
    config = settings()
    source = places.reader(config)
    found = places.find_bag(source, bag)
    if found.over:
        leave(finish(source, found, as_json))
    leave(follow(places.client(config), found.id, as_json=as_json, stream=as_json))


def follow(client: "Client", bag: int, *, as_json: bool = False, stream: bool = False) -> int:
    """Show a bag until it is over; the exit status. With `stream`, every change is printed."""
    shown: progress.Progress = progress.Silent() if as_json else progress.for_stream()
    try:
        view = _until_over(client, bag, shown, stream)
    except KeyboardInterrupt:
        shown.close()
        say(f"bag {bag} goes on without you: covey watch {bag} | covey cancel {bag}")
        return 0
    finally:
        shown.close()
    return finish(client, view, as_json)


def _until_over(client: "Client", bag: int, shown: progress.Progress, stream: bool) -> "BagView":
    seen, last = -1, None
    while True:
        view = client.bag(bag, wait_seconds=shown.wait_seconds, seen=seen)
        if view is None:
            raise NotFound(f"bag {bag} is gone; 'covey bags' lists what there is")
        if stream and view != last and not view.over:
            print_json(view)
            sys.stdout.flush()
        shown.show(view)
        if view.over:
            return view
        seen, last = view.done + view.failed, view
        time.sleep(shown.poll_seconds)


def finish(source: places.Source, bag: "BagView", as_json: bool) -> int:
    """The last words about a bag; the exit status."""
    if as_json:
        print_json(bag)
    else:
        click.echo(summary(bag))
        if bag.failed:
            tell_failures(source, bag)
        elif bag.status == "finished":
            say(f"see: covey results {bag.id}")
    return 1 if bag.failed or bag.status == "cancelled" else 0


def summary(bag: "BagView") -> str:
    parts = [f"{formats.count(bag.done, 'task')} done"]
    if bag.failed:
        parts.append(f"{bag.failed:,} failed")
    missing = bag.total - bag.done - bag.failed
    if missing:
        parts.append(f"{missing:,} not run")
    took = f" in {formats.duration(bag.ended - bag.created)}" if bag.ended else ""
    return f"{formats.title(bag)} {bag.status}: {', '.join(parts)}{took}"


def tell_failures(source: places.Source, bag: "BagView") -> None:
    """The first failures, those that look alike together, and what to do next."""
    rows = source.results(bag.id, limit=LOOKED_AT, failed_only=True)
    alike: dict[tuple[str, str], list[ResultRow]] = {}
    for row in rows:
        alike.setdefault((formats.explained(row), _last_words(source, bag, row)), []).append(row)
    for (ending, words), group in list(alike.items())[:SHOWN]:
        click.echo(_failure(bag, ending, words, group), err=True)
    if bag.failed > len(rows):
        click.echo(f"  … and {bag.failed - len(rows):,} more failed", err=True)
    if any(sign in words for _, words in alike for sign in NO_FILE):
        say("tasks run in empty directories of their own; 'covey run --chdir .' runs them here")
    say(f"see: covey logs {bag.id}   again: covey retry --failed {bag.id}")


def _failure(bag: "BagView", ending: str, words: str, group: "list[ResultRow]") -> str:
    first = group[0]
    others = f" (and {formats.count(len(group) - 1, 'task')} like it)" if len(group) > 1 else ""
    line = f"  {formats.task_title(bag.names, first)}: {ending} on {first.host}{others}"
    if words:
        line += f": {words}"
    return fit(clean(line), max(terminal_width() or 400, 60))


def _last_words(source: places.Source, bag: "BagView", row: "ResultRow") -> str:
    output = source.output(bag.id, row.task) if row.stderr_bytes else None
    return formats.last_line(output.stderr) if output is not None else ""
