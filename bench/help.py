"""help: how long `covey --help` takes, the first thing anybody runs."""

import subprocess
import time

from bench import rig
from bench.measures import percentile
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

TIMES = 20
COLUMNS = (
    RUN,
    Column("median", "median, ms", ".0f"),
    Column("least", "least, ms", ".0f"),
    Column("most", "most, ms", ".0f"),
    Column("spawns", "median, in spawns", ".0f"),
    *FLOORS,
    NOTE,
)


def run(where: rig.Rig) -> Report:
    rows = where.repeat("help", lambda _: once(where))
    verdicts = [at_most("median, best, ms", best_of(rows, "median", min), 150, ".0f")]
    tables = [Table(COLUMNS, with_best(rows, "median", min))]
    return Report("help", f"covey --help, {TIMES} times", tables, verdicts)


def once(where: rig.Rig) -> Row:
    times, floors = where.with_floors(lambda: [call() * 1e3 for _ in range(TIMES)])
    median = percentile(times, 50)
    return {
        "median": median,
        "least": min(times),
        "most": max(times),
        "spawns": floors.spawns(median / 1e3),
        **floor_cells(floors),
    }


def call() -> float:
    began = time.monotonic()
    subprocess.run([rig.covey_program(), "--help"], check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - began
