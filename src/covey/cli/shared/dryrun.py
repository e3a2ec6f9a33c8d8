"""`--dry-run`: what a bag would be."""

import os
from typing import TYPE_CHECKING

from covey.cli.shared.commands import print_json
from covey.core.record.broker_rules import ALGORITHMS, PRICE
from covey.core.record.model import LONG_FIRST, PolicySpec
from covey.frontend import formats
from covey.frontend.submitting import add_all
from covey.frontend.tables import Column, render
from covey.frontend.terminal import clean_lines, echo

if TYPE_CHECKING:
    from covey.bagfile import Description, Gathered
    from covey.bagfile.description import ShownFile
    from covey.client.client import Client

MOST_FILES = 10
MOST_CLASSES = 10  # combinations of resources that are shown, if parameters set the resources


def show(gathered: "Gathered", client: "Client | None", as_json: bool) -> None:
    """Print the description of a bag. `client` is None if no server runs."""
    from covey.bagfile import describe

    bag = describe(gathered)
    if client is not None:
        ask_known(bag, gathered, client)
    if as_json:
        print_json(bag)
    else:
        echo(clean_lines(lines_of(bag)))


def ask_known(bag: "Description", gathered: "Gathered", client: "Client") -> None:
    """Ask the server which of the bag's files it has already, and note that in the description."""
    from covey.client.upload import Upload

    upload = Upload(client)
    blobs = add_all(upload, gathered.uploads)
    missing = {blob.digest for blob in upload.missing()}
    for shown, blob in zip(bag.uploads, blobs.values(), strict=True):
        shown.known = blob.digest not in missing


def lines_of(bag: "Description") -> list[str]:
    name = f" {bag.name}" if bag.name else ""
    more = ", and more can be appended" if bag.open else ""
    tasks = bag.taken.words if bag.taken else formats.count(bag.tasks, "task")
    lines = [f"bag{name}: {tasks}{more}; nothing is submitted", ""]
    for task in bag.first:
        values = formats.assignments(list(task.values), list(task.values.values()))
        shown = f" ({values})" if values else ""
        lines.append(f"task {task.task}{shown}: {formats.command(task.command)}")
    if bag.tasks > len(bag.first):
        lines.append(f"… and {bag.tasks - len(bag.first):,} more")
    lines += ["", *_classes(bag), "", *_files(bag)]
    for title, fact in _facts(bag):
        lines.append(f"{title:<9} {fact}")
    return lines + _policy(bag)


def _classes(bag: "Description") -> list[str]:
    by_rules = any(row.when for row in bag.classes)
    shown = [*bag.classes[1:], bag.classes[0]] if by_rules else bag.classes[:MOST_CLASSES]
    hidden = len(bag.classes) - len(shown)
    columns = [
        Column("tasks", right=True), Column("cores", right=True), Column("memory", right=True),
        Column("disk", right=True), Column("gpus", right=True), Column("time", right=True),
        *([Column("when")] if by_rules else []),
    ]  # fmt: skip
    rows = [
        [
            f"{row.tasks:,}",
            str(row.cores),
            formats.megabytes(row.memory_mb),
            formats.megabytes(row.disk_mb),
            str(row.gpus) if row.gpus else "–",
            formats.duration(row.limit_seconds) if row.limit_seconds else "–",
            *([row.when or "otherwise"] if by_rules else []),
        ]
        for row in shown
    ]
    lines = render(columns, rows).splitlines()
    if hidden:
        lines.append(f"… and {formats.count(hidden, 'other combination')} of resources")
        lines.append(f"(in all: {formats.need_range(bag.classes)})")
    if bag.counted < bag.tasks:
        lines.append(f"(of the first {bag.counted:,} tasks)")
    return lines


def _files(bag: "Description") -> list[str]:
    if not bag.uploads and not bag.urls:
        return ["files     none to upload"]
    total = sum(file.bytes for file in bag.uploads)
    text = f"{formats.count(len(bag.uploads), 'file')}, {formats.size(total)}"
    known = [file for file in bag.uploads if file.known]
    if known:
        text += f"; the server has {len(known)} of them already"
    lines = [f"files     {text}"]
    for file in bag.uploads[:MOST_FILES]:
        there = " (there already)" if file.known else ""
        lines.append(f"          {formats.size(file.bytes):>11}  {_file(file)}{there}")
    if len(bag.uploads) > MOST_FILES:
        lines.append(f"          … and {len(bag.uploads) - MOST_FILES:,} more")
    return lines + [f"          fetched by each host: {url}" for url in bag.urls]


def _file(file: "ShownFile") -> str:
    if not file.path:
        return "the script"
    path = os.path.relpath(file.path)
    if not file.places:
        return f"{path} (rows)"
    places = formats.some(file.places[:3], len(file.places))
    return path if places == path else f"{path} as {places}"


def _facts(bag: "Description") -> list[tuple[str, str]]:
    limits = bag.limits
    facts = []
    if bag.outputs or bag.optional_outputs:
        optional = [f"{pattern} (if there)" for pattern in bag.optional_outputs]
        most = f"at most {formats.megabytes(limits.output_mb)} a task"
        facts.append(("returns", f"{', '.join([*bag.outputs, *optional])}; {most}"))
    if bag.setup:
        facts.append(("setup", bag.setup.strip().splitlines()[0]))
    if bag.check:
        facts.append(("check", bag.check.strip().splitlines()[-1]))
    if bag.order == LONG_FIRST:
        facts.append(("order", "tasks with a longer time go first (--order given: as given)"))
    facts.append(("retries", _retries(bag)))
    pause = f"pauses after {formats.count(limits.breaker, 'failure')} without a success"
    facts.append(("breaker", pause if limits.breaker else "never pauses by itself"))
    if bag.broker:
        facts.append(("broker", bag.broker))
    if bag.finish_seconds:
        others = [name for name in ALGORITHMS if name != PRICE]
        unused = f" (the broker {bag.broker} does not use it)" if bag.broker in others else ""
        finish = f"{formats.duration(bag.finish_seconds)} after its submission{unused}"
        facts.append(("finish in", finish))
    return facts


def _policy(bag: "Description") -> list[str]:
    """The expressions in force, each with its origin."""
    from covey.core.match.policies import KEYS

    policy = bag.policy
    if policy.policy == PolicySpec():
        return [f"policy    {policy.preset} (the default)"]
    lines = [f"policy    {policy.preset}"]
    for expression in policy.expressions:
        text = " ".join(expression.text.split())
        lines.append(
            f"          {KEYS[expression.name]} = {text}  ({', '.join(expression.origins)})"
        )
    if policy.sticky_tail:
        lines.append("          a bag in its tail stays there")
    if policy.policy.failover_sites:
        sites = ", ".join(policy.policy.failover_sites)
        lines.append(f"          tasks that fail for good are tried once more on {sites}")
    return lines


def _retries(bag: "Description") -> str:
    limits = bag.limits
    text = str(limits.retries)
    if limits.retries and limits.grow_memory > 1:
        text += f"; after running out of memory, with x{limits.grow_memory:g} the memory"
    if limits.overtimes and any(task_class.limit_seconds for task_class in bag.classes):
        text += f"; {formats.overtimes(limits.overtimes, limits.grow_time)}"
    return text
