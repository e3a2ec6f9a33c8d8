"""The `covey` command, its help, and how it ends.

Only click is imported until a command is chosen, so that help and completion are fast. The table
below has the module of every command, and one line about it. To add a command, add its line.

Exit status: 0 well, 1 failure, 2 misuse.
"""

import importlib
import os
import sys
from typing import NamedTuple, NoReturn

import click

from covey import __version__
from covey.cli.shared.commands import COMMON, ReaderLeft, is_verbose

EPILOG = """\b
Every command explains itself, with an example: covey COMMAND --help
Pages about policies, bag files, sites and more: covey help
Complete commands with the TAB key: eval "$(_COVEY_COMPLETE=bash_source covey)"
(or zsh_source, or fish_source; put it in your shell's start-up file)
"""


class Lazy(NamedTuple):
    """Where a command is defined, and what it does in a few words."""

    target: str  # module:attribute
    summary: str


SECTIONS: dict[str, dict[str, Lazy]] = {
    "Run": {
        "run": Lazy("covey.cli.bags.run:run", "Run a command over parameters and watch it."),
        "submit": Lazy("covey.cli.bags.run:submit", "Submit a bag and return at once."),
        "init": Lazy("covey.cli.bags.init:init", "Write an example of a bag file."),
        "append": Lazy("covey.cli.bags.append:append", "Add tasks to an open bag."),
        "close": Lazy("covey.cli.bags.append:close", "Close an open bag: no more tasks follow."),
        "watch": Lazy("covey.cli.bags.watch:watch", "Follow a bag until it is over."),
        "retry": Lazy("covey.cli.bags.control:retry", "Run failed tasks of a bag again."),
        "pause": Lazy("covey.cli.bags.control:pause", "Start no more tasks of a bag for now."),
        "resume": Lazy("covey.cli.bags.control:resume", "Continue a paused bag."),
        "cancel": Lazy("covey.cli.bags.control:cancel", "Stop a bag for good."),
    },
    "Look": {
        "bags": Lazy("covey.cli.bags.bags:bags", "List the bags."),
        "show": Lazy("covey.cli.bags.bags:show", "Show one bag."),
        "status": Lazy("covey.cli.bags.bags:status", "Print the state of a bag in one word."),
        "tasks": Lazy("covey.cli.bags.tasks:tasks", "List the tasks of a bag."),
        "explain": Lazy(
            "covey.cli.results.explain:explain", "Explain why tasks wait, or run where they run."
        ),
        "failures": Lazy("covey.cli.results.failures:failures", "Show why tasks failed."),
        "logs": Lazy("covey.cli.results.logs:logs", "Print what tasks printed."),
        "results": Lazy("covey.cli.results.results:results", "Print the results as one table."),
        "pull": Lazy("covey.cli.results.pull:pull", "Get the files that tasks returned."),
        "hosts": Lazy("covey.cli.machines.hosts:hosts", "List the hosts, their slots and tags."),
        "pilots": Lazy("covey.cli.machines.pilots:pilots", "List the pilots that run tasks."),
        "pilot-command": Lazy(
            "covey.cli.machines.pilot_command:pilot_command",
            "Print a command that starts a pilot anywhere.",
        ),
    },
    "Manage": {
        "serve": Lazy("covey.cli.server.serve:serve", "Run a server in the foreground."),
        "stop": Lazy("covey.cli.server.serve:stop", "Stop the server of this directory."),
        "dismiss": Lazy("covey.cli.machines.pilots:dismiss", "Shut pilots down."),
        "token": Lazy("covey.cli.server.token:token", "Manage who may use a shared server."),
        "policy": Lazy(
            "covey.cli.language.policy:policy", "Show, check and change the policy of a bag."
        ),
        "site": Lazy(
            "covey.cli.machines.site:site", "Show, add, test and stop the sites of pilots."
        ),
        "purge": Lazy("covey.cli.bags.purge:purge", "Remove logs, files or bags for good."),
        "doctor": Lazy("covey.cli.server.doctor:doctor", "Check that covey can work here."),
        "config": Lazy("covey.cli.server.settings:config", "Show the settings and their origins."),
        "classad": Lazy(
            "covey.cli.language.classad:classad", "Try, check and format policy expressions."
        ),
        "lab": Lazy("covey.cli.language.lab:lab", "Try policies in simulated worlds."),
        "help": Lazy("covey.cli.help:help_", "Show a page of the documentation."),
        "schema": Lazy("covey.cli.bags.init:schema", "Print the JSON Schema of bag files."),
    },
}
COMMANDS = {name: lazy for section in SECTIONS.values() for name, lazy in section.items()}


class LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name].target.partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            from covey.core.values.suggestions import did_you_mean

            ctx.fail(f"there is no command '{args[0]}'{did_you_mean(args[0], COMMANDS)}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # click would call this a failure
            raise ReaderLeft from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, commands in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name, lazy.summary) for name, lazy in commands.items()])


@click.group(
    cls=LazyGroup,
    epilog=EPILOG,
    params=list(COMMON),
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(
    __version__, "-V", "--version", prog_name="covey", message="%(prog)s %(version)s"
)
def covey() -> None:
    """One queue over every machine you can reach.

    \b
    covey run -p seed=1..100 -- python3 fit.py --seed {seed}
    covey results --format csv -o fits.csv
    """


def _open_closed_streams() -> None:
    """Open /dev/null for each standard stream that is closed, as in `covey run … >&-`. Otherwise
    the next file or socket would get the stream's number, and what is printed would go there."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            null = os.open(os.devnull, os.O_RDWR)
            if null != number:
                os.dup2(null, number)
                os.close(null)
            os.set_inheritable(number, True)
            setattr(sys, name, open(number, mode, encoding="utf-8"))  # noqa: SIM115


def main() -> NoReturn:
    """Run the command line and exit. An error is reported in one or two lines."""
    _open_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        status = covey.main(prog_name="covey", standalone_mode=False)
        sys.stdout.flush()
    except BaseException as error:
        from covey.cli.shared.failure import explain

        status = explain(error, is_verbose())
    sys.exit(status if isinstance(status, int) else 0)
