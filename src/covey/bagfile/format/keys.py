"""Every key of a bag file: what it may be, and what it means. The schema and all checks follow from
this table; docs/bagfile.md explains each key with examples."""

import re
from collections.abc import Mapping as TableOf
from collections.abc import Sequence
from os import PathLike
from typing import TypeAlias, TypedDict

from covey.bagfile.format.kinds import (
    AmountOf,
    Flag,
    Key,
    Kind,
    Listing,
    Mapping,
    OneOf,
    PerTask,
    Printable,
    Table,
    Text,
    Words,
)
from covey.bagfile.format.parts import Groups, InputOf, Parameters, RowsOf, RuleKind, Variables
from covey.bagfile.format.policy import PolicyOf
from covey.core.record.model import BAG_RANGES, GIVEN, LONG_FIRST
from covey.core.record.task_needs import RESOURCES as TASK_RESOURCES
from covey.core.values.amounts import Factor, Seconds, Size, Whole

Entries: TypeAlias = TableOf[str, object]


def _per_task(resource: str) -> Kind:
    return PerTask(AmountOf(TASK_RESOURCES[resource].amount))


NEEDS: dict[str, Key] = {
    "cores": Key(_per_task("cores"), "Cores that one task uses, or '{NAME}'. Default: 1."),
    "memory": Key(
        _per_task("memory"),
        "Memory of one task, such as '2 GB', or '{NAME}'; a task that uses more is stopped.",
    ),
    "disk": Key(_per_task("disk"), "Disk space of one task, such as '10 GB', or '{NAME}'."),
    "gpus": Key(_per_task("gpus"), "GPUs of one task, or '{NAME}'."),
    "time": Key(
        _per_task("time"),
        "Time that one task may take, such as '10m', or '{NAME}'; after that it is stopped.",
    ),
}
RESOURCES: dict[str, Key] = {
    **NEEDS,
    "pin": Key(Flag(), "Bind each task to cores of its own.", field="pin"),
    "when": Key(
        Listing(RuleKind(NEEDS), 100, single=False),
        "Other resources for tasks with certain values; the first match counts.",
    ),
}
RETRIES: dict[str, Key] = {
    "count": Key(
        AmountOf(Whole(*BAG_RANGES["retries"])), "How often a failed task is tried again."
    ),
    "memory": Key(
        AmountOf(Factor(*BAG_RANGES["grow_memory"])),
        "How much more memory after running out of it: 'x2' or '+50%'.",
        field="grow_memory",
    ),
    "time": Key(
        AmountOf(Factor(*BAG_RANGES["grow_time"])),
        "How much more time after the time limit. Default: 'x3'.",
        field="grow_time",
    ),
    "overtimes": Key(
        AmountOf(Whole(*BAG_RANGES["overtimes"])),
        "How often a task gets more time; this does not count as a retry. Default: 3.",
        field="overtimes",
    ),
}
VALIDATE: dict[str, Key] = {
    "exit": Key(
        Listing(AmountOf(Whole(0, 255)), 256), "Exit statuses that mean success. Default: 0."
    ),
    "files": Key(Listing(Text(least=1)), "Files that a task must have made to succeed (patterns)."),
    "check": Key(
        Text(lines=True, least=1),
        "A shell command, run after each task; exit status 0 means a good result.",
    ),
}


TOP: dict[str, Key] = {
    "name": Key(Text(), "What to call the bag.", field="name"),
    "notes": Key(Text(lines=True), "Anything that you want to remember about it.", field="notes"),
    "labels": Key(
        Mapping(Printable(), re.compile(r"[^=\s]+"), "without spaces and equals signs"),
        "Names and values to find it by.",
        field="labels",
    ),
    "command": Key(Words(), "What each task runs; {NAME} stands for a parameter's value."),
    "script": Key(
        Text(lines=True, least=1),
        "A program, as text, that each task runs; parameters are environment variables.",
    ),
    "args": Key(Words(), "Arguments of the script; {NAME} stands for a parameter's value."),
    "parameters": Key(Parameters(), "Names and values; every combination is a task."),
    "zip": Key(Groups(), "Parameters that are taken side by side, not combined."),
    "rows": Key(RowsOf(), "A file (.csv, .jsonl, .txt) whose rows are parameters."),
    "open": Key(Flag(), "More tasks may be appended until the bag is closed.", field="open"),
    "inputs": Key(
        Listing(InputOf()),
        "Files that tasks find in their directory: paths, patterns, directories, URLs.",
    ),
    "outputs": Key(Listing(Text(least=1)), "Files to return (patterns); each must be there."),
    "optional_outputs": Key(Listing(Text(least=1)), "Files to return, if they are there."),
    "output_limit": Key(
        AmountOf(Size("m", "1 TB")),
        "Size of what one task may return. Default: '1 GB'.",
        field="output_mb",
    ),
    "log_limit": Key(
        AmountOf(Size("k", "1 MB")),
        "How much of each output stream is kept: '64 kB'.",
        field="log_kb",
    ),
    "environment": Key(Variables(), "Environment variables of the tasks."),
    "export": Key(Flag(), "Every parameter is an environment variable too."),
    "chdir": Key(Text(least=1), "Run all tasks in this directory, not in one of their own."),
    "setup": Key(
        Text(lines=True, least=1),
        "A shell script, run once per host before its tasks.",
        field="setup",
    ),
    "setup_time": Key(
        AmountOf(Seconds(*BAG_RANGES["setup_seconds"])),
        "Time that the setup may take. Default: '30m'.",
        field="setup_seconds",
    ),
    "resources": Key(Table(RESOURCES), "What one task needs of its host."),
    "order": Key(
        OneOf(LONG_FIRST, GIVEN),
        "Tasks with a longer time go first ('long-first', the default), or tasks go in the order "
        "in which they are given.",
        field="order",
    ),
    "retries": Key(Table(RETRIES), "What happens after failures."),
    "validate": Key(Table(VALIDATE), "What makes a result a good one."),
    "policy": Key(
        PolicyOf(),
        "Where tasks run, and when a task gets a second attempt: a preset, or a table of keys.",
        field="policy",
    ),
    "broker": Key(
        Text(least=1),
        "What splits its pilots over sites: room, static, measured, random, least-loaded, price, "
        "or what the server has besides. Default: as the server says.",
        field="broker",
    ),
    "finish_in": Key(
        AmountOf(Seconds(*BAG_RANGES["finish_seconds"])),
        "Time after its submission in which the bag should be done: with the broker price, the "
        "cheapest sites that manage that get its pilots.",
        field="finish_seconds",
    ),
    "breaker": Key(
        AmountOf(Whole(*BAG_RANGES["breaker"])),
        "Number of failures in a row, without a success, that pause the bag; 0: never. Default: "
        "30.",
        field="breaker",
    ),
    "idempotent": Key(
        Flag(), "Running a task twice does no harm. Default: true.", field="idempotent"
    ),
}
BAG = Table(TOP)


class BagKeywords(TypedDict, total=False):
    """The same keys as keywords of `covey.submit`, with the types of their values in Python."""

    script: str | None
    args: str | Sequence[object] | None
    parameters: Entries | None
    zip: bool | Sequence[str] | Sequence[Sequence[str]] | None
    rows: object
    open: bool | None
    inputs: str | PathLike[str] | Entries | Sequence[object] | None
    outputs: str | Sequence[str] | None
    optional_outputs: str | Sequence[str] | None
    output_limit: str | None
    log_limit: str | None
    environment: Entries | None
    export: bool | None
    chdir: str | PathLike[str] | None
    setup: str | None
    setup_time: str | float | None
    resources: Entries | None
    order: str | None
    retries: int | Entries | None
    validate: Entries | None
    policy: str | Entries | None
    broker: str | None
    finish_in: str | float | None
    breaker: int | None
    idempotent: bool | None
    name: str | None
    notes: str | None
    labels: Entries | None
