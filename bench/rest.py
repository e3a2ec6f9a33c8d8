"""rest: what a pilot costs its host while there is nothing to do. One pilot, started by hand
from the file of `covey pilot-command` with the system's Python, has run a task over TLS and waits
for the next.

Memory is given twice: what the pilot's own process has resident, and what it and its keeper and
slots take together when pages that they share count once.
"""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from bench import processes, rig, sync
from bench.report import (
    FLOORS,
    NOTE,
    RUN,
    Column,
    Report,
    Row,
    Table,
    at_most,
    best_of,
    floor_cells,
    with_best,
)

SECONDS = 30.0
SETTLE_SECONDS = 3.0
COLUMNS = (
    RUN,
    Column("own", "pilot, MB", ".1f"),
    Column("all", "with its slot, MB", ".1f"),
    Column("cpu", "of a core, %", ".3f"),
    Column("file", "pilot file, kB", ".0f"),
    Column("seconds", "seconds", ".0f"),
    *FLOORS,
    NOTE,
)


def run(where: rig.Rig) -> Report:
    rows = where.repeat("rest", lambda _: once(where))
    verdicts = [
        at_most("the pilot, MB", best_of(rows, "own", min), 25.0, ".1f"),
        at_most("of a core, %", best_of(rows, "cpu", min), 0.2),
        at_most("the pilot file, kB", best_of(rows, "file", min), 150, ".0f"),
    ]
    return Report(
        "rest",
        "a pilot with nothing to do",
        [Table(COLUMNS, with_best(rows, "cpu", min))],
        verdicts,
    )


def once(where: rig.Rig) -> Row:
    found, floors = where.with_floors(lambda: _measure(where))
    return {**found, **floor_cells(floors)}


def _measure(where: rig.Rig) -> Row:
    seconds = 5.0 if where.quick else SECONDS
    with sync.tls_server(where) as server:
        program = server.directory / "by-hand"
        subprocess.run(
            server.command_line(
                "pilot-command", "--owner", "*", "--slots", "1", "--file", str(program)
            ),
            check=True,
            capture_output=True,
        )
        size = (server.directory / "pilot.pyz").stat().st_size
        pilot = subprocess.Popen([python(), str(program)], env=_environment(server.directory))
        try:
            rig.stream(server.client, rig.submit(server.client, 1, "/bin/true"), 1)
            time.sleep(SETTLE_SECONDS)
            pids = [pilot.pid, *processes.descendants(pilot.pid)]
            used = sum(processes.precise_cpu(pid) for pid in pids)
            time.sleep(seconds)
            used = sum(processes.precise_cpu(pid) for pid in pids) - used
            own = processes.memory(pilot.pid).now
            together = sum(processes.share_of_memory(pid) for pid in pids)
        finally:
            pilot.terminate()
            pilot.wait()
    return {
        "own": own / 1e6,
        "all": together / 1e6,
        "cpu": used / seconds * 100,
        "file": size / 1e3,
        "seconds": seconds,
    }


def python() -> str:
    """The system's own, as a bare host has it."""
    return shutil.which("python3", path=os.defpath) or sys.executable


def _environment(home: Path) -> dict[str, str]:
    """A bare one: the cache is the server's directory, too."""
    return {"PATH": os.environ["PATH"], "HOME": str(home)}
