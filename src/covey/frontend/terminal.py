"""Everything that a command prints goes through here.

Names of bags and hosts, tags, messages and what tasks printed were written by others. Printed as
it is, such text can move the cursor, change the window's title, or write letters from right to
left, so that a person reads what covey never said. So control characters, and characters that
cannot be seen, become a dot (·). The few sequences that covey itself sends to a terminal are made
here and in `progress`, and tests/tidy/test_printing.py refuses other ways to print.

What is for programs keeps its meaning: JSON has such characters as \\uXXXX, and the output of
tasks, CSV and formatted files are left alone unless they go to a terminal.
"""

import re
import sys
from collections.abc import Iterable
from typing import IO, Any

import click

DOT = "·"
ERASE = "\x1b[K"  # the rest of the line
_KEPT = "\n\t"
# Colours and the like, in what tasks print; anything else that begins with ESC becomes a dot.
_SEQUENCE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
# What JSON writes as it is, though a terminal might act on it.
_IN_JSON = {
    code: f"\\u{code:04x}"
    for code in (*range(0x7F, 0xA0), 0x061C, *range(0x200B, 0x2010), *range(0x2028, 0x202F))
    + tuple(range(0x2060, 0x2070))
    + (0xFEFF,)
}


def clean(text: str) -> str:
    """On one line, and without what could move the cursor or cannot be seen."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else DOT for char in text)


def clean_lines(lines: Iterable[str]) -> str:
    """As text to print; what is on several lines stays so."""
    return "\n".join(map(clean, "\n".join(lines).split("\n")))


def clean_text(text: str, kept: str = _KEPT) -> str:
    """The same for a whole text: these characters are kept, too."""
    return "".join(char if char.isprintable() or char in kept else DOT for char in text)


def clean_output(text: str) -> str:
    """What a task printed, for a terminal: without its colours. A carriage return stays: it can
    only rewrite the line that the task itself writes."""
    return clean_text(_SEQUENCE.sub("", text), _KEPT + "\r")


def clean_json(text: str) -> str:
    """The same JSON, with what could not be seen written as \\uXXXX."""
    return text if text.isascii() and "\x7f" not in text else text.translate(_IN_JSON)


def echo(text: object = "", *, err: bool = False, nl: bool = True) -> None:
    """Print something for a person."""
    click.echo(clean_text(str(text)), err=err, nl=nl, color=False)


def echo_prefixed(prefix: str, colour: str, line: str, raw: bool = False) -> None:
    """A line that a task printed, behind a prefix in a colour (unless that is empty)."""
    start = click.style(prefix, fg=colour) if colour else prefix
    shown = line if raw or not sys.stdout.isatty() else clean_output(line)
    _write(f"{start} {shown}\n")


def echo_json(text: str) -> None:
    click.echo(clean_json(text), color=True)


def echo_file(text: str) -> None:
    """Print what may be meant for a file: as it is, unless a person looks."""
    _write(clean_text(text) if sys.stdout.isatty() else text)


def echo_output(text: str, raw: bool = False) -> None:
    """Print what a task printed: as it is, unless a person looks and has not asked for that."""
    _write(text if raw or not sys.stdout.isatty() else clean_output(text))


def redraw(text: str) -> None:
    """Replace the line on standard error that was drawn last."""
    click.echo(f"\r{clean(text)}{ERASE}", err=True, nl=False, color=True)


def binary_output() -> IO[bytes]:
    """Standard output, for tables and files."""
    return _Cleaned(sys.stdout.buffer) if sys.stdout.isatty() else sys.stdout.buffer  # type: ignore[return-value]


def _write(text: str) -> None:
    """In bytes, of which click leaves nothing out."""
    click.echo(text.encode("utf-8", "backslashreplace"), nl=False)


class _Cleaned:
    """A file of whole lines in UTF-8, for a person who looks at it."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def write(self, data: bytes) -> int:
        self._file.write(clean_text(data.decode("utf-8", "replace")).encode())
        return len(data)

    def writelines(self, lines: Iterable[bytes]) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        self._file.flush()


def show_page(text: str) -> None:
    """A long text of our own, such as a page of the documentation: in a pager on a terminal."""
    if sys.stdout.isatty():
        click.echo_via_pager(text)
    else:
        echo(text, nl=not text.endswith("\n"))


def say(text: str) -> None:
    """A line for the person, out of the way of what the command prints."""
    echo(f"covey: {text}", err=True)
