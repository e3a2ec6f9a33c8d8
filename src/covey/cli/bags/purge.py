"""`covey purge`: remove data of finished bags for good.

Nothing is removed before it was shown and the person agreed.
"""

import sys
import time
from collections.abc import Sequence

import click

from covey.cli.shared.commands import Command, bags_argument, json_option, print_json, settings
from covey.core.errors import CoveyError
from covey.core.values.time_spans import parse_seconds
from covey.frontend import bag_places, formats
from covey.frontend.tables import Column, render
from covey.frontend.terminal import echo, say
from covey.wire import BagView

KINDS = {
    "logs": "what tasks printed",
    "files": "files that tasks returned",
    "all": "everything: results, logs, files",
}
COLUMNS = (
    Column("bag", right=True),
    Column("name"),
    Column("status"),
    Column("tasks", right=True),
    Column("ended"),
    Column("what is removed"),
)


def seconds_option(ctx: click.Context, param: click.Parameter, text: str | None) -> float | None:
    if text is None:
        return None
    seconds = parse_seconds(text, bare=False)
    if seconds is None or seconds >= 1e12:
        raise click.BadParameter(f"{text!r}: write 30d, 12h, 1h30m or 45m", ctx, param)
    return seconds


@click.command(cls=Command)
@bags_argument
@click.option(
    "--older-than",
    callback=seconds_option,
    metavar="AGE",
    help="Only bags that ended at least this long ago: 30d, 12h. If no bag is named: all such "
    "bags.",
)
@click.option("--logs", "what", flag_value="logs", help="What tasks printed.")
@click.option("--files", "what", flag_value="files", help="The files that tasks returned.")
@click.option("--all", "what", flag_value="all", help="The whole bag, with its results.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
def purge(
    bags: tuple[str, ...], older_than: float | None, what: str | None, yes: bool, as_json: bool
) -> None:
    """Remove the logs, the files, or all data of finished bags for good. Shows what would be
    removed, and asks first.

    \b
    covey purge 3 --logs
    covey purge --older-than 30d --all
    covey purge 1 2 --files --yes
    """
    if what is None:
        raise click.UsageError("what should be removed? --logs, --files, or --all of the bag")
    if not bags and older_than is None:
        raise click.UsageError("which bags? Name them, or say --older-than 30d")
    config = settings()
    chosen = _choose(bag_places.reader(config), bags, older_than)
    if not as_json:
        _show(chosen, what)
    if not chosen or not (yes or _agreed(len(chosen))):
        if as_json:
            print_json([])
        return
    client = bag_places.client(config)
    counts = {bag.id: client.purge(bag.id, what) for bag in chosen}
    if as_json:
        print_json([{"bag": bag, "what": what, "count": count} for bag, count in counts.items()])
    else:
        echo(f"removed from {formats.count(len(chosen), 'bag')}: {KINDS[what]}")


def _choose(
    source: bag_places.BagSource, references: Sequence[str], older_than: float | None
) -> list[BagView]:
    """The bags to purge. Raises CoveyError if a named bag is not over."""
    named = [bag_places.find_bag(source, reference) for reference in references]
    running = [bag for bag in named if not bag.over]
    if running:
        bag = running[0]
        raise CoveyError(f"bag {bag.id} is {bag.status}: cancel it first: covey cancel {bag.id}")
    chosen = {bag.id: bag for bag in named or source.bags() if bag.over}
    if older_than is not None:
        limit = time.time() - older_than
        chosen = {bag.id: bag for bag in chosen.values() if bag.ended and bag.ended < limit}
    return list(chosen.values())


def _show(chosen: Sequence[BagView], what: str) -> None:
    if not chosen:
        say("no bags match; nothing to remove")
        return
    rows = [
        [
            str(bag.id),
            bag.name,
            bag.status,
            f"{bag.total:,}",
            formats.ago(bag.ended),
            KINDS[what],
        ]
        for bag in chosen
    ]
    echo(render(COLUMNS, rows))


def _agreed(count: int) -> bool:
    """Ask the person. Raises UsageError if standard input is not a terminal."""
    if not _can_ask():
        raise click.UsageError("this cannot be undone; to go on without being asked: --yes")
    return click.confirm(f"Remove this from {formats.count(count, 'bag')} for good?", err=True)


def _can_ask() -> bool:
    return sys.stdin.isatty()
