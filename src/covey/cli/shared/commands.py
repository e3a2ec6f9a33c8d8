"""What all commands share: their common options, `--json`, and the settings these lead to."""

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
_FLAGS = "covey.flags"
_ABOVE = "covey.above"
_TOLD = "covey.told"  # unknown variables
_RANGE = re.compile(r"\s*\[[^\]]*<=?x[^\]]*\]|\s*\[x>=?[^\]]*\]")  # click's way to say N >= 1


class PathName(click.ParamType[str]):
    """Text for which a shell offers files or directories; what it must be is checked where it is
    used."""

    name = "text"

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> "list[CompletionItem]":
        from click.shell_completion import CompletionItem

        return [CompletionItem(incomplete, type=self.kind)]


FILE_NAME = PathName("file")
DIR_NAME = PathName("dir")


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


class BagName(click.ParamType[str]):
    """A bag by its number, name or label; a shell offers what there is."""

    name = "text"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> "list[CompletionItem]":
        from covey.cli.shared.completion import bag_names

        return bag_names(ctx, incomplete)


class ColumnNames(click.ParamType[str]):
    """Columns of a bag's results, with commas between them."""

    name = "text"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> "list[CompletionItem]":
        from covey.cli.shared.completion import column_names

        return column_names(ctx, incomplete)


class PresetName(click.ParamType[str]):
    """A preset of policies, or anything else: that is checked where it is used."""

    name = "text"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> "list[CompletionItem]":
        from covey.cli.shared.completion import preset_names

        return preset_names(incomplete)


BAG_NAME = BagName()
COLUMN_NAMES = ColumnNames()
PRESET_NAME = PresetName()


def bag_argument(function: F) -> F:
    return click.argument("bag", required=False, default="latest", metavar="[BAG]", type=BAG_NAME)(
        function
    )


def bags_argument(function: F) -> F:
    """Several of them."""
    return click.argument("bags", nargs=-1, metavar="[BAG]…", type=BAG_NAME)(function)


def settle(**flags: object) -> "Settled":
    """The settings, with the common flags and the command's own (`serve__port` is serve.port)."""
    from covey import config

    given: dict[str, object] = {key.replace("__", "."): value for key, value in flags.items()}
    context = click.get_current_context()
    told = context.meta
    given.update(told.get(_FLAGS, {}))
    found = config.load(given)
    if found.above and not told.get(_ABOVE):
        told[_ABOVE] = True
        say(f"using {found.above} from a parent directory (to use one here: --dir .covey)")
    if not told.get(_TOLD):
        told[_TOLD] = True
        for text in config.unknown_variables(os.environ):
            say(text)
    return found


def settings_of(ctx: click.Context) -> "Config":
    """The settings while a shell completes: options have not been called back."""
    from covey import config

    names = ("dir", "server", "token_file", "ca")
    given = {name: ctx.params.get(name) for name in names}
    return config.load({**given, **ctx.meta.get(_FLAGS, {})}).config


def settings(**flags: object) -> "Config":
    return settle(**flags).config


def print_json(value: object) -> None:
    """One value; indented when a person looks at it."""
    import msgspec

    data = msgspec.json.encode(value)
    if sys.stdout.isatty():
        data = msgspec.json.format(data, indent=2)
    terminal.echo_json(data.decode())


def leave(status: int) -> NoReturn:
    click.get_current_context().exit(status)
