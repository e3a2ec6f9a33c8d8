"""scale: does a long queue slow the server down? proc with 6,000, 105,000 and 10,000,000 queued,
interleaved several times; completions per second in windows of 5,000, by the server's own stamps.
"""

import time

from bench import rig
from bench.measures import middle, window_rates
from bench.report import (
    FLOORS,
    NOTE,
    RUN,
    Column,
    Report,
    Row,
    Table,
    at_least,
    floor_cells,
    good,
    steady,
    unless_noisy,
)

SIZES = (6_000, 105_000, 10_000_000)
ROUNDS = 5
WINDOW = 5_000
WINDOWS = 3
BOUND = 0.95
COLUMNS = (
    RUN,
    Column("queued", "queued", ",d"),
    Column("first", "first window, tasks/s", ",.0f"),
    Column("later", "later windows"),
    Column("first_ratio", "first of the floor", ".2f"),
    Column("later_ratio", "later of the floor", ".2f"),
    *FLOORS,
    Column("cancel_ms", "cancel, ms", ",.0f"),
    NOTE,
)


def run(where: rig.Rig) -> Report:
    window = WINDOW // 5 if where.quick else WINDOW
    rounds = 1 if where.quick else ROUNDS
    rows = []
    for number in range(1, rounds + 1):
        for size in SIZES:
            title = f"scale {size:,}, round {number} of {rounds}"
            rows.append(
                where.bounded(title, number, lambda _, size=size: once(where, size, window))  # type: ignore[misc]
            )
    firsts = {size: _middle(rows, size, "first_ratio") for size in SIZES}
    verdicts = [
        at_least(
            f"first window, {size:,} against {SIZES[0]:,}", firsts[size] / firsts[SIZES[0]], BOUND
        )
        for size in SIZES[1:]
    ]
    later = _middle(rows, SIZES[-1], "later_ratio") / firsts[SIZES[0]]
    verdicts.append(at_least(f"later windows, {SIZES[-1]:,} against {SIZES[0]:,}", later, BOUND))
    verdicts = [unless_noisy(verdict, good(rows, "first")) for verdict in verdicts]
    title = f"queues of different lengths, windows of {window:,}, ratios to the floor compared"
    middles = [{"run": "middle", **_middles(rows, size)} for size in SIZES]
    return Report("scale", title, [Table(COLUMNS, rows + middles)], verdicts)


def once(where: rig.Rig, size: int, window: int) -> Row:
    with where.server("--slots", "2") as server:
        rig.warm_up(server.client)
        rates, floors = where.with_floors(lambda: _rates(server, size, window))
        *rates, cancel_ms = rates
    return {
        "queued": size,
        "first": rates[0],
        "later": " ".join(f"{rate:,.0f}" for rate in rates[1:]),
        "first_ratio": floors.ratio(rates[0]),
        **({"later_ratio": floors.ratio(middle(rates[1:]))} if rates[1:] else {}),
        **floor_cells(floors),
        "cancel_ms": cancel_ms,
    }


def _rates(server: rig.Server, size: int, window: int) -> list[float]:
    """Tasks/s in each window, then how many milliseconds it took to cancel the rest."""
    wanted = min(size // window, WINDOWS) * window
    began = time.time()
    bag = rig.submit(server.client, size, "/bin/true")
    rows = rig.stream(server.client, bag, wanted)
    cancelled = time.monotonic()
    server.client.cancel(bag)
    cancel_ms = (time.monotonic() - cancelled) * 1e3
    if any(row.exit_code != 0 for row in rows):
        raise rig.Broken("a task has failed")
    return [*window_rates(began, [row.delivered for row in rows][:wanted], window), cancel_ms]


def _middle(rows: list[Row], size: int, key: str) -> float:
    found = [row for row in good(rows, key) if row.get("queued") == size]
    return middle([row[key] for row in steady(found)])


def _middles(rows: list[Row], size: int) -> Row:
    keys = ("first", "first_ratio", "later_ratio")
    found = {key: _middle(rows, size, key) for key in keys}
    return {"queued": size, **{key: value for key, value in found.items() if value == value}}
