"""`covey bags`, `covey show` and `covey status`."""

from collections.abc import Sequence
from fnmatch import fnmatchcase

import click

from covey.cli.shared.commands import Command, bag_argument, json_option, print_json, settings
from covey.core.errors import NotFound
from covey.frontend import bag_places, formats
from covey.frontend.progress import percent
from covey.frontend.tables import Column, render
from covey.frontend.terminal import clean_lines, echo, say
from covey.wire import BagView, ClassView

MOST_CLASSES = 12  # more classes are shown as one range
STATES = ("running", "paused", "finished", "cancelled")
COLUMNS = (
    Column("bag", right=True),
    Column("name"),
    Column("status"),
    Column("tasks", right=True),
    Column("done", right=True),
    Column("failed", right=True),
    Column("running", right=True),
    Column("sent", right=True),
    Column("age", right=True),
    Column("owner"),
    Column("labels"),
    Column("command"),
)


@click.command(cls=Command)
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Only the newest N.")
@click.option("--name", metavar="NAME", help="Only bags of this name; * and ? match anything.")
@click.option(
    "--label", "labels", multiple=True, metavar="NAME[=VALUE]", help="Only bags with this label."
)
@click.option("--state", type=click.Choice(STATES), help="Only bags in this state.")
@click.option("--owner", metavar="NAME", help="Only bags of this owner.")
@json_option
def bags(
    limit: int | None,
    name: str | None,
    labels: tuple[str, ...],
    state: str | None,
    owner: str | None,
    as_json: bool,
) -> None:
    """List the bags, newest first.

    \b
    covey bags
    covey bags --state running --label project=spin
    covey bags --json | jq '.[] | select(.failed > 0) | .id'
    """
    config = settings()
    try:
        every = bag_places.reader(config).bags()
    except NotFound:
        every = []
    chosen = [
        bag
        for bag in every
        if (name is None or fnmatchcase(bag.name, name))
        and all(bag_places.has_label(bag, label) for label in labels)
        and state in (None, bag.status)
        and owner in (None, bag.owner)
    ][:limit]
    if as_json:
        print_json(chosen)
    elif chosen:
        optional = {
            "labels": any(bag.labels for bag in chosen),
            "owner": _several_owners(chosen),
            "sent": any(bag.sent for bag in chosen),
        }
        shown = [place for place, column in enumerate(COLUMNS) if optional.get(column.title, True)]
        rows = [_row(bag) for bag in chosen]
        columns = [COLUMNS[place] for place in shown]
        echo(render(columns, [[row[place] for place in shown] for row in rows]))
        _say_paused(chosen)
    elif every:
        say(f"none of the {formats.count(len(every), 'bag')} matches")
    else:
        say(bag_places.no_bags(config.server or str(config.directory)))


def _row(bag: BagView) -> list[str]:
    return [
        str(bag.id),
        bag.name,
        formats.status(bag),
        f"{bag.total:,}" + ("+" if bag.open else ""),
        f"{bag.done:,}",
        f"{bag.failed:,}",
        f"{bag.running:,}",
        f"{bag.sent:,}",
        formats.ago(bag.created).removesuffix(" ago"),
        bag.owner,
        formats.labels(bag),
        formats.command(bag.argv),
    ]


def _several_owners(bags: Sequence[BagView]) -> bool:
    return len({bag.owner for bag in bags}) > 1


def _say_paused(bags: list[BagView]) -> None:
    for bag in bags:
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
    view = bag_places.find_bag(bag_places.reader(settings()), bag)
    if as_json:
        print_json(view)
        return
    facts = _facts(view)
    width = max(len(name) for name, _ in facts)
    echo(clean_lines(f"{name:<{width}}  {fact}" for name, fact in facts))
    _say_paused([view])
    for line in formats.ignored_results(view):
        say(line)
    if view.failed and view.status != "paused":
        say(f"see: covey failures {view.id}   again: covey retry {view.id} --failed")


def _facts(bag: BagView) -> list[tuple[str, str]]:
    facts = [
        *_what(bag),
        *_state(bag),
        *_times(bag),
        ("retries", f"{bag.retries}{_overtimes(bag)}"),
        *_classes(bag),
    ]
    if not bag.idempotent:
        facts.append(("idempotent", "no: if it is unknown how a task ended, it is not run again"))
    return facts


def _overtimes(bag: BagView) -> str:
    if (
        not bag.overtimes
        or not bag.idempotent
        or not any(view.limit_seconds for view in bag.classes)
    ):
        return ""
    return f"; {formats.overtimes(bag.overtimes, bag.grow_time)}"


def _what(bag: BagView) -> list[tuple[str, str]]:
    facts = [("bag", f"{bag.id} {bag.name}".rstrip())]
    if bag.owner:
        facts.append(("owner", bag.owner))
    if bag.labels:
        facts.append(("labels", formats.labels(bag)))
    facts += [("notes", line) for line in bag.notes.splitlines()]
    facts += [
        ("command", formats.command(bag.argv)),
        ("parameters", ", ".join(bag.names) or "none"),
    ]
    if bag.result_names:
        facts.append(("values", ", ".join(bag.result_names)))
    facts += _inputs(bag)
    if bag.outputs:
        facts.append(("files", f"{', '.join(bag.outputs)} (get them: covey pull {bag.id})"))
    facts += [("warning", line) for line in formats.output_warnings(bag)]
    return facts


def _inputs(bag: BagView) -> list[tuple[str, str]]:
    """The origin of the input files, and each later version of them."""
    inputs = bag.inputs
    facts = []
    if inputs.count:
        paths = formats.some(inputs.paths, inputs.count)
        facts.append(("inputs", f"{paths} (on {inputs.host})"))
    for version in inputs.versions:
        from covey.bagfile.draft.draft import SCRIPT

        names = ["the script" if name == SCRIPT else name for name in version.names]
        changed = formats.some(names, version.files)
        facts.append(("inputs", f"version {version.version} since {_when(version.at)}: {changed}"))
    return facts


def _state(bag: BagView) -> list[tuple[str, str]]:
    ended = bag.done + bag.failed
    facts = [("status", f"{formats.status(bag)}, {percent(ended, bag.total)}%")]
    if bag.reason:
        facts.append(("reason" if bag.status == "paused" else "problem", bag.reason))
    facts += [
        ("tasks", f"{bag.total:,}" + (", and more may be appended" if bag.open else "")),
        ("done", f"{bag.done:,}"),
        ("failed", f"{bag.failed:,}"),
        ("running", f"{bag.running:,}"),
    ]
    if bag.sent:
        facts.append(("sent", f"{bag.sent:,} (waiting at pilots for a free slot)"))
    if bag.in_doubt:
        facts.append(
            (
                "being checked",
                f"{bag.in_doubt:,} (after a restart the server asks pilots about them)",
            )
        )
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
    """What the tasks need. Several classes are numbered. Of many classes, only the smallest and the
    largest amounts are shown."""
    if len(bag.classes) > MOST_CLASSES:
        amounts = f"{formats.need_range(bag.classes)} ({len(bag.classes):,} combinations)"
        return [("each task", amounts)]
    several = len(bag.classes) > 1
    return [
        (f"class {index}" if several else "each task", _class(view))
        for index, view in enumerate(bag.classes)
    ]


def _class(view: ClassView) -> str:
    text = formats.need(view)
    if view.mean_seconds is not None:
        many = f"{view.ended:,}" if view.ended is not None else "the latest"
        text += f"; {many} took {formats.duration(view.mean_seconds)} on average"
    return text


def _waiting(bag: BagView) -> int:
    if bag.over:
        return 0
    return max(0, bag.total - bag.done - bag.failed - bag.running - bag.sent - bag.in_doubt)


def _when(then: float) -> str:
    return f"{formats.clock(then)} ({formats.ago(then)})"


@click.command(cls=Command)
@bag_argument
@json_option
def status(bag: str, as_json: bool) -> None:
    """Print the state of a bag in one word, for scripts: running, paused, finished, failed
    (finished, and tasks failed) or cancelled. The exit status is 0 in every case.

    \b
    covey status
    until [ "$(covey status 3)" != running ]; do sleep 60; done
    """
    view = bag_places.find_bag(bag_places.reader(settings()), bag)
    word = "failed" if view.status == "finished" and view.failed else view.status
    if as_json:
        print_json({"bag": view.id, "status": word, "done": view.done, "failed": view.failed})
    else:
        echo(word)
