"""`--dry-run`: what a bag would be."""

import os
from typing import TYPE_CHECKING

from covey.cli.shared.commands import print_json
from covey.core.record.model import LONG_FIRST, PolicySpec
from covey.frontend import formats
from covey.frontend.submitting import add_all, size
from covey.frontend.tables import Column, render
from covey.frontend.terminal import clean_lines, echo

if TYPE_CHECKING:
    from covey.bagfile import Description, Gathered
    from covey.bagfile.description import ShownFile
    from covey.client.client import Client

MOST_FILES = 10
MOST_CLASSES = 10  # combinations of resources that parameters say


def show(gathered: "Gathered", client: "Client | None", as_json: bool) -> None:
    """The client, if a server runs, is asked which files it has."""
    from covey.bagfile import describe

    found = describe(gathered)
    if client is not None:
        ask_known(found, gathered, client)
    if as_json:
        print_json(found)
    else:
        echo(clean_lines(lines_of(found)))


def ask_known(found: "Description", gathered: "Gathered", client: "Client") -> None:
    from covey.client.upload import Upload

    asking = Upload(client)
    blobs = add_all(asking, gathered.uploads)
    missing = {blob.digest for blob in asking.missing()}
    for shown, blob in zip(found.uploads, blobs.values(), strict=True):
        shown.known = blob.digest not in missing


def lines_of(found: "Description") -> list[str]:
    name = f" {found.name}" if found.name else ""
    more = ", and more can be appended" if found.open else ""
    tasks = found.taken.words if found.taken else formats.count(found.tasks, "task")
    lines = [f"bag{name}: {tasks}{more}; nothing is submitted", ""]
    for task in found.first:
        told = formats.assignments(list(task.values), list(task.values.values()))
        shown = f" ({told})" if told else ""
        lines.append(f"task {task.task}{shown}: {formats.command(task.command)}")
    if found.tasks > len(found.first):
        lines.append(f"… and {found.tasks - len(found.first):,} more")
    lines += ["", *_classes(found), "", *_files(found)]
    for title, told in _facts(found):
        lines.append(f"{title:<9} {told}")
    return lines + _policy(found)


def _classes(found: "Description") -> list[str]:
    by_rules = any(one.when for one in found.classes)
    shown = [*found.classes[1:], found.classes[0]] if by_rules else found.classes[:MOST_CLASSES]
    hidden = len(found.classes) - len(shown)
    columns = [
        Column("tasks", right=True), Column("cores", right=True), Column("memory", right=True),
        Column("disk", right=True), Column("gpus", right=True), Column("time", right=True),
        *([Column("when")] if by_rules else []),
    ]  # fmt: skip
    rows = [
        [
            f"{one.tasks:,}",
            str(one.cores),
            formats.megabytes(one.memory_mb),
            formats.megabytes(one.disk_mb),
            str(one.gpus) if one.gpus else "–",
            formats.duration(one.limit_seconds) if one.limit_seconds else "–",
            *([one.when or "otherwise"] if by_rules else []),
        ]
        for one in shown
    ]
    lines = render(columns, rows).splitlines()
    if hidden:
        lines.append(f"… and {formats.count(hidden, 'other combination')} of resources")
        lines.append(f"(in all: {formats.need_range(found.classes)})")
    if found.counted < found.tasks:
        lines.append(f"(of the first {found.counted:,} tasks)")
    return lines


def _files(found: "Description") -> list[str]:
    if not found.uploads and not found.urls:
        return ["files     none to upload"]
    total = sum(file.bytes for file in found.uploads)
    told = f"{formats.count(len(found.uploads), 'file')}, {size(total)}"
    known = [file for file in found.uploads if file.known]
    if known:
        told += f"; the server has {len(known)} of them already"
    lines = [f"files     {told}"]
    for file in found.uploads[:MOST_FILES]:
        there = " (there already)" if file.known else ""
        lines.append(f"          {size(file.bytes):>9}  {_file(file)}{there}")
    if len(found.uploads) > MOST_FILES:
        lines.append(f"          … and {len(found.uploads) - MOST_FILES:,} more")
    return lines + [f"          fetched by each host: {url}" for url in found.urls]


def _file(file: "ShownFile") -> str:
    if not file.path:
        return "the script"
    path = os.path.relpath(file.path)
    if not file.places:
        return f"{path} (rows)"
    places = formats.some(file.places[:3], len(file.places))
    return path if places == path else f"{path} as {places}"


def _facts(found: "Description") -> list[tuple[str, str]]:
    limits = found.limits
    facts = []
    if found.outputs or found.optional_outputs:
        optional = [f"{pattern} (if there)" for pattern in found.optional_outputs]
        most = f"at most {formats.megabytes(limits.output_mb)} a task"
        facts.append(("returns", f"{', '.join([*found.outputs, *optional])}; {most}"))
    if found.setup:
        facts.append(("setup", found.setup.strip().splitlines()[0]))
    if found.check:
        facts.append(("check", found.check.strip().splitlines()[-1]))
    if found.order == LONG_FIRST:
        facts.append(("order", "tasks with a longer time go first (--order given: as given)"))
    facts.append(("retries", _retries(found)))
    pause = f"pauses after {formats.count(limits.breaker, 'failure')} without a success"
    facts.append(("breaker", pause if limits.breaker else "never pauses by itself"))
    return facts


def _policy(found: "Description") -> list[str]:
    """The expressions in force, each with where it comes from."""
    from covey.core.match.policies import KEYS

    policy = found.policy
    if policy.policy == PolicySpec():
        return [f"policy    {policy.preset} (the default)"]
    lines = [f"policy    {policy.preset}"]
    for one in policy.expressions:
        text = " ".join(one.text.split())
        lines.append(f"          {KEYS[one.name]} = {text}  ({', '.join(one.origins)})")
    if policy.sticky_tail:
        lines.append("          a bag in its tail stays there")
    if policy.policy.failover_sites:
        sites = ", ".join(policy.policy.failover_sites)
        lines.append(f"          tasks that fail for good are tried once more on {sites}")
    return lines


def _retries(found: "Description") -> str:
    limits = found.limits
    told = str(limits.retries)
    if limits.retries and limits.grow_memory > 1:
        told += f"; after running out of memory, with x{limits.grow_memory:g} the memory"
    if limits.overtimes and any(one.limit_seconds for one in found.classes):
        told += f"; {formats.overtimes(limits.overtimes, limits.grow_time)}"
    return told
