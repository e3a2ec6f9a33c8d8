"""Everything that a command prints goes through here.

Other people write the names of bags and hosts, tags, messages and the output of tasks. Such text
could move the cursor, change the window's title, or write from right to left, and so show words
that covey never printed. So control characters and invisible characters become a dot (·). Only this
module and `progress` send control sequences to a terminal; tests/tidy/test_printing.py refuses
other ways to print.

Output for programs keeps its meaning: JSON has such characters as \\uXXXX. The output of tasks, CSV
and formatted files are changed only on a terminal.
"""

import re
import sys
from collections.abc import Iterable
from typing import IO, Any

import click

DOT = "·"
ERASE = "\x1b[K"  # the rest of the line
_KEPT = "\n\t"
# Colours and similar sequences in the output of tasks. In all others, ESC becomes a dot.
_SEQUENCE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
# Characters that JSON does not escape, though a terminal might act on them.
_IN_JSON = {
    code: f"\\u{code:04x}"
    for code in (*range(0x7F, 0xA0), 0x061C, *range(0x200B, 0x2010), *range(0x2028, 0x202F))
    + tuple(range(0x2060, 0x2070))
    + (0xFEFF,)
}


def clean(text: str) -> str:
    """The text on one line, with a dot for each control character or invisible character."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else DOT for char in text)


def clean_lines(lines: Iterable[str]) -> str:
    """The lines as one clean text. Newlines are kept."""
    return "\n".join(map(clean, "\n".join(lines).split("\n")))


def clean_text(text: str, kept: str = _KEPT) -> str:
    """The text with a dot for each control character or invisible character, except `kept`."""
    return "".join(char if char.isprintable() or char in kept else DOT for char in text)


def clean_output(text: str) -> str:
    """The output of a task for a terminal, without colours. Carriage returns are kept, because they
    can only rewrite the task's own line."""
    return clean_text(_SEQUENCE.sub("", text), _KEPT + "\r")


def clean_json(text: str) -> str:
    """The same JSON, with invisible characters written as \\uXXXX."""
    return text if text.isascii() and "\x7f" not in text else text.translate(_IN_JSON)


def echo(text: object = "", *, err: bool = False, nl: bool = True) -> None:
    """Print text for a person."""
    click.echo(clean_text(str(text)), err=err, nl=nl, color=False)


def echo_prefixed(prefix: str, colour: str, line: str, raw: bool = False) -> None:
    """Print a line of a task's output after a prefix. An empty `colour` means none."""
    start = click.style(prefix, fg=colour) if colour else prefix
    shown = line if raw or not sys.stdout.isatty() else clean_output(line)
    _write(f"{start} {shown}\n")


def echo_json(text: str) -> None:
    click.echo(clean_json(text), color=True)


def echo_file(text: str) -> None:
    """Print the content of a file: unchanged, except on a terminal."""
    _write(clean_text(text) if sys.stdout.isatty() else text)


def echo_output(text: str, raw: bool = False) -> None:
    """Print the output of a task: unchanged, except on a terminal without `raw`."""
    _write(text if raw or not sys.stdout.isatty() else clean_output(text))


def redraw(text: str) -> None:
    """Replace the last line on standard error."""
    click.echo(f"\r{clean(text)}{ERASE}", err=True, nl=False, color=True)


def binary_output() -> IO[bytes]:
    """Standard output, for tables and files."""
    return _Cleaned(sys.stdout.buffer) if sys.stdout.isatty() else sys.stdout.buffer  # type: ignore[return-value]


def _write(text: str) -> None:
    """Write bytes, because click removes colours from text."""
    click.echo(text.encode("utf-8", "backslashreplace"), nl=False)


class _Cleaned:
    """A binary file that cleans the lines written to it, for a terminal."""

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
    """Print a long text of our own, such as a page of the documentation. A terminal shows it in a
    pager."""
    if sys.stdout.isatty():
        click.echo_via_pager(text)
    else:
        echo(text, nl=not text.endswith("\n"))


def say(text: str) -> None:
    """Print a note for the person on standard error."""
    echo(f"covey: {text}", err=True)
