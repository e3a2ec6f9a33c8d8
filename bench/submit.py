"""submit: one template of up to ten million tasks, to a server without pilots. Until it is
accepted durably and the processes are quiet; by how much client and server grow."""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bench import processes, rig, submitter
from bench.measures import quiet_at
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
    good,
    with_best,
    worst_of,
)

SIZES = (100_000, 1_000_000, 10_000_000)
QUIET_SECONDS = 0.2
QUIET_CPU = 0.011  # one tick of the clock
SAMPLE_SECONDS = 0.02
COLUMNS = (
    RUN,
    Column("tasks", "tasks", ",d"),
    Column("accepted", "accepted, ms", ",.1f"),
    Column("quiet", "quiet, ms", ",.0f"),
    Column("client", "client grew, MB", ".2f"),
    Column("server", "server grew, MB", ".2f"),
    Column("disk", "disk grew, kB", ",.0f"),
    Column("spawns", "quiet, in spawns", ",.1f"),
    *FLOORS,
    NOTE,
)


def run(where: rig.Rig) -> Report:
    rows = [
        row
        for size in SIZES
        for row in where.repeat(f"submit {size:,}", lambda _, size=size: once(where, size))  # type: ignore[misc]
    ]
    largest = [row for row in good(rows, "quiet") if row["tasks"] == SIZES[-1]]
    grown = [{"grown": row["client"] + row["server"]} for row in largest]
    verdicts = [
        at_most(
            "ten million accepted and quiet, best, s", best_of(largest, "seconds", min), 1.0, ".3f"
        ),
        at_most("client and server grew, worst, MB", worst_of(grown, "grown"), 50.0, ".1f"),
    ]
    tables = [Table(COLUMNS, with_best(rows, "quiet", min, ("tasks",)))]
    return Report("submit", "one template, no pilots", tables, verdicts)


def once(where: rig.Rig, size: int) -> Row:
    with where.server("--pilots", "0") as server:
        bag = rig.submit(server.client, 1, "/bin/true")
        server.client.cancel(bag)
        found, floors = where.with_floors(lambda: _submit(server, size))
        if found.pop("total") != size:
            raise rig.Broken("the bag has another size")
        server.client.cancel(found.pop("bag"))
    return {
        "tasks": size,
        **found,
        "spawns": floors.spawns(found["seconds"]),
        **floor_cells(floors),
    }


def _submit(server: rig.Server, size: int) -> Row:
    command = [sys.executable, submitter.__file__, str(server.directory), str(size)]
    before, disk = processes.memory(server.pid), _disk(server.directory)
    with subprocess.Popen(command, stdin=-1, stdout=-1, text=True) as client:
        assert client.stdin is not None
        assert client.stdout is not None
        client.stdout.readline()
        client.stdin.write("\n")
        client.stdin.flush()
        said: dict[str, Any] = json.loads(client.stdout.readline())
        quiet = max(_wait_quiet(server.pid, client.pid) - said["began"], said["seconds"])
        after = processes.memory(server.pid)
        client.stdin.close()
    grown = max(after.now - before.now, after.peak - before.peak)
    return {
        "bag": said["bag"],
        "total": said["total"],
        "accepted": said["seconds"] * 1e3,
        "seconds": quiet,
        "quiet": quiet * 1e3,
        "client": said["grown"] / 1e6,
        "server": grown / 1e6,
        "disk": (_disk(server.directory) - disk) / 1e3,
    }


def _wait_quiet(*pids: int) -> float:
    """When (by the monotonic clock) these processes had nothing more to do."""
    samples: list[tuple[float, float]] = []
    while True:
        samples.append((time.monotonic(), processes.cpu(*pids)))
        found = quiet_at(samples, QUIET_SECONDS, QUIET_CPU)
        if found is not None:
            return found
        time.sleep(SAMPLE_SECONDS)


def _disk(directory: Path) -> int:
    return sum(one.stat().st_size for one in directory.glob("covey.db*"))
