"""Tags of hosts and pilots: the options --tags and --where, and columns of tables."""

from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, TypeVar

import click

from covey.frontend.tables import Column, render
from covey.frontend.terminal import clean

USUAL = ("gpus", "cores", "size_mem_mb", "arch", "cpu_model", "os_version")

F = TypeVar("F", bound=Callable[..., Any])


def tag_options(function: F) -> F:
    """Add the options --tags and --where."""
    function = click.option("--tags", "all_tags", is_flag=True, help="Show all tags of each.")(
        function
    )
    return click.option(
        "--where",
        "tests",
        multiple=True,
        callback=_tests,
        metavar="NAME=VALUE",
        help="Only those with this tag (or site, host); * stands for anything; repeatable.",
    )(function)


def _tests(
    ctx: click.Context, param: click.Parameter, texts: Sequence[str]
) -> list[tuple[str, str]]:
    tests = []
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise click.BadParameter(f"{text!r}: write NAME=VALUE, such as OS=*Linux*", ctx, param)
        tests.append((name.strip(), value.strip()))
    return tests


def matches(facts: Mapping[str, str], tests: Sequence[tuple[str, str]]) -> bool:
    return all(fnmatchcase(facts.get(name, ""), value) for name, value in tests)


def table(
    columns: Sequence[Column],
    rows: Sequence[Sequence[str]],
    tags: Sequence[Mapping[str, str]],
    all_tags: bool,
) -> str:
    """A table of hosts or pilots. The usual tags are the last column. With `all_tags`, all tags of
    a row follow below its line."""
    if not all_tags:
        cells = [[*row, brief(own)] for row, own in zip(rows, tags, strict=True)]
        return render([*columns, Column("tags")], cells)
    titles, *lines = render(columns, rows).splitlines()
    result = [titles]
    for line, own in zip(lines, tags, strict=True):
        width = max(map(len, own), default=0)
        result += [line, *(clean(f"    {name:<{width}}  {own[name]}") for name in sorted(own))]
    return "\n".join(result)


def brief(tags: Mapping[str, str]) -> str:
    """The tags that tasks have published (their names have a colon), then the usual tags."""
    published = sorted(name for name in tags if ":" in name)
    chosen = [*published, *(name for name in USUAL if tags.get(name))]
    return " ".join(f"{name}={tags[name]}" for name in chosen)
