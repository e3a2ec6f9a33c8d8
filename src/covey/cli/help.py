"""`covey help`: the pages of the documentation.

The wheel has them in covey/help; in a checkout they are read from docs/.
"""

from pathlib import Path

import click

from covey.cli.shared.commands import TOPIC, Command, json_option, print_json
from covey.core.values.suggestions import did_you_mean
from covey.frontend.tables import Column, render
from covey.frontend.terminal import echo, show_page

TOPICS = {
    "tutorial": "from one command to a sweep, in ten minutes",
    "bagfile": "bag files, parameters, inputs and outputs, the environment of a task",
    "policies": "where tasks run, in which order, and which get another attempt",
    "classad": "the language of policies",
    "sites": "clusters and other places where pilots can be started",
    "pilots": "what runs on hosts, and starting pilots by hand",
    "server": "a server for several people",
    "configuration": "every setting",
    "python": "import covey",
    "executor": "functions: concurrent.futures, dask, joblib",
    "lab": "trying policies in simulated worlds",
    "troubleshooting": "what to do when something goes wrong",
}


@click.command("help", cls=Command)
@click.argument("topic", required=False, metavar="[TOPIC | COMMAND]", type=TOPIC)
@json_option
@click.pass_context
def help_(ctx: click.Context, topic: str | None, as_json: bool) -> None:
    """Show a page of the documentation, or the help of a command. Without a topic: list them.

    \b
    covey help
    covey help policies
    covey help run
    """
    if topic is None:
        _list(as_json)
        return
    topic = topic.removesuffix(".md").removeprefix("docs/")
    text = page(topic) if topic in TOPICS else _command_help(ctx, topic)
    if as_json:
        print_json({"topic": topic, "text": text})
    else:
        show_page(text)


def _list(as_json: bool) -> None:
    if as_json:
        print_json(TOPICS)
        return
    rows = [[f"covey help {topic}", text] for topic, text in TOPICS.items()]
    echo(render((Column("page"), Column("about")), rows))
    echo("\nHelp for a command: covey COMMAND --help")


def page(topic: str) -> str:
    package = Path(__file__).parents[1]
    for folder in (package / "help", package.parents[1] / "docs"):
        path = folder / f"{topic}.md"
        if path.is_file():
            return path.read_text(encoding="utf-8")
    raise click.ClickException(f"the page {topic} is missing from this installation of covey")


def _command_help(ctx: click.Context, name: str) -> str:
    """The help of a command. Raises UsageError if there is no such command."""
    group = ctx.find_root().command
    if isinstance(group, click.Group):
        command = group.get_command(ctx, name)
        if command is not None:
            own = click.Context(command, parent=ctx.find_root(), info_name=name)
            return command.get_help(own)
        known = [*TOPICS, *group.list_commands(ctx)]
        hint = did_you_mean(name, known, f"; there are {', '.join(TOPICS)}")
        raise click.UsageError(f"there is no page and no command '{name}'{hint}")
    raise click.UsageError(f"there is no page '{name}'")
