"""`covey watch`; `covey run` uses it, too, to show a bag until it is over."""

import sys
import time
from typing import TYPE_CHECKING

import click

from covey.cli.results import failures
from covey.cli.shared.commands import (
    Command,
    bag_argument,
    json_option,
    leave,
    print_json,
    settings,
)
from covey.core.errors import NotFound
from covey.frontend import bag_places, formats, progress
from covey.frontend.progress import summary
from covey.frontend.terminal import echo, say

if TYPE_CHECKING:
    from covey.client.client import Client
    from covey.wire import BagView


@click.command(cls=Command)
@bag_argument
@json_option
def watch(bag: str, as_json: bool) -> None:
    """Follow a bag until it is over; the latest one if none is named.

    If no server is running, one is started and the bag continues. With --json, prints
    a line of JSON whenever something has changed. The exit status is 1 if a task
    failed, or if the bag was cancelled or is paused.

    \b
    covey watch
    covey watch 3
    """
    config = settings()
    source = bag_places.reader(config)
    view = bag_places.find_bag(source, bag)
    if view.over or view.status == "paused":
        leave(finish(source, view, as_json))
    leave(follow(bag_places.client(config), view.id, as_json=as_json, stream=as_json))


def follow(client: "Client", bag: int, *, as_json: bool = False, stream: bool = False) -> int:
    """Show a bag until it is over or paused, and return the exit status. With `stream`, print every
    change."""
    shown: progress.Progress = progress.Silent() if as_json else progress.for_stream()
    try:
        view = _until_end(client, bag, shown, stream)
    except KeyboardInterrupt:
        shown.close()
        say(f"bag {bag} keeps running: covey watch {bag} | covey cancel {bag}")
        return 0
    finally:
        shown.close()
    return finish(client, view, as_json)


def _until_end(client: "Client", bag: int, shown: progress.Progress, stream: bool) -> "BagView":
    seen, last = -1, None
    while True:
        view = client.bag(bag, wait_seconds=shown.wait_seconds, seen=seen)
        if view is None:
            raise NotFound(f"bag {bag} is gone; 'covey bags' lists all bags")
        ends = view.over or view.status == "paused"
        if stream and view != last and not ends:
            print_json(view)
            sys.stdout.flush()
        shown.show(view)
        if ends:
            return view
        seen, last = view.done + view.failed, view
        time.sleep(shown.poll_seconds)


def finish(source: bag_places.BagSource, bag: "BagView", as_json: bool) -> int:
    """Print the summary of a bag, and return the exit status."""
    if as_json:
        print_json(bag)
    else:
        echo(summary(bag))
        for line in formats.ignored_results(bag):
            say(line)
        if bag.failed:
            failures.tell(source, bag)
        elif bag.status == "finished":
            say(f"see: covey results {bag.id}" + _pull_hint(bag))
        for line in formats.output_warnings(bag):
            say(f"bag {bag.id}: {line}")
        if bag.status == "paused":
            for line in formats.paused(bag):
                say(line)
    return 1 if bag.failed or bag.status != "finished" else 0


def _pull_hint(bag: "BagView") -> str:
    return f"   get its files: covey pull {bag.id}" if bag.outputs else ""
