"""short: bags that are over in a moment, on a warm server, through `import covey`: from `submit` to
all durable results in the caller's hands. The bounds are shares of the floor; that of one task is
a time."""

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
    at_least,
    at_most,
    best_of,
    floor_cells,
    unless_noisy,
)
from covey.python.connection import Connection, connect

LEAST = {200: 0.6, 1_000: 0.75, 5_000: 0.85}  # of the floor, by the number of tasks
TIMES = {1: 100, 200: 9, 1_000: 5, 5_000: 3}  # bags in a run, whose median counts
ONE_TASK_MS = 4.0
COLUMNS = (
    RUN,
    Column("tasks", "tasks", ",d"),
    Column("median", "median, ms", ",.1f"),
    Column("rate", "tasks/s", ",.0f"),
    Column("ratio", "of the floor", ".2f"),
    *FLOORS,
    NOTE,
)


def run(where: rig.Rig) -> Report:
    rows = [row for count in TIMES for row in _runs(where, count)]
    verdicts = []
    for count, least in LEAST.items():
        of_count = [row for row in rows if row.get("tasks") == count]
        verdict = at_least(f"{count:,} tasks, of the floor", best_of(of_count, "ratio"), least)
        verdicts.append(unless_noisy(verdict, of_count))
    alone = [row for row in rows if row.get("tasks") == 1]
    verdict = at_most("one task, ms", best_of(alone, "median", min), ONE_TASK_MS)
    verdicts.append(unless_noisy(verdict, alone))
    return Report("short", "bags of 1 to 5,000 × /bin/true", [Table(COLUMNS, rows)], verdicts)


def _runs(where: rig.Rig, count: int) -> list[Row]:
    return where.repeat(f"short, {count:,} tasks", lambda _: _once(where, count))


def _once(where: rig.Rig, count: int) -> Row:
    with where.server("--slots", "2") as server, connect(dir=server.directory) as connection:
        rig.warm_up(server.client)
        times = max(1, TIMES[count] // (5 if where.quick else 1))
        seconds, floors = where.with_floors(
            lambda: [bag_seconds(connection, count) for _ in range(times)]
        )
    median = percentile(seconds, 50)
    return {
        "tasks": count,
        "median": median * 1e3,
        "rate": count / median,
        "ratio": floors.ratio(count / median),
        **floor_cells(floors),
    }


def bag_seconds(connection: Connection, count: int) -> float:
    began = time.monotonic()
    if count == 1:
        rows = [next(connection.submit("/bin/true").follow())]
    else:
        # Two arguments: GNU true looks for locales if it has just one.
        parameters = {"i": range(count)}
        rows = list(connection.submit("/bin/true {i} {i}", parameters=parameters).follow())
    seconds = time.monotonic() - began
    if len(rows) != count or not all(row.ok for row in rows):
        raise rig.Broken(f"{len(rows)} of {count} results, or some are not ok")
    return seconds
