"""stampede: 1,500 pilots come within one second, each over a TLS connection of its own, and want
a task. Whoever is told to come again later does so, on the same connection. No request may be
dropped, and those who come first are served first: how many places a pilot moved between coming
and being enrolled is given for the worst of every twenty.
"""

import time

from bench import processes, rig, sync
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
    worst_of,
)

PILOTS = 1_500
COLUMNS = (
    RUN,
    Column("pilots", "pilots", ",d"),
    Column("seconds", "all have a task, s", ".2f"),
    Column("enrolled", "all enrolled, s", ".2f"),
    Column("median", "median wait, s", ".2f"),
    Column("slowest", "longest, s", ".2f"),
    Column("turned_away", "told to come again", ",d"),
    Column("most_away", "most often", ",d"),
    Column("dropped", "dropped", ",d"),
    Column("moved", "places moved, p95", ",d"),
    Column("look", "a look at the bags meanwhile, s", ".2f"),
    Column("memory", "server, MB", ".0f"),
    Column("cpu", "server's CPU, s", ".2f"),
    *FLOORS,
    NOTE,
)


def run(where: rig.Rig) -> Report:
    count = 150 if where.quick else PILOTS
    rows = where.repeat("stampede", lambda _: once(where, count))
    verdicts = [
        at_most("all have a task, s, best", best_of(rows, "seconds", min), 15.0, ".1f"),
        at_most("requests dropped, worst", worst_of(rows, "dropped"), 0, ".0f"),
        at_most("places moved, p95, best", best_of(rows, "moved", min), count / 10, ".0f"),
        at_most("a look at the bags meanwhile, s, best", best_of(rows, "look", min), 1.0),
    ]
    tables = [Table(COLUMNS, with_best(rows, "seconds", min))]
    return Report("stampede", f"{count:,} pilots enrol within a second", tables, verdicts)


def once(where: rig.Rig, count: int) -> Row:
    found, floors = where.with_floors(lambda: _measure(where, count))
    return {**found, **floor_cells(floors)}


def _measure(where: rig.Rig, count: int) -> Row:
    with sync.tls_server(where) as server:
        rig.submit(server.client, 10 * count, "/bin/true")
        used = processes.precise_cpu(server.pid)
        with sync.pilots(server, "stampede", count) as crowd:
            looks = []
            for _ in range(3):  # as a person would, in the middle of it
                time.sleep(0.7)
                began = time.monotonic()
                server.client.bags()
                looks.append(time.monotonic() - began)
            found = crowd.hear()
            used = processes.precise_cpu(server.pid) - used
            memory = processes.memory(server.pid).peak
    waits = [at - came for came, at in zip(found["came"], found["at"], strict=True)]
    return {
        "pilots": count,
        "seconds": found["seconds"],
        "enrolled": found["enrolled"],
        "median": percentile(waits, 50),
        "slowest": max(waits),
        "turned_away": found["turned_away"],
        "most_away": found["most_away"],
        "dropped": found["lost"] + found["connections"] - count,
        "moved": int(percentile(moved(found["came"], found["at"]), 95)),
        "look": max(looks),
        "memory": memory / 1e6,
        "cpu": used,
    }


def moved(came: list[float], served: list[float]) -> list[float]:
    """How many places each moved between two orders."""
    ranks = [0] * len(came)
    for rank, one in enumerate(sorted(range(len(came)), key=lambda k: came[k])):
        ranks[one] = rank
    order = sorted(range(len(served)), key=lambda k: served[k])
    return [float(abs(ranks[one] - place)) for place, one in enumerate(order)]
