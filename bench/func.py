"""func: 5,000 calls of a Python function that does nothing, each by a `submit()` of its own, from
the first submit to the last result in the client. Arguments and values are durable."""

import time

from bench import rig
from bench.report import (
    FLOORS,
    NOTE,
    RUN,
    Column,
    Report,
    Row,
    Table,
    at_least,
    best_of,
    floor_cells,
    unless_noisy,
    with_best,
)
from covey.executor import Executor
from covey.python.connection import connect

CALLS = 5_000
WARM_UP = 20
COLUMNS = (
    RUN,
    Column("rate", "covey calls/s", ",.0f"),
    Column("ratio", "of the floor", ".2f"),
    Column("submitted", "submit() µs", ",.0f"),
    *FLOORS,
    NOTE,
)


def nothing(*_: object) -> None:
    """What is called."""


def run(where: rig.Rig) -> Report:
    count = CALLS // 5 if where.quick else CALLS
    rows = where.repeat("func", lambda _: once(where, count))
    verdict = at_least("best calls/s", best_of(rows, "rate"), 8000)
    tables = [Table(COLUMNS, with_best(rows, "rate"))]
    title = f"{count:,} single calls of a function that does nothing, 2 slots"
    return Report("func", title, tables, [unless_noisy(verdict, rows)])


def once(where: rig.Rig, count: int) -> Row:
    with (
        where.server("--slots", "2") as server,
        connect(dir=server.directory) as connection,
        Executor(connection) as executor,
    ):
        warm_up(executor)
        (seconds, submitted), floors = where.with_floors(lambda: calls(executor, count))
    rate = count / seconds
    return {
        "rate": rate,
        "ratio": floors.ratio(rate),
        "submitted": submitted / count * 1e6,
        **floor_cells(floors),
    }


def calls(executor: Executor, count: int) -> tuple[float, float]:
    """Seconds until the last value was here, and until all were submitted."""
    began = time.monotonic()
    found = [executor.submit(nothing, number) for number in range(count)]
    submitted = time.monotonic()
    values = [one.result() for one in found]
    ended = time.monotonic()
    if values != [None] * count:
        raise rig.Broken("a function that returns nothing returned something")
    return ended - began, submitted - began


def warm_up(executor: Executor) -> None:
    """Some calls, and one whose exception must come back."""
    for one in [executor.submit(nothing, number) for number in range(WARM_UP)]:
        one.result()
    try:
        executor.submit(int, "three").result()
    except ValueError:
        return
    raise rig.Broken("an exception did not come back")
