"""Standard input: tasks (`--lines -`, `--rows -`, `seq 9 | covey run -- ./f {}`), or a TOML file.

What comes in is copied into a temporary file, which is read like any file of rows and removed when
the command ends. Standard input is read only if it is asked for, with `-` or with `{}`: a service
that leaves it open must not block a command.
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
PLACE = "{}"  # of a line, as in xargs
LINE = "{line}"


def lines_of_input(options: dict[str, Any]) -> dict[str, Any]:
    """The options that change because `{}` in the command stands for a line of a file or of
    standard input. Raises UsageError if a person is at the keyboard instead."""
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
    """The file of this name; for `-`, one that has what standard input has."""
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
    """JSON Lines begin with a brace; everything else is CSV, with names in its first row."""
    with open(path, "rb") as file:
        return "jsonl" if file.read(1000).lstrip().startswith(b"{") else "csv"


def _is_terminal() -> bool:
    return sys.stdin is None or sys.stdin.isatty()


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)


def toml_table(name: str) -> dict[str, Any]:
    """What a TOML file says, or standard input if its name is -. Raises UsageError."""
    from covey.core.values import toml_text

    try:
        text = sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
        return toml_text.parse(text, name)
    except OSError as error:
        raise click.UsageError(f"{name}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise click.UsageError(f"{name}: this is not text in UTF-8") from None
    except toml_text.BadToml as error:
        raise click.UsageError(str(error)) from None
