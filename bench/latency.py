"""latency: one task at a time on an idle system, from a connected client: from submitting it to
knowing its result, in two requests. A process each, then a call of a function each."""

import time

from bench import func, rig
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
    unless_noisy,
    with_best,
)
from covey.executor import Executor
from covey.python.connection import connect

TASKS = 200
COLUMNS = (
    RUN,
    Column("median", "median, ms", ".1f"),
    Column("p95", "p95, ms", ".1f"),
    Column("worst", "worst, ms", ".1f"),
    Column("submit", "of it submit, median", ".1f"),
    Column("spawns", "median, in spawns", ".1f"),
    *FLOORS,
    NOTE,
)
CALL_COLUMNS = tuple(column for column in COLUMNS if column.key != "submit")


def run(where: rig.Rig) -> Report:
    count = TASKS // 5 if where.quick else TASKS
    rows = where.repeat("latency", lambda _: once(where, count))
    calls = where.repeat("latency of calls", lambda _: once_calling(where, count))
    tables = [
        Table(COLUMNS, with_best(rows, "median", min), "process tasks"),
        Table(CALL_COLUMNS, with_best(calls, "median", min), "functions"),
    ]
    verdicts = []
    for what, found, most in (("process task", rows, 5.0), ("function", calls, 4.0)):
        median = best_of(found, "median", min)
        verdict = at_most(f"median of a {what}, ms", median, most)
        verdicts.append(unless_noisy(verdict, found))
        spread = best_of([_with_spread(row) for row in found], "spread", min)
        verdicts.append(
            unless_noisy(at_most(f"its p95, in medians, of a {what}", spread, 2.0), found)
        )
    return Report("latency", f"{count} × one task on an idle system", tables, verdicts)


def _with_spread(row: Row) -> Row:
    return {**row, "spread": row["p95"] / row["median"]} if "median" in row else row


def once(where: rig.Rig, count: int) -> Row:
    with where.server("--slots", "2") as server:
        rig.warm_up(server.client)
        pairs, floors = where.with_floors(lambda: [one_task(server) for _ in range(count)])
    whole = [seconds * 1e3 for seconds, _ in pairs]
    median = percentile(whole, 50)
    return {
        "median": median,
        "p95": percentile(whole, 95),
        "worst": max(whole),
        "submit": percentile([accepted * 1e3 for _, accepted in pairs], 50),
        "spawns": floors.spawns(median / 1e3),
        **floor_cells(floors),
    }


def once_calling(where: rig.Rig, count: int) -> Row:
    with (
        where.server("--slots", "2") as server,
        connect(dir=server.directory) as connection,
        Executor(connection) as executor,
    ):
        func.warm_up(executor)
        seconds, floors = where.with_floors(lambda: [one_call(executor) for _ in range(count)])
    whole = [one * 1e3 for one in seconds]
    median = percentile(whole, 50)
    return {
        "median": median,
        "p95": percentile(whole, 95),
        "worst": max(whole),
        "spawns": floors.spawns(median / 1e3),
        **floor_cells(floors),
    }


def one_call(executor: Executor) -> float:
    began = time.monotonic()
    executor.submit(func.nothing).result()
    return time.monotonic() - began


def one_task(server: rig.Server) -> tuple[float, float]:
    """Seconds until the result was known, and until the task was accepted."""
    began = time.monotonic()
    bag = rig.submit(server.client, 1, "/bin/true")
    accepted = time.monotonic()
    rows = rig.stream(server.client, bag, 1)
    ended = time.monotonic()
    rig.statuses(rows, 1)
    return ended - began, accepted - began
