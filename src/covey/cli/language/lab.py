"""`covey lab`: try policies in simulated worlds. The same core decides there as in a server."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from covey.cli.shared.commands import DIR_NAME, FILE_NAME, Command, json_option, leave, print_json
from covey.frontend import terminal
from covey.frontend.tables import Column, render
from covey.frontend.terminal import echo, say

if TYPE_CHECKING:
    from covey.lab.experiment import Progress, Result


@click.group()
def lab() -> None:
    """Try policies in simulated worlds (covey help lab).

    \b
    covey lab list
    covey lab run gridbot-fig9 --seeds 1
    covey lab run my-world.toml --out results
    """


@lab.command("list", cls=Command)
@json_option
def list_(as_json: bool) -> None:
    """List the worlds that come with covey.

    \b
    covey lab list
    """
    from covey.lab.worldfile import built_in, parse

    titles = {name: parse(text, name).title for name, text in built_in().items()}
    if as_json:
        print_json([{"name": name, "title": title} for name, title in titles.items()])
    else:
        rows = [[name, title] for name, title in titles.items()]
        echo(render((Column("world"), Column("what it is")), rows))


@lab.command("show", cls=Command)
@click.argument("name")
@json_option
def show(name: str, as_json: bool) -> None:
    """Print a world that comes with covey, to change it.

    \b
    covey lab show first > my-world.toml
    """
    from covey.lab.worldfile import built_in

    worlds = built_in()
    if name not in worlds:
        raise click.UsageError(f"there is no world {name!r}; there are {', '.join(worlds)}")
    if as_json:
        print_json({"name": name, "text": worlds[name]})
    else:
        echo(worlds[name], nl=False)


@lab.command("run", cls=Command, short_help="Run a world and print the results.")
@click.argument("world", metavar="NAME|FILE", type=FILE_NAME)
@click.option(
    "--seeds", type=click.IntRange(1, 1000), help="Number of runs, each with another random seed."
)
@click.option(
    "--out", metavar="DIR", type=DIR_NAME, help="Write NAME.json, NAME.md and NAME.svg there."
)
@json_option
def run(world: str, seeds: int | None, out: str | None, as_json: bool) -> None:
    """Run a world with each of its policies, and print the results.

    The results are means over the seeds with their deviations, next to the figures of a paper. The
    exit status is 1 if a bag did not finish.

    \b
    covey lab run first
    covey lab run gridbot-fig9 --seeds 5 --out results
    covey lab run my-world.toml --json
    """
    from covey.lab import experiment, worldfile

    file = worldfile.find(world)
    name = Path(world).stem
    folder = None if out is None else Path(out)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    line = ProgressLine()
    try:
        result = experiment.run(name, file, seeds or file.seeds, line.tell)
    finally:
        line.clear()
    if folder is not None:
        _write(folder, result)
    if as_json:
        print_json(result)
    else:
        _print(result)
    troubles = list(experiment.troubles(result))
    for trouble in troubles:
        say(trouble)
    leave(1 if troubles else 0)


def _print(result: "Result") -> None:
    from covey.lab.experiment import table

    shown = table(result)
    columns = [Column(title, right=k > 0) for k, title in enumerate(shown.titles)]
    if shown.titles[-1] == "the paper says":
        columns[-1] = Column(shown.titles[-1])
    echo(result.title)
    echo(render(columns, shown.rows))


def _write(folder: Path, result: "Result") -> None:
    import msgspec

    from covey.lab.drawing import svg
    from covey.lab.experiment import markdown

    data = msgspec.json.format(msgspec.json.encode(result), indent=2)
    (folder / f"{result.name}.json").write_bytes(data + b"\n")
    (folder / f"{result.name}.md").write_text(markdown(result), encoding="utf-8")
    (folder / f"{result.name}.svg").write_text(svg(result), encoding="utf-8")


class ProgressLine:
    """One line of progress, if standard error is a terminal."""

    def __init__(self) -> None:
        self._shown = sys.stderr.isatty()

    def tell(self, progress: "Progress") -> None:
        if not self._shown:
            return
        words = f"run {progress.run} of {progress.runs}: "
        words += f"{progress.name}, " if progress.name else ""
        words += f"seed {progress.seed}"
        if progress.tasks:
            words += f", {progress.done:,} of {progress.tasks:,} tasks"
        terminal.redraw(words)

    def clear(self) -> None:
        if self._shown:
            terminal.redraw("")
