"""What the figures were measured on."""

import os
import platform
import sqlite3
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[1]


def describe(directory: Path) -> dict[str, str]:
    """Words for a heading, by name; `directory` is where the servers kept their record."""
    return {
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "cpu": _cpu_model(),
        "cores": str(len(os.sched_getaffinity(0))),
        "memory": _memory(),
        "kernel": platform.release(),
        "file system": _file_system(directory),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "commit": _commit(),
    }


def _cpu_model() -> str:
    return _line(Path("/proc/cpuinfo"), "model name", str.strip)


def _memory() -> str:
    return _line(
        Path("/proc/meminfo"), "MemTotal", lambda text: f"{int(text.split()[0]) / 2**20:.0f} GiB"
    )


def _line(path: Path, name: str, read: Callable[[str], str]) -> str:
    for line in path.read_text().splitlines():
        found, _, rest = line.partition(":")
        if found.strip() == name:
            return read(rest)
    return "unknown"


def _file_system(directory: Path) -> str:
    """The kind of the longest mount point above the directory."""
    best, kind = "", "unknown"
    for line in Path("/proc/mounts").read_text().splitlines():
        mount, found = line.split()[1:3]
        if directory.is_relative_to(mount) and len(mount) >= len(best):
            best, kind = mount, found
    return kind


def _commit() -> str:
    """With a + if tracked files differ from it."""
    try:
        commit = _git("rev-parse", "--short=12", "HEAD").strip()
        return commit + ("+" if _git("status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _git(*arguments: str) -> str:
    command = ["git", *arguments]
    return subprocess.run(
        command, cwd=ROOT, check=True, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ).stdout
