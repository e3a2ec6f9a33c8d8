"""What hosts and pilots publish about themselves, as people ask for it and see it."""

from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, TypeVar

import click

from covey.frontend.tables import Column, render
from covey.frontend.terminal import clean

USUAL = ("gpus", "cores", "size_mem_mb", "arch", "cpu_model", "os_version")

F = TypeVar("F", bound=Callable[..., Any])


def tag_options(function: F) -> F:
    """--tags and --where."""
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
    ctx: click.Context, param: click.Parameter, given: Sequence[str]
) -> list[tuple[str, str]]:
    tests = []
    for text in given:
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
    """A line each, and its tags: as a last column, cut where the terminal ends, or all of them
    under it."""
    if not all_tags:
        cells = [[*row, brief(own)] for row, own in zip(rows, tags, strict=True)]
        return render([*columns, Column("tags")], cells)
    titles, *lines = render(columns, rows).splitlines()
    told = [titles]
    for line, own in zip(lines, tags, strict=True):
        width = max(map(len, own), default=0)
        told += [line, *(clean(f"    {name:<{width}}  {own[name]}") for name in sorted(own))]
    return "\n".join(told)


def brief(tags: Mapping[str, str]) -> str:
    """What tasks have published, which has a colon in its name, then what is most often asked."""
    published = sorted(name for name in tags if ":" in name)
    chosen = [*published, *(name for name in USUAL if tags.get(name))]
    return " ".join(f"{name}={tags[name]}" for name in chosen)
