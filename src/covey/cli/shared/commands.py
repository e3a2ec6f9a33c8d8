"""What all commands share: common options, `--json`, and the settings with these options
applied."""

import os
import re
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from covey.frontend import terminal
from covey.frontend.terminal import say

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from covey.config import Config, Settled

F = TypeVar("F", bound=Callable[..., Any])

_verbose = False
# Keys of a click context's `meta`.
_FLAGS = "covey.flags"  # common options, by name
_SAID_PARENT = "covey.said_parent"  # the note about a parent's directory was printed
_SAID_UNKNOWN = "covey.said_unknown"  # the notes about unknown variables were printed
_RANGE = re.compile(r"\s*\[[^\]]*<=?x[^\]]*\]|\s*\[x>=?[^\]]*\]")  # [x>=1], as click writes it


class Completed(click.ParamType[str]):
    """Text for which a shell offers words (see `completion`). The command itself checks the
    text."""

    name = "text"

    def __init__(self, what: str) -> None:
        self.what = what

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> "list[CompletionItem]":
        from covey.cli.shared.completion import OFFERS

        return OFFERS[self.what](ctx, incomplete)


FILE_NAME = Completed("file")
DIR_NAME = Completed("dir")
BAG_NAME = Completed("bag")
COLUMN_NAMES = Completed("columns")
PRESET_NAME = Completed("preset")
TOPIC = Completed("topic")


def is_verbose() -> bool:
    return _verbose


def _be_verbose(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    global _verbose
    _verbose = _verbose or value


def _keep(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    if value is not None:
        ctx.meta.setdefault(_FLAGS, {})[param.name] = value


COMMON: list[click.Parameter] = [
    click.Option(
        ["--dir"],
        metavar="DIR",
        type=DIR_NAME,
        callback=_keep,
        expose_value=False,
        help="Where the bags are kept.  [default: .covey]",
    ),
    click.Option(
        ["--server"],
        metavar="URL",
        callback=_keep,
        expose_value=False,
        help="Use this server instead of the directory's own.",
    ),
    click.Option(
        ["--token-file"],
        metavar="FILE",
        type=FILE_NAME,
        callback=_keep,
        expose_value=False,
        help="File with the token for that server.",
    ),
    click.Option(
        ["--ca"],
        metavar="FILE",
        type=FILE_NAME,
        callback=_keep,
        expose_value=False,
        help="File with the certificate authority to trust for that server.",
    ),
    click.Option(
        ["-v", "--verbose"],
        is_flag=True,
        callback=_be_verbose,
        expose_value=False,
        help="Show a traceback when something goes wrong.",
    ),
]


class ReaderLeft(Exception):
    """Nobody reads our output any more, as in `covey results | head`."""


class Command(click.Command):
    """A command with the common options, listed apart from its own."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        taken = {param.name for param in self.params}
        self.common = [param for param in COMMON if param.name not in taken]
        self.params.extend(self.common)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        own: list[tuple[str, str]] = []
        common: list[tuple[str, str]] = []
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None and isinstance(param, click.Option):
                shared = param in self.common or "--help" in param.opts
                (common if shared else own).append((record[0], _RANGE.sub("", record[1])))
        for title, records in (("Options", own), ("Common options", common)):
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


def json_option(function: F) -> F:
    option = click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")
    return option(function)


def bag_argument(function: F) -> F:
    return click.argument("bag", required=False, default="latest", metavar="[BAG]", type=BAG_NAME)(
        function
    )


def bags_argument(function: F) -> F:
    return click.argument("bags", nargs=-1, metavar="[BAG]…", type=BAG_NAME)(function)


def settle(**flags: object) -> "Settled":
    """The settings, with the common flags and the command's own (`serve__port` is serve.port)."""
    from covey import config

    options: dict[str, object] = {key.replace("__", "."): value for key, value in flags.items()}
    meta = click.get_current_context().meta
    options.update(meta.get(_FLAGS, {}))
    settled = config.load(options)
    if settled.above and not meta.get(_SAID_PARENT):
        meta[_SAID_PARENT] = True
        say(f"using {settled.above} from a parent directory (to use one here: --dir .covey)")
    if not meta.get(_SAID_UNKNOWN):
        meta[_SAID_UNKNOWN] = True
        for text in config.unknown_variables(os.environ):
            say(text)
    return settled


def settings_of(ctx: click.Context) -> "Config":
    """The settings while a shell completes. Click has not called the options' callbacks then."""
    from covey import config

    names = ("dir", "server", "token_file", "ca")
    options = {name: ctx.params.get(name) for name in names}
    return config.load({**options, **ctx.meta.get(_FLAGS, {})}).config


def settings(**flags: object) -> "Config":
    return settle(**flags).config


def print_json(value: object) -> None:
    """Print one value, indented if the output is a terminal."""
    import msgspec

    data = msgspec.json.encode(value)
    if sys.stdout.isatty():
        data = msgspec.json.format(data, indent=2)
    terminal.echo_json(data.decode())


def leave(status: int) -> NoReturn:
    click.get_current_context().exit(status)
