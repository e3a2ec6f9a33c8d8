"""`covey pilots`: who runs the tasks."""

import click

from covey.cli import formats, places
from covey.cli.base import Command, json_option, print_json, say, settings
from covey.cli.tables import Column, render
from covey.wire import PilotView

HERE = ("active", "suspected")
COLUMNS = (
    Column("pilot", right=True),
    Column("status"),
    Column("site"),
    Column("slots", right=True),
    Column("running", right=True),
    Column("since"),
    Column("heard"),
    Column("host"),
)


@click.command(cls=Command)
@click.option("--all", "everyone", is_flag=True, help="Also those that have left or are lost.")
@json_option
def pilots(everyone: bool, as_json: bool) -> None:
    """List the pilots: the processes that hold slots on hosts and run tasks.

    \b
    covey pilots
    covey pilots --all --json
    """
    found = places.reader(settings()).pilots()
    shown = [pilot for pilot in found if everyone or pilot.status in HERE]
    if as_json:
        print_json(shown)
    elif shown:
        click.echo(render(COLUMNS, [_row(pilot) for pilot in shown]))
    else:
        gone = f"; {len(found):,} were: covey pilots --all" if found else ""
        say(f"no pilots now{gone}")


def _row(pilot: PilotView) -> list[str]:
    return [
        str(pilot.id),
        pilot.status,
        pilot.site,
        str(pilot.slots),
        str(pilot.running),
        formats.ago(pilot.enrolled),
        formats.ago(pilot.heard),
        pilot.host,
    ]
