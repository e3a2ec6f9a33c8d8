"""From options to a bag: what `covey run` and `covey submit` understand."""

import getpass
import os
import re
import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from covey.cli.base import say

if TYPE_CHECKING:
    from covey.core.model import BagSpec

F = TypeVar("F", bound=Callable[..., Any])

# What a program needs to be found and to behave as it does here.
CAPTURED = (
    "PATH",
    "LD_LIBRARY_PATH",
    "PYTHONPATH",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "CONDA_DEFAULT_ENV",
    "LANG",
    "LC_ALL",
    "OMP_NUM_THREADS",
)
UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


class Request(NamedTuple):
    """The options of a submission, as they were given."""

    parameters: tuple[str, ...]
    zipped: bool
    retries: int | None
    limit: float
    name: str
    env: tuple[str, ...]
    chdir: str | None
    not_idempotent: bool
    command: tuple[str, ...]


def _seconds(ctx: click.Context, param: click.Parameter, text: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhd]?)", text.strip())
    if match is None:
        raise click.BadParameter(f"{text!r}: write seconds, or 90s, 5m, 2h, 1d", ctx, param)
    return float(match[1]) * UNITS[match[2]]


OPTIONS: list[Callable[[F], F]] = [
    click.option(
        "-p",
        "parameters",
        metavar="NAME=VALUES",
        multiple=True,
        help="A parameter: 1..1000, 0..1..0.1, a,b,c or @file. All combinations are run.",
    ),
    click.option(
        "--zip", "zipped", is_flag=True, help="Take the parameters side by side, not combined."
    ),
    click.option(
        "--retries",
        type=click.IntRange(min=0),
        metavar="N",
        help="How often a failed task is tried again.  [default: 0]",
    ),
    click.option(
        "--limit",
        callback=_seconds,
        default="0",
        show_default=False,
        metavar="TIME",
        help="A task that runs longer is stopped and has failed: 90, 90s, 5m, 2h.",
    ),
    click.option("--name", default="", metavar="NAME", help="What to call the bag."),
    click.option(
        "--env",
        multiple=True,
        metavar="NAME[=VALUE]",
        help="An environment variable for the tasks, from here or with a value.",
    ),
    click.option(
        "--chdir",
        metavar="DIR",
        help="Run all tasks in DIR, instead of each in an empty directory of its own.",
    ),
    click.option(
        "--not-idempotent",
        is_flag=True,
        help="Running a task twice does harm: never do so without being told.",
    ),
]


def submission_options(function: F) -> F:
    """The command line of a submission; the function gets a `request`."""
    function = click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)(function)
    for option in reversed(OPTIONS):
        function = option(function)
    return function


def split_request(options: dict[str, Any]) -> Request:
    """Take a Request out of a command's options, leaving the others."""
    return Request(**{field: options.pop(field) for field in Request._fields})


def build(request: Request, default_retries: int) -> "BagSpec":
    """Raises InvalidBag, with what to do, unless this can be run."""
    from covey.cli.template import absolute_command, check_placeholders
    from covey.cli.values import parse_space
    from covey.core import space
    from covey.core.model import BagSpec

    points = parse_space(request.parameters, request.zipped)
    space.check(points)
    check_placeholders(request.command, space.names(points), say)
    chdir = _directory(request.chdir)
    return BagSpec(
        argv=absolute_command(request.command, chdir, say),
        space=points,
        name=request.name,
        owner=_user(),
        key=secrets.token_hex(16),
        env=environment(request.env, os.environ),
        chdir=chdir,
        retries=default_retries if request.retries is None else request.retries,
        limit_seconds=request.limit,
        idempotent=not request.not_idempotent,
    )


def environment(
    asked: tuple[str, ...], environ: "os._Environ[str] | dict[str, str]"
) -> dict[str, str]:
    captured = {name: environ[name] for name in CAPTURED if name in environ}
    for text in asked:
        name, equals, value = text.partition("=")
        if not name:
            raise click.UsageError(f"--env {text}: write --env NAME or --env NAME=VALUE")
        if not equals and name not in environ:
            raise click.UsageError(f"--env {name}: it is not set here; write --env {name}=VALUE")
        captured[name] = value if equals else environ[name]
    return captured


def _directory(chdir: str | None) -> str:
    if chdir is None:
        return ""
    path = os.path.abspath(os.path.expanduser(chdir))
    if not os.path.isdir(path):
        raise click.UsageError(f"--chdir {chdir}: there is no such directory")
    return path


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())
