"""`covey cancel`, `pause`, `resume` and `retry`: what a person can still say to a bag."""

import math
import re

import click

from covey.cli import formats, places
from covey.cli.base import Command, bag_argument, json_option, leave, print_json, say, settings
from covey.wire import BagView

MOST_TIMES = 1000
_FACTOR = re.compile(r"\+(?P<percent>\d+(?:\.\d+)?)%|[x×](?P<times>\d+(?:\.\d+)?)")


@click.command(cls=Command)
@bag_argument
@json_option
def cancel(bag: str, as_json: bool) -> None:
    """Stop a bag for good: the latest one if none is named. Its results stay.

    \b
    covey cancel
    covey cancel 3
    """
    config = settings()
    found = places.find_bag(places.reader(config), bag)
    count = 0 if found.over else places.client(config).cancel(found.id)
    if as_json:
        print_json({"bag": found.id, "count": count})
    elif found.over:
        say(f"bag {found.id} is {found.status} already; nothing to cancel")
    else:
        click.echo(f"bag {found.id} cancelled: {formats.count(count, 'task')} stopped or not run")


@click.command(cls=Command)
@bag_argument
@click.option("--reason", default="", metavar="TEXT", help="Why, for those who look at the bag.")
@json_option
def pause(bag: str, reason: str, as_json: bool) -> None:
    """Start no more tasks of a bag for now; those that run come to their end.

    \b
    covey pause
    covey pause 3 --reason 'the licence server is down'
    """
    config = settings()
    found = places.find_bag(places.reader(config), bag)
    if found.status == "running":
        places.client(config).pause(found.id, reason)
    if as_json:
        print_json({"bag": found.id, "paused": not found.over})
    elif found.over:
        say(f"bag {found.id} is {found.status} already; nothing to pause")
    elif found.status == "paused":
        say(f"bag {found.id} is paused already; go on with: covey resume {found.id}")
    else:
        click.echo(f"bag {found.id} paused; go on with: covey resume {found.id}")


@click.command(cls=Command)
@bag_argument
@click.option("--watch", is_flag=True, help="Follow the bag afterwards.")
@json_option
def resume(bag: str, watch: bool, as_json: bool) -> None:
    """Go on with a bag that is paused.

    \b
    covey resume
    covey resume 3 --watch
    """
    config = settings()
    found = places.find_bag(places.reader(config), bag)
    if found.status != "paused":
        if as_json:
            print_json({"bag": found.id, "resumed": False})
        else:
            say(f"bag {found.id} is not paused but {found.status}; nothing to resume")
        return
    client = places.client(config)
    client.resume(found.id)
    if not as_json:
        click.echo(f"bag {found.id} goes on")
    elif not watch:
        print_json({"bag": found.id, "resumed": True})
    if watch:
        from covey.cli.watch import follow

        leave(follow(client, found.id, as_json=as_json))


def _factor(ctx: click.Context, param: click.Parameter, text: str | None) -> float:
    """1.5 for +50%, 2 for x2."""
    if text is None:
        return 1.0
    match = _FACTOR.fullmatch(text.strip())
    factor = math.nan
    if match is not None:
        percent, times = match["percent"], match["times"]
        factor = 1 + float(percent) / 100 if percent else float(times)
    if not 0 < factor <= MOST_TIMES:
        raise click.BadParameter(f"{text!r}: write +50% or x2", ctx, param)
    return factor


@click.command(cls=Command)
@bag_argument
@click.option("--failed", is_flag=True, help="All failed tasks.")
@click.option(
    "--cause",
    "causes",
    multiple=True,
    metavar="TEXT",
    help="Failed tasks of this cause (its beginning is enough); repeatable.",
)
@click.option(
    "--task",
    "tasks",
    multiple=True,
    type=click.IntRange(min=0),
    metavar="N",
    help="This failed task; repeatable.",
)
@click.option("--memory", callback=_factor, metavar="+50%|x2", help="With so much more memory.")
@click.option("--time", callback=_factor, metavar="+50%|x2", help="With so much more time.")
@click.option("--watch", is_flag=True, help="Follow the bag afterwards.")
@json_option
def retry(
    bag: str,
    failed: bool,
    causes: tuple[str, ...],
    tasks: tuple[int, ...],
    memory: float,
    time: float,
    watch: bool,
    as_json: bool,
) -> None:
    """Run failed tasks of a bag again, with the same parameters; also while the
    others still run. 'covey failures' lists the causes.

    \b
    covey retry --failed
    covey retry 3 --cause 'memory limit' --memory +50%
    covey retry 3 --task 17 --task 18 --time x2 --watch
    """
    if not (failed or causes or tasks):
        named = "" if bag == "latest" else f" {bag}"
        raise click.UsageError(
            f"which tasks? To run all failed ones again: covey retry{named} --failed"
        )
    config = settings()
    found = places.find_bag(places.reader(config), bag)
    if not found.failed:
        _say_retried(found, 0, False, as_json)
        return
    client = places.client(config)
    count = client.retry(
        found.id, causes=causes, tasks=list(tasks) if tasks else None, memory=memory, time=time
    )
    if not (watch and as_json and count):
        _say_retried(found, count, bool(causes or tasks), as_json)
    if watch and count:
        from covey.cli.watch import follow

        leave(follow(client, found.id, as_json=as_json))


def _say_retried(bag: BagView, count: int, chosen: bool, as_json: bool) -> None:
    if as_json:
        print_json({"bag": bag.id, "count": count})
    elif count:
        click.echo(f"bag {bag.id}: {formats.count(count, 'failed task')} will run again")
    elif chosen:
        say(f"bag {bag.id} has no such failed tasks; see: covey failures {bag.id}")
    else:
        say(f"bag {bag.id} has no failed tasks; nothing to retry")
