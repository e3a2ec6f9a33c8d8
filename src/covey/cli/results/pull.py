"""`covey pull`: download the files that tasks returned into one folder per task."""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from covey.cli.shared.commands import (
    DIR_NAME,
    Command,
    bag_argument,
    json_option,
    leave,
    print_json,
    settings,
)
from covey.frontend import bag_places, formats, terminal
from covey.frontend.failed_files import OfFailed
from covey.frontend.terminal import clean, echo, say
from covey.wire import BagView

if TYPE_CHECKING:
    from covey.client.download import Pulled

LAYOUT = "{task}"
MOST_REASONS = 5
DRAW_SECONDS = 0.2
LINE_SECONDS = 10.0


@click.command(cls=Command)
@bag_argument
@click.option(
    "-o",
    "--output",
    "folder",
    metavar="DIR",
    type=DIR_NAME,
    help="Folder to write to.  [default: bag-BAG]",
)
@click.option(
    "--layout",
    default=LAYOUT,
    metavar="TEMPLATE",
    help="Each task's folder in DIR: {task} and parameters.  [default: {task}]",
)
@click.option("--failed", is_flag=True, help="Only files of failed tasks.")
@json_option
def pull(bag: str, folder: str | None, layout: str, failed: bool, as_json: bool) -> None:
    """Get the files that tasks returned. Files that exist already are not changed, so you may
    interrupt and repeat this, also while the bag runs. A failed task returns only the files that
    --optional-output names.

    \b
    covey pull
    covey pull 3 -o plots --layout '{alpha}/{seed}'
    """
    from covey.client import download

    config = settings()
    view = bag_places.find_bag(bag_places.reader(config), bag)
    client = bag_places.client(config)
    place = Path(folder or f"bag-{view.id}")
    source = OfFailed(client, view) if failed else client
    shown = PullProgress(quiet=as_json)
    try:
        pulled = download.pull(source, view.id, place, layout, shown.show)
    except KeyboardInterrupt:
        shown.close()
        say("interrupted; the same command continues from here")
        leave(1)
    finally:
        shown.close()
    if as_json:
        print_json(pulled)
    else:
        _tell(view, place, pulled)
    leave(1 if pulled.refused else 0)


class PullProgress:
    """Shows how many files were fetched: on a terminal as one line that is redrawn, otherwise as a
    new line every LINE_SECONDS."""

    def __init__(self, quiet: bool) -> None:
        self._terminal = sys.stderr.isatty()
        self._quiet = quiet
        self._next = time.monotonic() + (DRAW_SECONDS if self._terminal else LINE_SECONDS)
        self._drawn = False

    def show(self, pulled: "Pulled") -> None:
        now = time.monotonic()
        if self._quiet or now < self._next:
            return
        self._next = now + (DRAW_SECONDS if self._terminal else LINE_SECONDS)
        line = summary(pulled)
        self._drawn = self._terminal
        if self._terminal:
            terminal.redraw(line)
        else:
            echo(line, err=True)

    def close(self) -> None:
        if self._drawn:
            terminal.redraw("")
            self._drawn = False


def summary(pulled: "Pulled") -> str:
    text = formats.count(pulled.files, "file")
    if pulled.bytes:
        text += f" ({formats.size(pulled.bytes)})"
    if pulled.kept:
        text += f", {pulled.kept:,} existed already"
    if pulled.refused:
        text += f", {pulled.refused:,} missing"
    return text


def _tell(bag: BagView, place: Path, pulled: "Pulled") -> None:
    if not (pulled.files or pulled.kept or pulled.refused):
        say(_why_none(bag))
        return
    echo(f"bag {bag.id}: {summary(pulled)}, in {place}")
    reasons = pulled.reasons[:MOST_REASONS]
    for reason in reasons:
        echo(f"  missing: {clean(reason)}", err=True)
    if pulled.refused > len(reasons):
        echo(f"  … and {pulled.refused - len(reasons):,} more", err=True)
    left = bag.total - bag.done - bag.failed
    if left and not bag.over:
        say(f"{left:,} of {bag.total:,} tasks have not ended yet; pull again later")


def _why_none(bag: BagView) -> str:
    if not bag.outputs:
        return f"bag {bag.id} returns no files; to get some: covey run --output PATTERN …"
    if bag.over:
        return f"no files of bag {bag.id} match"
    return f"no files of bag {bag.id} yet"
