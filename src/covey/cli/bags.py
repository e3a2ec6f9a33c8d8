"""`covey bags` and `covey show`."""

import click

from covey.cli import formats, places
from covey.cli.base import Command, bag_argument, json_option, print_json, say, settings
from covey.cli.progress import percent
from covey.cli.tables import Column, clean_lines, render
from covey.core.errors import NotFound
from covey.wire import BagView, ClassView

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
    config = settings()
    try:
        found = places.reader(config).bags()[:limit]
    except NotFound:
        found = []
    if as_json:
        print_json(found)
    elif found:
        click.echo(render(COLUMNS, [_row(bag) for bag in found]))
        _say_paused(found)
    else:
        say(places.no_bags(config.server or str(config.directory)))


def _row(bag: BagView) -> list[str]:
    return [
        str(bag.id),
        bag.name,
        bag.status.upper() if bag.status == "paused" else bag.status,
        f"{bag.total:,}" + ("+" if bag.open else ""),
        f"{bag.done:,}",
        f"{bag.failed:,}",
        f"{bag.running:,}",
        formats.ago(bag.created).removesuffix(" ago"),
        formats.command(bag.argv),
    ]


def _say_paused(found: list[BagView]) -> None:
    for bag in found:
        if bag.status == "paused":
            for line in formats.paused(bag):
                say(line)


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
    click.echo(clean_lines(f"{name:<{width}}  {fact}" for name, fact in facts))
    _say_paused([found])
    if found.failed and found.status != "paused":
        say(f"see: covey failures {found.id}   again: covey retry {found.id} --failed")


def _facts(bag: BagView) -> list[tuple[str, str]]:
    facts = [
        *_what(bag),
        *_state(bag),
        *_times(bag),
        ("retries", f"{bag.retries}{_overtimes(bag)}"),
        *_classes(bag),
    ]
    if not bag.idempotent:
        facts.append(("idempotent", "no: a task whose fate is unknown is not run again"))
    return facts


def _overtimes(bag: BagView) -> str:
    if not bag.overtimes or not bag.idempotent or not any(one.limit_seconds for one in bag.classes):
        return ""
    return f"; {formats.overtimes(bag.overtimes, bag.grow_time)}"


def _what(bag: BagView) -> list[tuple[str, str]]:
    facts = [("bag", f"{bag.id} {bag.name}".rstrip())]
    if bag.owner:
        facts.append(("owner", bag.owner))
    if bag.labels:
        facts.append(("labels", ", ".join(f"{key}={text}" for key, text in bag.labels.items())))
    facts += [("notes", line) for line in bag.notes.splitlines()]
    facts += [
        ("command", formats.command(bag.argv)),
        ("parameters", ", ".join(bag.names) or "none"),
    ]
    if bag.result_names:
        facts.append(("values", ", ".join(bag.result_names)))
    if bag.outputs:
        facts.append(("files", f"{', '.join(bag.outputs)} (get them: covey pull {bag.id})"))
    return facts


def _state(bag: BagView) -> list[tuple[str, str]]:
    ended = bag.done + bag.failed
    status = bag.status.upper() if bag.status == "paused" else bag.status
    facts = [("status", f"{status}, {percent(ended, bag.total)}%")]
    if bag.reason:
        facts.append(("reason" if bag.status == "paused" else "problem", bag.reason))
    facts += [
        ("tasks", f"{bag.total:,}" + (", and more may be appended" if bag.open else "")),
        ("done", f"{bag.done:,}"),
        ("failed", f"{bag.failed:,}"),
        ("running", f"{bag.running:,}"),
    ]
    if bag.in_doubt:
        facts.append(("in doubt", f"{bag.in_doubt:,} (asking the pilots after a restart)"))
    facts.append(("waiting", f"{_waiting(bag):,}"))
    facts += [("late", formats.straggler(bag.names, late)) for late in bag.stragglers]
    return facts


def _times(bag: BagView) -> list[tuple[str, str]]:
    facts = [("submitted", _when(bag.created))]
    if bag.ended:
        facts += [("ended", _when(bag.ended)), ("took", formats.duration(bag.ended - bag.created))]
    elif bag.estimate is not None:
        left = formats.span(bag.estimate.low, bag.estimate.high)
        facts.append(("left", f"{left}, probably {formats.duration(bag.estimate.likely)}"))
    return facts


def _classes(bag: BagView) -> list[tuple[str, str]]:
    """What the tasks need; several classes are numbered."""
    several = len(bag.classes) > 1
    return [
        (f"class {index}" if several else "each task", _class(one))
        for index, one in enumerate(bag.classes)
    ]


def _class(one: ClassView) -> str:
    parts = [formats.count(one.cores, "core")]
    if one.memory_mb:
        parts.append(f"{formats.megabytes(one.memory_mb)} memory")
    if one.disk_mb:
        parts.append(f"{formats.megabytes(one.disk_mb)} disk")
    if one.gpus:
        parts.append(formats.count(one.gpus, "GPU"))
    if one.limit_seconds:
        parts.append(f"at most {formats.duration(one.limit_seconds)}")
    told = ", ".join(parts)
    if one.mean_seconds is not None:
        many = f"{one.ended:,}" if one.ended is not None else "the latest"
        told += f"; {many} took {formats.duration(one.mean_seconds)} on average"
    return told


def _waiting(bag: BagView) -> int:
    if bag.over:
        return 0
    return max(0, bag.total - bag.done - bag.failed - bag.running - bag.in_doubt)


def _when(then: float) -> str:
    return f"{formats.clock(then)} ({formats.ago(then)})"
