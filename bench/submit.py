"""submit: up to ten million tasks, as one template or as lines of a file, to a server without
pilots. Until they are accepted durably and the processes are quiet; by how much client and server
grow."""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

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
    Verdict,
    at_least,
    at_most,
    best_of,
    floor_cells,
    good,
    with_best,
    worst_of,
)

LARGEST = 10_000_000
QUIET_SECONDS = 0.2
QUIET_CPU = 0.011  # one tick of the clock
SAMPLE_SECONDS = 0.02
LINES_AT_ONCE = 10_000
COLUMNS = (
    RUN,
    Column("tasks", "tasks", ",d"),
    Column("from", "from"),
    Column("rate", "rows/s", ",.0f"),
    Column("accepted", "accepted, ms", ",.1f"),
    Column("quiet", "quiet, ms", ",.0f"),
    Column("client", "client grew, MB", ".2f"),
    Column("server", "server grew, MB", ".2f"),
    Column("disk", "disk grew, kB", ",.0f"),
    Column("spawns", "quiet, in spawns", ",.1f"),
    *FLOORS,
    NOTE,
)


class Given(NamedTuple):
    """What is submitted: tasks of a template, or lines of a file."""

    tasks: int
    file: bool = False

    def __str__(self) -> str:
        return f"{self.tasks:,} {'lines' if self.file else 'tasks'}"


CASES = (
    Given(100_000),
    Given(1_000_000),
    Given(LARGEST),
    Given(1_000_000, file=True),
    Given(LARGEST, file=True),
)


def run(where: rig.Rig) -> Report:
    rows: list[Row] = []
    for given in CASES:
        rows += where.repeat(f"submit {given}", lambda _, given=given: once(where, given))  # type: ignore[misc]
    largest = [row for row in good(rows, "quiet") if row["tasks"] == LARGEST]
    verdicts = [
        *_verdicts_of_templates([row for row in largest if row["from"] == "template"]),
        *_verdicts_of_files([row for row in largest if row["from"] == "file"]),
    ]
    tables = [Table(COLUMNS, with_best(rows, "quiet", min, ("from", "tasks")))]
    return Report("submit", "a template, or lines of a file; no pilots", tables, verdicts)


def _verdicts_of_templates(rows: list[Row]) -> list[Verdict]:
    seconds = best_of(rows, "seconds", min)
    return [
        at_most("a template of ten million accepted and quiet, best, s", seconds, 1.0, ".3f"),
        at_most("client and server grew, worst, MB", worst_of(rows, "grown"), 50.0, ".1f"),
    ]


def _verdicts_of_files(rows: list[Row]) -> list[Verdict]:
    rate = best_of(rows, "rate")
    return [
        at_least("ten million lines accepted and quiet, best, rows/s", rate, 500_000, ",.0f"),
        at_most("client and server grew, worst, MB", worst_of(rows, "grown"), 100.0, ".1f"),
    ]


def once(where: rig.Rig, given: Given) -> Row:
    with where.server("--pilots", "0") as server:
        bag = rig.submit(server.client, 1, "/bin/true")
        server.client.cancel(bag)
        what = str(_written(server.directory.parent, given.tasks) if given.file else given.tasks)
        found, floors = where.with_floors(lambda: _submit(server, what))
        if found.pop("total") != given.tasks:
            raise rig.Broken("the bag has another size")
        server.client.cancel(found.pop("bag"))
    if given.file:
        found["rate"] = given.tasks / found["seconds"]
    return {
        "tasks": given.tasks,
        "from": "file" if given.file else "template",
        **found,
        "spawns": floors.spawns(found["seconds"]),
        **floor_cells(floors),
    }


def _written(folder: Path, count: int) -> Path:
    """A file with another command on every line."""
    path = folder / "commands"
    with path.open("wb") as file:
        for start in range(0, count, LINES_AT_ONCE):
            file.write(b"".join(b"/bin/true %d\n" % k for k in range(start, start + LINES_AT_ONCE)))
    return path


def _submit(server: rig.Server, what: str) -> Row:
    command = [sys.executable, submitter.__file__, str(server.directory), what]
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
        "grown": (said["grown"] + grown) / 1e6,
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
    found = [*directory.glob("covey.db*"), *directory.glob("files/*/*")]
    return sum(one.stat().st_size for one in found)
