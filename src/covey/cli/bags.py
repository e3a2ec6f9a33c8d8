"""`covey bags`, `show`, `cancel` and `retry`."""

import click

from covey.cli import formats, places
from covey.cli.base import Command, bag_argument, json_option, leave, print_json, say, settings
from covey.cli.progress import percent
from covey.cli.tables import Column, render
from covey.core.errors import NotFound
from covey.wire import BagView

COLUMNS = (
    Column("bag", right=True),
    Column("name"),
    Column("status"),
    Column("tasks", right=True),
    Column("done", right=True),
    Column("failed", right=True),
    Column("running", right=True),
    Column("age", right=True),
    Column("command"),
)


@click.command(cls=Command)
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Only the newest N.")
@json_option
def bags(limit: int | None, as_json: bool) -> None:
    """List the bags, newest first.

    \b
    covey bags
    covey bags --json | jq '.[] | select(.failed > 0) | .id'
    """
    try:
        found = places.reader(settings()).bags()[:limit]
    except NotFound:
        found = []
    if as_json:
        print_json(found)
    elif found:
        click.echo(render(COLUMNS, [_row(bag) for bag in found]))
    else:
        say("no bags here yet; start with: covey run -- COMMAND")


def _row(bag: BagView) -> list[str]:
    return [
        str(bag.id),
        bag.name,
        bag.status,
        f"{bag.total:,}",
        f"{bag.done:,}",
        f"{bag.failed:,}",
        f"{bag.running:,}",
        formats.ago(bag.created).removesuffix(" ago"),
        formats.command(bag.argv),
    ]


@click.command(cls=Command)
@bag_argument
@json_option
def show(bag: str, as_json: bool) -> None:
    """Show one bag; the latest one if none is named.

    \b
    covey show
    covey show 3 --json
    """
    found = places.find_bag(places.reader(settings()), bag)
    if as_json:
        print_json(found)
        return
    facts = _facts(found)
    width = max(len(name) for name, _ in facts)
    click.echo("\n".join(f"{name:<{width}}  {fact}" for name, fact in facts))
    if found.failed:
        say(f"see: covey logs {found.id}   again: covey retry --failed {found.id}")


def _facts(bag: BagView) -> list[tuple[str, str]]:
    ended = bag.done + bag.failed
    facts = [("bag", f"{bag.id} {bag.name}".rstrip())]
    if bag.owner:
        facts.append(("owner", bag.owner))
    facts += [
        ("command", formats.command(bag.argv)),
        ("parameters", ", ".join(bag.names) or "none"),
        ("status", f"{bag.status}, {percent(ended, bag.total)}%"),
        ("tasks", f"{bag.total:,}"),
        ("done", f"{bag.done:,}"),
        ("failed", f"{bag.failed:,}"),
        ("running", f"{bag.running:,}"),
    ]
    if bag.in_doubt:
        facts.append(("in doubt", f"{bag.in_doubt:,} (asking the pilots after a restart)"))
    facts += [("waiting", f"{_waiting(bag):,}"), ("submitted", _when(bag.created))]
    if bag.ended:
        facts += [("ended", _when(bag.ended)), ("took", formats.duration(bag.ended - bag.created))]
    facts.append(("retries", str(bag.retries)))
    if bag.limit_seconds:
        facts.append(("time limit", formats.duration(bag.limit_seconds)))
    if not bag.idempotent:
        facts.append(("idempotent", "no: a task whose fate is unknown is not run again"))
    return facts


def _waiting(bag: BagView) -> int:
    if bag.over:
        return 0
    return max(0, bag.total - bag.done - bag.failed - bag.running - bag.in_doubt)


def _when(then: float) -> str:
    return f"{formats.clock(then)} ({formats.ago(then)})"


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
@click.option("--failed", is_flag=True, help="Run the failed tasks again (required).")
@click.option("--watch", is_flag=True, help="Follow the bag afterwards.")
@json_option
def retry(bag: str, failed: bool, watch: bool, as_json: bool) -> None:
    """Run the failed tasks of a bag again, with the same parameters.

    \b
    covey retry --failed
    covey retry --failed 3 --watch
    """
    if not failed:
        raise click.UsageError(
            f"which tasks? To run the failed ones again: covey retry --failed {bag}"
        )
    config = settings()
    found = places.find_bag(places.reader(config), bag)
    if not found.failed:
        _say_retried(found.id, 0, as_json)
        return
    client = places.client(config)
    count = client.retry(found.id)
    if not (watch and as_json):
        _say_retried(found.id, count, as_json)
    if watch:
        from covey.cli.watch import follow

        leave(follow(client, found.id, as_json=as_json))


def _say_retried(bag: int, count: int, as_json: bool) -> None:
    if as_json:
        print_json({"bag": bag, "count": count})
    elif count:
        click.echo(f"bag {bag}: {formats.count(count, 'failed task')} will run again")
    else:
        say(f"bag {bag} has no failed tasks; nothing to retry")
