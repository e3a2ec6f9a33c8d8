"""A bag as a file and options describe it, with the place of every part.

File and options become one tree with the keys of a bag file, so that both are checked by the same
rules and mean the same. An option replaces what the file says. Complaints are collected, each with
its place, and shown together: with three mistakes in a file, one run shows all three.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from covey.bagfile.format.lines import KeyPath, find_lines
from covey.core.errors import InvalidBag
from covey.core.values import toml_text
from covey.core.values.suggestions import did_you_mean, nearest
from covey.core.values.toml_text import BadToml

MOST_COMPLAINTS = 20

# Names that other tools have for our keys.
MEANT = {
    "cmd": "command", "run": "command", "executable": "command", "arguments": "args",
    "params": "parameters", "csv": "rows", "lines": "rows", "env": "environment",
    "cwd": "chdir", "workdir": "chdir", "description": "notes", "comment": "notes",
    "cpu": "cores", "cpus": "cores", "threads": "cores", "ram": "memory", "mem": "memory",
    "gpu": "gpus", "limit": "time", "limit_seconds": "time", "time_limit": "time",
    "memory_mb": "memory",
    "memory_kb": "memory", "disk_mb": "disk", "walltime": "time", "timeout": "time", "max": "count",
    "jobrequirements": "requirements", "replicationrequirements": "replication",
    "tailcondition": "tail", "maxreplicas": "max_replicas", "replicas": "max_replicas",
    "gridpolicy": "grid",
    "sites": "only_sites", "hosts": "only_hosts", "priority": "rank",
}  # fmt: skip

# Tables that may be written as a text, the value of one of their keys: policy = "fast-tail".
SHORT = {"policy": "preset"}


class Origin(NamedTuple):
    """The place of a key, in words. Paths there are relative to `base`."""

    words: str  # sweep.toml:7 or --memory 2GB
    base: str
    line: int = 0  # of a file
    option: bool = False  # whether `words` name an option; then complaints leave out the key


class Sheet:
    """`tree` is what tomllib makes of a file; paths lead into it."""

    def __init__(self, name: str = "", base: str | None = None) -> None:
        self.name = name
        self.base = os.getcwd() if base is None else base
        self.tree: dict[str, Any] = {}
        self._origins: dict[KeyPath, Origin] = {}
        self._complaints: dict[str, int] = {}  # the line of the file for each text

    def origin(self, path: KeyPath) -> Origin:
        """The place of this key, or of the nearest table around it whose place is known."""
        for length in range(len(path), 0, -1):
            if path[:length] in self._origins:
                return self._origins[path[:length]]
        return Origin(self.name, self.base)

    def set(self, path: tuple[str, ...], value: object, option: str, *, named: bool = True) -> None:
        """Replace what is there by an option's value. `named`: `option` names the key too."""
        self._table(path)[path[-1]] = value
        self._forget(path)
        self._origins[path] = Origin(option, os.getcwd(), option=named)

    def add(self, path: tuple[str, ...], value: object, option: str, *, named: bool = True) -> None:
        """Append an element to a list."""
        table = self._table(path)
        listed = table.get(path[-1], [])
        table[path[-1]] = listed = [*(listed if isinstance(listed, list) else [listed]), value]
        self._origins[(*path, len(listed) - 1)] = Origin(option, os.getcwd(), option=named)

    def _table(self, path: tuple[str, ...]) -> dict[str, Any]:
        """The table that contains this key; made if it is missing."""
        table = self.tree
        for part in path[:-1]:
            inner = table.get(part)
            if not isinstance(inner, dict):
                kept = {SHORT[part]: inner} if part in SHORT and isinstance(inner, str) else {}
                inner = table[part] = kept
            table = inner
        return table

    def drop(self, *path: str) -> None:
        """Remove what is there, if anything."""
        table: Any = self.tree
        for part in path[:-1]:
            table = table.get(part) if isinstance(table, dict) else None
        if isinstance(table, dict):
            table.pop(path[-1], None)
        self._forget(path)

    def complain(self, path: KeyPath, text: str) -> None:
        origin = self.origin(path)
        key = "" if origin.option else spell(path)
        complaint = ": ".join(part for part in (origin.words, key, text) if part)
        self._complaints.setdefault(complaint, origin.line)

    @property
    def faultless(self) -> bool:
        return not self._complaints

    def settle(self) -> None:
        """Raise InvalidBag if there were complaints: all of them, options first."""
        if not self._complaints:
            return
        complaints = sorted(self._complaints, key=lambda text: self._complaints[text])
        shown = complaints[:MOST_COMPLAINTS]
        if len(complaints) > len(shown):
            shown.append(f"… and {len(complaints) - len(shown)} more")
        raise InvalidBag("\n".join(shown))

    def _forget(self, path: KeyPath) -> None:
        for inner in [inner for inner in self._origins if inner[: len(path)] == path]:
            del self._origins[inner]


def read_sheet(path: str | os.PathLike[str]) -> Sheet:
    """Raises InvalidBag if the file is not there, not readable or not TOML."""
    name = os.fspath(path)
    try:
        text = Path(name).read_text("utf-8-sig")
    except FileNotFoundError:
        raise InvalidBag(f"{name}: there is no such file{near_files(name)}") from None
    except UnicodeDecodeError:
        raise InvalidBag(f"{name}: it is not text in UTF-8") from None
    except OSError as error:
        raise InvalidBag(f"{name}: {error.strerror}") from None
    return parse_sheet(text, name, os.path.dirname(os.path.abspath(name)))


def parse_sheet(text: str, name: str, base: str) -> Sheet:
    sheet = Sheet(name, base)
    try:
        sheet.tree = toml_text.parse(text, name)
        lines = find_lines(text)
    except BadToml as error:
        raise InvalidBag(str(error)) from None
    except RecursionError:
        raise InvalidBag(f"{name}: it is nested too deeply") from None
    sheet._origins = {path: Origin(f"{name}:{line}", base, line) for path, line in lines.items()}
    return sheet


def spell(path: KeyPath) -> str:
    """A key as people write it: resources.when[0].memory."""
    spelt = ""
    for part in path:
        if isinstance(part, int):
            spelt += f"[{part}]"
        else:
            spelt += f".{part}" if spelt else part
    return spelt


def suggest(name: str, known: Iterable[str], otherwise: str = "") -> str:
    """The end of a message about an unknown key or name in a bag file: see `did_you_mean`."""
    return did_you_mean(name, known, otherwise, MEANT)


def near_files(path: str) -> str:
    """The end of a message about a missing file: a similar name, if there is one."""
    folder, name = os.path.split(path)
    try:
        known = os.listdir(folder or ".")
    except OSError:
        return f"; there is no directory '{folder}' either"
    near = nearest(name, known)
    return f"; did you mean '{os.path.join(folder, near)}'?" if near else ""
