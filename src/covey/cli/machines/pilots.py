"""`covey pilots` and `covey dismiss`: the processes that run the tasks."""

import click

from covey.cli.shared import tag_columns
from covey.cli.shared.commands import Command, json_option, print_json, settings
from covey.client.client import Client
from covey.frontend import bag_places, formats
from covey.frontend.tables import Column
from covey.frontend.terminal import echo, say
from covey.wire import PilotView

HERE = ("active", "suspected")
COLUMNS = (
    Column("pilot", right=True),
    Column("host"),
    Column("status"),
    Column("site"),
    Column("owner"),
    Column("slots", right=True),
    Column("running", right=True),
    Column("memory", right=True),
    Column("gpus", right=True),
    Column("since"),
    Column("heard"),
)


@click.command(cls=Command)
@click.option("--all", "everyone", is_flag=True, help="Also those that have left or are lost.")
@tag_columns.tag_options
@json_option
def pilots(everyone: bool, all_tags: bool, tests: list[tuple[str, str]], as_json: bool) -> None:
    """List the pilots: the processes that hold slots on hosts and run tasks.

    \b
    covey pilots
    covey pilots --tags --where host=node1
    covey pilots --all --json
    """
    config = settings()
    source = bag_places.reader(config)
    every = source.pilots(everyone=everyone) if isinstance(source, Client) else source.pilots()
    here = [pilot for pilot in every if everyone or pilot.status in HERE]
    shown = [
        pilot
        for pilot in here
        if tag_columns.matches({"host": pilot.host, "site": pilot.site, **pilot.tags}, tests)
    ]
    if as_json:
        print_json(shown)
    elif shown:
        rows = [_row(pilot, everyone) for pilot in shown]
        columns = (*COLUMNS, Column("why it ended")) if everyone else COLUMNS
        if any(pilot.shortage for pilot in shown):
            columns = (*columns, Column("waits for"))
            rows = [
                [*row, waits_for(pilot.shortage)] for row, pilot in zip(rows, shown, strict=True)
            ]
        echo(tag_columns.table(columns, rows, [pilot.tags for pilot in shown], all_tags))
    elif here:
        say(f"no pilots match; without --where there are {len(here):,}")
    else:
        gone = f"; {len(every):,} have left: covey pilots --all" if every else ""
        start = "; start one with: covey pilot-command" if config.server else ""
        say(f"no pilots now{gone or start}")


def waits_for(shortage: str) -> str:
    """What a pilot or a host waits for."""
    return f"disk space: {shortage}" if shortage else ""


def _row(pilot: PilotView, everyone: bool) -> list[str]:
    cells = [
        str(pilot.id),
        pilot.host,
        pilot.status,
        pilot.site,
        pilot.owner or "anybody",
        str(pilot.slots),
        str(pilot.running),
        formats.megabytes(pilot.memory_mb),
        str(pilot.gpus),
        formats.ago(pilot.enrolled),
        formats.ago(pilot.heard),
    ]
    return [*cells, pilot.reason] if everyone else cells


@click.command(cls=Command)
@click.argument("numbers", metavar="PILOT...", nargs=-1, required=True, type=click.IntRange(min=1))
@json_option
def dismiss(numbers: tuple[int, ...], as_json: bool) -> None:
    """Shut pilots down: they take no more tasks, and end when theirs have ended.

    \b
    covey dismiss 3
    covey dismiss 3 4 5
    """
    client = bag_places.client(settings())
    count = sum(client.dismiss(number) for number in numbers)
    if as_json:
        print_json({"count": count})
    else:
        many = f"pilot {numbers[0]} is" if count == 1 else f"{count} pilots are"
        say(f"{many} shutting down; 'covey pilots' shows when")
