"""`covey failures`: the failed tasks of a bag, grouped by cause.

`covey run` and `covey watch` print the most frequent causes at the end, so that a thousand failures
are a few lines, with the command to run next.
"""

import shlex
from collections.abc import Sequence

import click

from covey.cli.shared.commands import Command, bag_argument, json_option, print_json, settings
from covey.core.values.causes import last_line, normalised
from covey.frontend import bag_places, formats
from covey.frontend.tables import fit, terminal_width
from covey.frontend.terminal import clean, echo, say
from covey.wire import BagView, FailureGroup, ResultRow

MOST_GROUPS = 3  # at the end of `covey run`
HOSTS = 3
LOG_LINES = 5
SHORTEST_CAUSE = 40
NO_FILE = ("No such file or directory", "can't open file", "cannot open")
MORE = {"memory": "--memory x2", "timeout": "--time x2"}  # the option that may help, by outcome


@click.command(cls=Command)
@bag_argument
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=20,
    metavar="N",
    help="At most this many causes.  [default: 20]",
)
@json_option
def failures(bag: str, limit: int, as_json: bool) -> None:
    """Show why tasks failed: the causes, most frequent first, with one example each.

    \b
    covey failures
    covey failures 3
    covey retry 3 --cause 'exit 1: ValueError'
    """
    source = bag_places.reader(settings())
    view = bag_places.find_bag(source, bag)
    groups = source.failures(view.id, limit + 1) if view.failed else []
    more, groups = len(groups) > limit, groups[:limit]
    if as_json:
        print_json(groups)
        return
    if not groups:
        say(f"bag {view.id} has no failed tasks")
        return
    echo(_headline(view))
    for group in groups:
        echo("\n" + "\n".join(_block(source, view, group, groups)))
    echo("")
    if more:
        say(f"there are more causes; see them with --limit {limit * 10}")
    _say_remedies(view, groups)
    say(f"all of them again: covey retry {view.id} --failed")


def _headline(bag: BagView) -> str:
    return f"{formats.title(bag)}: {bag.failed:,} of {formats.count(bag.total, 'task')} failed"


def _block(
    source: bag_places.BagSource, bag: BagView, group: FailureGroup, groups: Sequence[FailureGroup]
) -> list[str]:
    width = terminal_width() or 400
    example = _example(source, bag, group)
    words, cause = _words(bag, group, example), group.cause if group.count > 1 else ""
    lines = [
        f"{formats.count(group.count, 'task')}: {clean(cause or words)}",
        f"    on {_hosts(group)}; for example {_title(bag, group, example)}:",
    ]
    if cause and words != cause:
        lines.append(f"    {clean(words)}")
    log = formats.last_lines(group.log, LOG_LINES)
    lines += [f"    | {clean(line)}" for line in log] or ["    (it printed nothing)"]
    lines.append(f"    again: {_again(bag, group, groups)}")
    return [fit(line, width) for line in lines[:-1]] + lines[-1:]


def _hosts(group: FailureGroup) -> str:
    named = group.hosts[:HOSTS]
    return formats.some(named, group.host_count) or "no host"


def _example(source: bag_places.BagSource, bag: BagView, group: FailureGroup) -> ResultRow | None:
    attempts = source.attempts(bag.id, group.example)
    return next((row for row in attempts[::-1] if row.counted), None)


def _title(bag: BagView, group: FailureGroup, example: ResultRow | None) -> str:
    if example is None:
        return f"task {group.example}"
    return formats.task_title(bag.names, group.example, example.values)


def _words(bag: BagView, group: FailureGroup, example: ResultRow | None) -> str:
    """The cause in the words of the example, with the numbers and paths that a cause leaves out."""
    how, _, masked = group.cause.partition(": ")
    message = example.message if example is not None else ""
    if message and group.outcome in MORE:
        return f"{group.cause}: {message}"
    for words in (message, last_line(group.log)):
        if masked and normalised(words, bag.argv) == masked:
            return f"{how}: {' '.join(words.split())}"
    return group.cause


def _again(bag: BagView, group: FailureGroup, groups: Sequence[FailureGroup]) -> str:
    more = MORE.get(group.outcome, "")
    cause = quoted(short_cause(group.cause, [other.cause for other in groups]))
    return f"covey retry {bag.id} --cause {cause} {more}".rstrip()


def quoted(text: str) -> str:
    """The text quoted for a shell, in the quotes that are easiest to read."""
    if not text.isprintable():
        return f"$'{''.join(map(_escaped, text))}'"
    if "'" in text and not any(char in text for char in '"$`\\!'):
        return f'"{text}"'
    return shlex.quote(text)


def _escaped(char: str) -> str:
    if char in "'\\":
        return f"\\{char}"
    if char.isprintable():
        return char
    return f"\\x{ord(char):02x}" if ord(char) < 0x80 else f"\\U{ord(char):08x}"


def short_cause(cause: str, causes: Sequence[str]) -> str:
    """The shortest beginning that no other cause has."""
    for length in range(SHORTEST_CAUSE, len(cause)):
        start = cause[:length]
        if not cause[length].isalnum() and not any(
            other.startswith(start) for other in causes if other != cause
        ):
            return start
    return cause


def tell(source: bag_places.BagSource, bag: BagView) -> None:
    """Print the most frequent causes, one or two lines each, and what to do next."""
    groups = source.failures(bag.id, MOST_GROUPS + 1)
    shown, width = groups[:MOST_GROUPS], max(terminal_width() or 400, 60)
    for group in shown:
        for line in _short(source, bag, group):
            echo(fit(line, width), err=True)
    if len(groups) > MOST_GROUPS:
        rest = bag.failed - sum(group.count for group in shown)
        echo(f"  … and {rest:,} more, with other causes", err=True)
    _say_remedies(bag, groups)
    say(f"see: covey failures {bag.id}   again: covey retry {bag.id} --failed")


def _short(source: bag_places.BagSource, bag: BagView, group: FailureGroup) -> list[str]:
    example = _example(source, bag, group)
    title, words = _title(bag, group, example), _words(bag, group, example)
    who = title if group.count == 1 else f"{group.count:,} tasks, such as {title}"
    lines = [f"  {clean(who)} on {_hosts(group)}: {clean(words)}"]
    printed = last_line(group.log)
    if printed and " ".join(printed.split()) not in words:
        lines.append(f"    | {clean(printed)}")
    return lines


def _files_hint() -> str:
    if settings().server:  # the hosts of that server do not have this directory
        return "'covey run --input FILE' brings a file along"
    return "'covey run --chdir .' runs them here"


def _say_remedies(bag: BagView, groups: Sequence[FailureGroup]) -> None:
    if any(sign in group.log for group in groups for sign in NO_FILE):
        say(f"tasks run in empty directories of their own; {_files_hint()}")
    for outcome, option in MORE.items():
        if any(group.outcome == outcome for group in groups):
            what = "memory" if outcome == "memory" else "time"
            say(f"some ran out of {what}; with more: covey retry {bag.id} --failed {option}")
