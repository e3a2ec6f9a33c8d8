"""One voice: wrong command lines, pages of help, the man page, and `--json` everywhere."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from covey.cli.help import TOPICS
from covey.cli.main import covey
from covey.cli.shared.manpage import man_page
from covey.cli.shared.usage_words import usage_words

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["run", "--tme", "3"], "there is no option --tme; did you mean --time?"),
        (["run", "--cpus", "3"], "there is no option --cpus; did you mean --cores?"),
        (["run", "--memory-mb", "3"], "there is no option --memory-mb; did you mean --memory?"),
        (
            ["retry", "--limit-seconds", "3"],
            "there is no option --limit-seconds; did you mean --time?",
        ),
        (
            ["run", "--requirements", "x"],
            "there is no option --requirements; write: --policy 'requirements=…'",
        ),
        (["show", "--jsno"], "there is no option --jsno; did you mean --json?"),
        (["bags", "--limit", "x"], "--limit: expected a whole number from 1, not 'x'"),
        (["bags", "--label"], "--label needs a value"),
        (["show", "--json=3"], "--json takes no value"),
        (
            ["tasks", "--state", "x"],
            "--state: expected one of waiting, sent, running, done, failed; not 'x'",
        ),
        (["show", "1", "2"], "more words than this command takes: 2"),
    ],
)
def test_a_wrong_command_line_is_told_in_our_words(words: list[str], told: str) -> None:
    ran = CliRunner().invoke(covey, words, standalone_mode=False)
    assert isinstance(ran.exception, click.UsageError)
    assert usage_words(ran.exception) == told


def commands(
    command: click.Command, ctx: click.Context, path: str
) -> Iterator[tuple[str, click.Command]]:
    if not isinstance(command, click.Group):
        yield path, command
        return
    for name in command.list_commands(ctx):
        inner = command.get_command(ctx, name)
        assert inner is not None
        yield from commands(inner, ctx, f"{path} {name}".strip())


def test_every_command_that_answers_has_json_and_an_example() -> None:
    found = dict(commands(covey, click.Context(covey), ""))
    lacking = {
        path
        for path, command in found.items()
        if not any("--json" in param.opts for param in command.params)
    }
    assert lacking == WITHOUT_JSON
    assert [path for path, one in found.items() if f"covey {path}" not in (one.help or "")] == []


WITHOUT_JSON = {"serve"}


def test_pages_of_help() -> None:
    runner = CliRunner()
    assert set(json.loads(runner.invoke(covey, ["help", "--json"]).stdout)) == set(TOPICS)
    for topic in TOPICS:
        page = (ROOT / "docs" / f"{topic}.md").read_text()
        assert runner.invoke(covey, ["help", topic]).stdout == page
    assert runner.invoke(covey, ["help", "run"]).stdout.startswith("Usage: covey run")
    assert "did you mean 'policies'?" in runner.invoke(covey, ["help", "polices"]).stderr


def test_the_wheel_has_every_page() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    for topic in TOPICS:
        assert f'"docs/{topic}.md" = "covey/help/{topic}.md"' in text


def test_the_man_page_is_up_to_date() -> None:
    """Write it anew with: python -m covey.cli.shared.manpage > docs/covey.1"""
    assert (ROOT / "docs" / "covey.1").read_text() == man_page()


def test_the_version_has_a_short_option() -> None:
    ran = subprocess.run(
        [sys.executable, "-P", "-m", "covey", "-V"], capture_output=True, text=True, check=True
    )
    assert ran.stdout.startswith("covey ")
