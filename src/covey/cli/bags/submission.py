"""From options to a bag: the command line of `covey run` and `covey submit`.

Every option is a key of a bag file. So `covey.bagfile` reads and checks options and bag files by
the same rules. An option replaces the value in the file.
"""

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from covey.cli.shared.commands import DIR_NAME, FILE_NAME, PRESET_NAME, Command
from covey.cli.shared.standard_input import form_of, lines_of_input, spooled
from covey.core.record.model import GIVEN, LONG_FIRST
from covey.frontend.terminal import say

if TYPE_CHECKING:
    from covey.bagfile import Gathered, Sheet

F = TypeVar("F", bound=Callable[..., Any])

TASKS, FILES = "Tasks", "Files and environment"
NEEDS, FAILURES, BAG = "Needs of one task", "Failures", "The bag"
POLICY = "Policy"
GROUPS = (TASKS, FILES, NEEDS, FAILURES, POLICY, BAG)


class Option(click.Option):
    """An option, with the heading under which help lists it."""

    def __init__(self, *args: Any, group: str = BAG, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.group = group


class Number(click.types.IntParamType):
    """A whole number, or text with {NAME} that becomes a number for each task."""

    def convert(self, value: Any, param: Any, ctx: click.Context | None) -> Any:
        if isinstance(value, str) and "{" in value:
            return value
        return super().convert(value, param, ctx)


NUMBER = Number()


class Choice(NamedTuple):
    """An option, and the key of a bag file that it sets."""

    flags: tuple[str, ...]
    group: str
    key: tuple[str, ...]  # empty if the option does more than set one key
    rest: dict[str, Any]

    @property
    def name(self) -> str:
        names = [flag for flag in self.flags if not flag.startswith("-")]
        return names[0] if names else self.flags[-1].lstrip("-").replace("-", "_")

    def decorate(self, function: F) -> F:
        return click.option(*self.flags, cls=Option, group=self.group, **self.rest)(function)


def _option(group: str, key: str, *flags: str, **rest: Any) -> Choice:
    return Choice(flags, group, tuple(key.split(".")) if key else (), rest)


def _flag(group: str, key: str, *flags: str, **rest: Any) -> Choice:
    return _option(group, key, *flags, is_flag=True, **rest)


PARAMETER_OPTIONS: list[Choice] = [
    _option(
        TASKS, "", "-p", "parameters", metavar="NAME=VALUES", multiple=True,
        help="A parameter: 1..1000, 0..1..0.1, a,b,c or @file. All combinations are run.",
    ),
    _flag(TASKS, "", "--zip", "zipped", help="Take the parameters side by side, not combined."),
    _option(
        TASKS, "", "--rows", metavar="FILE", type=FILE_NAME,
        help="Parameters from the rows of a .csv, .jsonl or .txt file; - reads standard input.",
    ),
    _option(
        TASKS, "", "--lines", metavar="FILE", type=FILE_NAME,
        help="Each line of a file as {line}; - reads standard input, as does {} in the command.",
    ),
]  # fmt: skip
SELECTION_OPTIONS: list[Choice] = [
    _option(
        TASKS, "", "--first", metavar="N", type=int,
        help="Submit only the first N tasks, to try them.",
    ),
    _option(
        TASKS, "", "--where", metavar="TEST", multiple=True,
        help="Submit only tasks whose parameters meet this: 'lr < 0.1 && n == 2'. The same "
        "comparisons as in 'covey results --where'; repeatable, and all must hold.",
    ),
]  # fmt: skip
OPTIONS: list[Choice] = [
    _option(
        TASKS, "", "-f", "--file", "file", metavar="FILE", type=FILE_NAME,
        help="A bag file; 'covey init' writes one. Options override what it says.",
    ),
    *PARAMETER_OPTIONS,
    *SELECTION_OPTIONS,
    _flag(TASKS, "open", "--open", help="More tasks may be added later: covey append, covey "
    "close."),
    _option(
        FILES, "inputs", "--input", "inputs", metavar="PATH", type=FILE_NAME, multiple=True,
        help="A file, directory, pattern or URL to put into each task's directory. With {NAME} "
        "in it, each task gets a file of its own.",
    ),
    _option(
        FILES, "outputs", "--output", "outputs", metavar="PATTERN", multiple=True,
        help="Files that a task must make, to be returned.",
    ),
    _option(
        FILES, "optional_outputs", "--optional-output", "optional_outputs", metavar="PATTERN",
        multiple=True, help="Files to return if they are there.",
    ),
    _option(
        FILES, "output_limit", "--output-limit", metavar="SIZE",
        help="The most that a task may return.  [default: 1 GB]",
    ),
    _option(
        FILES, "", "--env", multiple=True, metavar="NAME[=VALUE]",
        help="An environment variable for the tasks. Without a VALUE, it has the value of this "
        "shell.",
    ),
    _flag(
        FILES, "", "--env-all",
        help="All environment variables of this shell, except those that look like secrets. The "
        "record keeps them, and every host that runs the tasks sees them.",
    ),
    _flag(FILES, "export", "--export", help="Every parameter is an environment variable too."),
    _option(
        FILES, "chdir", "--chdir", metavar="DIR", type=DIR_NAME,
        help="Run all tasks in DIR, instead of each in an empty directory of its own.",
    ),
    _option(
        FILES, "setup", "--setup", metavar="SHELL",
        help="Run this once per host, before the bag's first task there.",
    ),
    _option(
        NEEDS, "resources.cores", "--cores", type=NUMBER, metavar="N",
        help="Cores. Here and in the next four, {NAME} takes the amount from a parameter: "
        "--cores '{ncores}' --memory '{mem} GB'.",
    ),
    _option(
        NEEDS, "resources.memory", "--memory", metavar="SIZE",
        help="Memory: 500MB, 2GB. A task that takes more is stopped and has failed.",
    ),
    _option(NEEDS, "resources.disk", "--disk", metavar="SIZE", help="Disk space."),
    _option(NEEDS, "resources.gpus", "--gpus", type=NUMBER, metavar="N", help="GPUs."),
    _option(
        NEEDS, "resources.time", "--time", "time", metavar="TIME",
        help="A task that runs longer is stopped, and run again with three times the time, up to "
        "--overtimes times; then it has failed: 90, 90s, 5m, 2h.",
    ),
    _flag(NEEDS, "resources.pin", "--pin", help="Bind each task to cores of its own."),
    _option(
        FAILURES, "retries.count", "--retries", type=int, metavar="N",
        help="How often a failed task is tried again.  [default: 0]",
    ),
    _option(
        FAILURES, "retries.overtimes", "--overtimes", type=int, metavar="N",
        help="How often a task over its --time is given more time.  [default: 3]",
    ),
    _option(
        FAILURES, "retries.memory", "--retry-memory", metavar="MORE",
        help="After running out of memory, try again with this much more: x2, +50%.",
    ),
    _option(
        FAILURES, "validate.exit", "--ok-exit", "ok_exit", type=int,
        multiple=True, metavar="N", help="An exit status that means success.  [default: 0]",
    ),
    _option(
        FAILURES, "validate.files", "--expect-file", "expect_file", metavar="PATTERN",
        multiple=True, help="A file without which a task has failed.",
    ),
    _option(
        FAILURES, "validate.check", "--check", metavar="SHELL",
        help="Run this after each task, in its directory; 0 means a good result.",
    ),
    _option(
        FAILURES, "breaker", "--breaker", type=int, metavar="N",
        help="Pause the bag after N failures in a row without a success; 0: never.  [default: 30]",
    ),
    _flag(
        FAILURES, "", "--not-idempotent",
        help="Running a task twice does harm: never do so unless asked to.",
    ),
    _option(
        POLICY, "", "--policy", "policy", multiple=True, metavar="PRESET|KEY=VALUE",
        type=PRESET_NAME,
        help="throughput, fast-tail, reliable-tail or frugal; or a key of [policy], such as "
        "rank=Host.Memory or avoid_hosts=a,b (covey help policies).  [default: throughput]",
    ),
    _option(
        POLICY, "policy.deadline", "--deadline", metavar="TIME",
        help="A task that has not ended this long after it was sent is also sent to another "
        "host: 30m.",
    ),
    _option(
        POLICY, "policy.only_sites", "--only-sites", metavar="NAMES",
        help="Run on these sites only: a,b.",
    ),
    _option(
        POLICY, "broker", "--broker", metavar="NAME",
        help="What splits the bag's pilots over sites: room, static, measured, random, "
        "least-loaded, price (covey help sites).  [default: as the server says]",
    ),
    _option(
        POLICY, "finish_in", "--finish-in", metavar="TIME",
        help="When the bag should be done, from now on: 6h. For --broker price.",
    ),
    _option(
        BAG, "order", "--order", type=click.Choice((LONG_FIRST, GIVEN)),
        help="long-first: tasks with a longer --time go first; given: tasks go in the order in "
        "which they are given.  [default: long-first]",
    ),
    _option(BAG, "name", "--name", metavar="NAME", help="What to call the bag."),
    _option(
        BAG, "", "--label", "labels", multiple=True, metavar="NAME=VALUE",
        help="Something to find the bag by.",
    ),
    _option(BAG, "notes", "--notes", metavar="TEXT", help="Anything to remember about it."),
    _option(
        BAG, "", "--key", metavar="KEY",
        help="Key of a submission that was not confirmed: submit it again without making a "
        "second bag.",
    ),
]  # fmt: skip


class SubmissionCommand(Command):
    """A command whose help has groups. All words after the first belong to the task's command,
    unless the first word is a bag file: `covey run FILE.toml --more-options`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, args if ctx.resilient_parsing else self._with_f(ctx, args))

    def _with_f(self, ctx: click.Context, args: list[str]) -> list[str]:
        """The arguments with -f before the bag file, if the first word is one."""
        words = self.make_parser(ctx).parse_args(args=list(args))[0].get("command") or ()
        if not isinstance(words, tuple) or not words or not words[0].endswith(".toml"):
            return args
        before = args[: len(args) - len(words)]
        return args if before[-1:] == ["--"] else [*before, "-f", *words]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, list[tuple[str, str]]] = {group: [] for group in GROUPS}
        shared = []
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is None or not isinstance(param, click.Option):
                continue
            if param in self.common or "--help" in param.opts:
                shared.append(record)
            else:
                sections[param.group if isinstance(param, Option) else BAG].append(record)
        for title, records in {**sections, "Common options": shared}.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


def submission_options(function: F) -> F:
    """Add all options of a submission. The function gets them as keywords."""
    function = click.argument(
        "command", nargs=-1, type=FILE_NAME, metavar="[FILE.toml | COMMAND...]"
    )(function)
    for choice in reversed(OPTIONS):
        function = choice.decorate(function)
    return function


def parameter_options(function: F) -> F:
    """Add only the options that say which tasks there are."""
    for choice in reversed(PARAMETER_OPTIONS):
        function = choice.decorate(function)
    return function


def build(options: dict[str, Any], default_retries: int) -> "Gathered":
    """The bag that the options describe. Raises InvalidBag, with all mistakes."""
    from covey.bagfile import Sheet, gather, read_draft, read_sheet, select

    if not options.get("file") and not options.get("command"):
        raise click.UsageError("give a COMMAND to run, or a bag file: covey run FILE.toml")
    options = {**options, **lines_of_input(options)}
    sheet = read_sheet(options["file"]) if options.get("file") else Sheet()
    apply_options(sheet, options)
    draft = read_draft(sheet, os.environ, say, default_retries)
    first, where = options.get("first"), options.get("where", ())
    return gather(select(draft, first, where, dashes="--"), say)


def apply_options(sheet: "Sheet", options: dict[str, Any]) -> None:
    """Set the keys of the sheet as the options say. Raises UsageError for an option that cannot be
    read."""
    _apply_parameters(sheet, options)
    _apply_policy(sheet, options.get("policy", ()))
    for choice in OPTIONS:
        value = options.get(choice.name)
        if not choice.key or value is None or value is False or value == ():
            continue
        flag = next(flag for flag in choice.flags if flag.startswith("--"))
        if choice.rest.get("multiple"):
            for item in value:
                sheet.add(choice.key, item, f"{flag} {item}")
        else:
            sheet.set(choice.key, value, flag if value is True else f"{flag} {value}")
    if options.get("not_idempotent"):
        sheet.set(("idempotent",), False, "--not-idempotent")
    for text in options.get("labels", ()):
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise click.UsageError(f"--label {text}: write --label NAME=VALUE")
        sheet.set(("labels", name), value, f"--label {text}")
    if options.get("env_all"):
        sheet.add(("environment", "inherit"), "*", "--env-all")
    for text in options.get("env", ()):
        _apply_variable(sheet, text)
    if options.get("command"):
        for name in ("script", "args"):
            sheet.drop(name)
        sheet.set(("command",), list(options["command"]), "")


def _apply_parameters(sheet: "Sheet", options: dict[str, Any]) -> None:
    seen = set()
    for text in options.get("parameters", ()):
        name, equals, values = text.partition("=")
        name = name.strip()
        if not name or not equals:
            advice = f"write it like -p {name or 'NAME'}=1..10 or -p NAME=a,b,c"
            raise click.UsageError(f"-p {text}: {advice}")
        if name in seen:
            raise click.UsageError(f"-p {text}: parameter {name} is given twice")
        seen.add(name)
        sheet.set(("parameters", name), values, f"-p {text}")
    if options.get("zipped"):
        named = sheet.tree.get("parameters", {})
        sheet.drop("zip")
        if len(named) > 1:
            sheet.set(("zip",), list(named), "--zip")
    if options.get("rows") and options.get("lines"):
        raise click.UsageError("take --rows or --lines, not both")
    if options.get("rows"):
        file = spooled(options["rows"])
        rows = file if file == options["rows"] else {"file": file, "form": form_of(file)}
        sheet.set(("rows",), rows, f"--rows {options['rows']}")
    if options.get("lines"):
        rows = {"file": spooled(options["lines"]), "form": "lines"}
        sheet.set(("rows",), rows, f"--lines {options['lines']}")


def _apply_policy(sheet: "Sheet", texts: Sequence[str]) -> None:
    from covey.bagfile.format.policy import policy_value

    seen = set()
    for text in texts:
        name, equals, value = text.partition("=")
        name = name.strip() if equals else "preset"
        if name in seen:
            raise click.UsageError(f"--policy {text}: {name} is given twice")
        seen.add(name)
        given = policy_value(name, value) if equals else text
        sheet.set(("policy", name), given, f"--policy {text}")


def _apply_variable(sheet: "Sheet", text: str) -> None:
    name, equals, value = text.partition("=")
    if not name:
        raise click.UsageError(f"--env {text}: write --env NAME or --env NAME=VALUE")
    if equals:
        sheet.set(("environment", name), value, f"--env {text}")
        return
    sheet.drop("environment", name)
    sheet.add(("environment", "inherit"), name, f"--env {name}")
