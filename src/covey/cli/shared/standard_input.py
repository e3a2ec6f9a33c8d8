"""Files on the command line, where `-` is standard input.

Tasks come from standard input with `--lines -`, `--rows -`, and `seq 9 | covey run -- ./f {}`. It
is copied into a temporary file. That file is read like any file of rows, and removed when the
command ends. Standard input is read only if `-` or `{}` asks for it, because a service may leave it
open, and reading would then block for ever.
"""

import atexit
import contextlib
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import click

INPUT = "-"
PLACE = "{}"  # stands for a line, as in xargs
LINE = "{line}"


def lines_of_input(options: dict[str, Any]) -> dict[str, Any]:
    """The options that change because `{}` in the command stands for a line of a file or of
    standard input. If standard input is a terminal, `{}` belongs to the command."""
    command: tuple[str, ...] = options.get("command") or ()
    if not any(PLACE in word for word in command):
        return {}
    filled = tuple(word.replace(PLACE, LINE) for word in command)
    if options.get("lines"):
        return {"command": filled}
    if any(options.get(name) for name in ("rows", "parameters", "file")) or _is_terminal():
        return {}  # {} is the command's own, as in find -exec
    return {"command": filled, "lines": INPUT}


def spooled(name: str) -> str:
    """The file of this name; for `-`, a copy of standard input."""
    if name != INPUT:
        return name
    if _is_terminal():
        raise click.UsageError("'-' reads tasks from standard input: send them there, with a pipe")
    number, path = tempfile.mkstemp(prefix="covey-input-")
    atexit.register(_remove, path)
    with os.fdopen(number, "wb") as file:
        shutil.copyfileobj(sys.stdin.buffer, file)
    if not os.path.getsize(path):
        raise click.UsageError("standard input has no lines, so there are no tasks")
    return path


def form_of(path: str) -> str:
    """The form of the rows: JSON Lines begin with a brace, everything else is CSV."""
    with open(path, "rb") as file:
        return "jsonl" if file.read(1000).lstrip().startswith(b"{") else "csv"


def read_text(name: str) -> str:
    """The text of a file; `-` is standard input. Raises UsageError."""
    try:
        return sys.stdin.read() if name == INPUT else Path(name).read_text(encoding="utf-8")
    except OSError as error:
        raise click.UsageError(f"{name}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise click.UsageError(f"{name} is not a text file in UTF-8") from None


def _is_terminal() -> bool:
    return sys.stdin is None or sys.stdin.isatty()


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)


def read_toml(name: str) -> dict[str, Any]:
    """The content of a TOML file; `-` is standard input. Raises UsageError."""
    from covey.core.values import toml_text

    try:
        return toml_text.parse(read_text(name), name)
    except toml_text.BadToml as error:
        raise click.UsageError(str(error)) from None
