"""The man page, made from the commands: python -m covey.cli.shared.manpage > docs/covey.1"""

from collections.abc import Iterator

import click

from covey.cli.help import TOPICS
from covey.cli.main import SECTIONS, covey
from covey.frontend.terminal import echo


def man_page() -> str:
    root = click.Context(covey, info_name="covey")
    lines = [
        '.TH COVEY 1 "" "covey" "User commands"',
        ".SH NAME",
        r"covey \- one queue over every machine you can reach",
        ".SH SYNOPSIS",
        r".B covey",
        r"\fICOMMAND\fR [\fIOPTION\fR]... [\fIWORD\fR]...",
        ".SH DESCRIPTION",
        *_prose(covey.help or ""),
        ".SH OPTIONS",
        *_options(covey, root),
    ]
    for title, commands in SECTIONS.items():
        lines.append(f".SH COMMANDS: {title.upper()}")
        for name in commands:
            command = covey.get_command(root, name)
            if command is not None:
                lines += _command(command, click.Context(command, parent=root, info_name=name))
    lines += [".SH PAGES", "Longer texts are part of covey:"]
    for topic, about in TOPICS.items():
        lines += [".TP", rf"\fBcovey help {topic}\fR", _escaped(about)]
    lines += [
        ".SH EXIT STATUS",
        "0: success. 1: failure, or a task failed. 2: the command was not understood.",
    ]
    return "\n".join(lines) + "\n"


def _command(command: click.Command, ctx: click.Context) -> Iterator[str]:
    usage = " ".join(command.collect_usage_pieces(ctx))
    yield f".SS {_escaped(ctx.command_path)} {_escaped(usage)}"
    yield from _prose(command.help or "")
    yield from _options(command, ctx)
    if isinstance(command, click.Group):
        for name in command.list_commands(ctx):
            inner = command.get_command(ctx, name)
            if inner is not None:
                yield from _command(inner, click.Context(inner, parent=ctx, info_name=name))


def _prose(text: str) -> Iterator[str]:
    """The paragraphs of a help text. A paragraph after \\b is not wrapped, as in click."""
    for paragraph in text.split("\n\n"):
        lines = [line.strip() for line in paragraph.strip("\n").splitlines()]
        if lines[:1] == ["\b"]:
            yield ".PP"
            yield ".nf"
            yield from (_escaped(line) for line in lines[1:])
            yield ".fi"
        elif any(lines):
            yield ".PP"
            yield _escaped(" ".join(lines))


def _options(command: click.Command, ctx: click.Context) -> Iterator[str]:
    common = getattr(command, "common", [])
    for param in command.get_params(ctx):
        record = param.get_help_record(ctx)
        if record is not None and param not in common and "--help" not in param.opts:
            yield ".TP"
            yield rf"\fB{_escaped(record[0])}\fR"
            yield _escaped(record[1])


def _escaped(text: str) -> str:
    """Text without anything that roff would read as a command."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\\&" + text if text.startswith((".", "'")) else text


if __name__ == "__main__":
    echo(man_page(), nl=False)
