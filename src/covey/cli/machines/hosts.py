"""`covey hosts`: the machines that ran tasks, what they did, and their tags."""

import time

import click

from covey.cli.machines.pilots import waits_for
from covey.cli.shared import tag_columns
from covey.cli.shared.commands import Command, json_option, print_json, settings
from covey.frontend import bag_places, formats
from covey.frontend.tables import Column
from covey.frontend.terminal import echo, say
from covey.wire import HostView

COLUMNS = (
    Column("host"),
    Column("site"),
    Column("slots", right=True),
    Column("pilots", right=True),
    Column("running", right=True),
    Column("done", right=True),
    Column("failed", right=True),
    Column("errors", right=True),
    Column("heard"),
    Column("banned"),
)


@click.command(cls=Command)
@tag_columns.tag_options
@json_option
def hosts(all_tags: bool, tests: list[tuple[str, str]], as_json: bool) -> None:
    """List the hosts with their slots, tasks and tags. The host that was seen last comes first.

    "errors" is the share of recent tasks that failed there. If an owner's tasks fail on a host and
    succeed on others, the host is banned for a while: it gets no tasks of that owner.

    \b
    covey hosts
    covey hosts --tags --where site=local
    covey hosts --where 'GPU=*A100*' --json
    """
    every = bag_places.reader(settings()).hosts()
    shown = [
        host
        for host in every
        if tag_columns.matches({"host": host.host, "site": host.site, **host.tags}, tests)
    ]
    if as_json:
        print_json(shown)
    elif shown:
        rows = [_row(host) for host in shown]
        columns: tuple[Column, ...] = COLUMNS
        if any(host.shortage for host in shown):
            columns = (*COLUMNS, Column("waits for"))
            rows = [[*row, waits_for(host.shortage)] for row, host in zip(rows, shown, strict=True)]
        echo(tag_columns.table(columns, rows, [host.tags for host in shown], all_tags))
    elif every:
        say(f"no hosts match; without --where there are {len(every):,}")
    else:
        say("no hosts yet; they come with the first tasks: covey run -- COMMAND")


def _row(host: HostView) -> list[str]:
    return [
        host.host,
        host.site,
        str(host.slots),
        str(host.pilots),
        f"{host.running:,}",
        f"{host.done:,}",
        f"{host.failed:,}",
        "" if host.error_rate is None else f"{host.error_rate:.0%}",
        formats.ago(host.heard),
        _bans(host),
    ]


def _bans(host: HostView) -> str:
    """The owners whose tasks do not go to this host, and for how much longer."""
    now = time.time()
    left = {owner: until - now for owner, until in host.banned.items() if until > now}
    return ", ".join(f"{owner or 'all'} {formats.duration(span)}" for owner, span in left.items())
