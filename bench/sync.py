"""sync: what a thousand connections cost, and how much one core of the server takes in.

First 1,000 pilots (of one slot, over TLS, in another process) are parked for 50 seconds, which is
twice as long as the server keeps a question open, so each asks again twice; then one bag wakes
them all. After that pilots report an end and get a task, each as fast as it is answered: every
end is durable before its answer leaves. The server has one core, the pilots have the other. On a
machine that others use the server does not get all of its core, so what counts is the exchanges
per CPU second of the server, all its threads together; the rate by the clock stands beside it.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from bench import processes, rig, swarm
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
    with_best,
)
from covey.client import embedded

PARKED = 1_000
PARKED_SECONDS = 50.0
CROWDS = (64, 1_000)
SECONDS = 8.0
TASKS = 10_000_000
PARKED_COLUMNS = (
    RUN,
    Column("connections", "connections", ",d"),
    Column("connected", "connected in, s", ".2f"),
    Column("memory", "server, MB", ".0f"),
    Column("grown", "grew, MB", ".0f"),
    Column("cpu", "CPU while parked, %", ".2f"),
    Column("woken", "all woken in, s", ".3f"),
    *FLOORS,
    NOTE,
)
COLUMNS = (
    RUN,
    Column("connections", "connections", ",d"),
    Column("each", "exchanges per CPU s", ",.0f"),
    Column("rate", "by the clock, /s", ",.0f"),
    Column("busy", "server's core, %", ".0f"),
    Column("pilots", "pilots' core, %", ".0f"),
    Column("least", "least of a pilot", ",d"),
    Column("most", "most", ",d"),
    Column("turned_away", "turned away", ",d"),
    Column("memory", "server, MB", ".0f"),
    *FLOORS,
    NOTE,
)


def run(where: rig.Rig) -> Report:
    parked = where.repeat("sync, parked", lambda _: _with_floors(where, park))
    rows: list[Row] = []
    for count in CROWDS:

        def once(_: int, count: int = count) -> Row:
            return _with_floors(where, lambda where: exchange(where, count))

        rows += where.repeat(f"sync, {count} connections", once)
    tables = [
        Table(PARKED_COLUMNS, parked, "Parked, then woken by one bag:"),
        Table(COLUMNS, with_best(rows, "each", same=["connections"]), "One end in, one task out:"),
    ]
    each = at_least("exchanges per second of one core", best_of(rows, "each"), 5_000, ",.0f")
    verdicts = [
        at_most("CPU of 1,000 parked, %", best_of(parked, "cpu", min), 1.0),
        at_most("memory of the server with them, MB", best_of(parked, "memory", min), 120, ".0f"),
        at_most("all woken, s", best_of(parked, "woken", min), 0.5),
        unless_noisy(each, rows),
    ]
    return Report("sync", "parked pilots, and durable exchanges, over TLS", tables, verdicts)


def _with_floors(where: rig.Rig, measure: Callable[[rig.Rig], Row]) -> Row:
    found, floors = where.with_floors(lambda: measure(where))
    return {**found, **floor_cells(floors)}


@contextmanager
def tls_server(where: rig.Rig) -> Iterator[rig.Server]:
    """One with certificates of its own, and no pilots, on the first core."""
    settings = {"COVEY_SERVE_TLS": "own", "COVEY_SERVE_IDLE_EXIT_SECONDS": "3600"}
    os.environ.update(settings)
    try:
        with where.server("--pilots", "0") as server:
            processes.pin(server.pid, cores()[0])
            yield server
    finally:
        for name in settings:
            del os.environ[name]


def cores() -> tuple[int, int]:
    """The server's, and the pilots'; the same if there is only one."""
    found = sorted(os.sched_getaffinity(0))
    return found[0], found[-1]


@contextmanager
def pilots(server: rig.Server, what: str, count: int, seconds: float = 0) -> Iterator[swarm.Swarm]:
    record = embedded.read_record(server.directory)
    assert record is not None
    secrets = swarm.secrets_of(server.directory, count)
    orders = swarm.Orders(what, record.address, record.ca, secrets, seconds, cores()[1])
    found = swarm.Swarm(orders)
    try:
        yield found
    finally:
        found.close()


def park(where: rig.Rig) -> Row:
    count, seconds = (100, 2.0) if where.quick else (PARKED, PARKED_SECONDS)
    with tls_server(where) as server:
        before = processes.memory(server.pid).now
        with pilots(server, "park", count) as crowd:
            connected = crowd.hear()["connect_seconds"]
            used = processes.precise_cpu(server.pid)
            time.sleep(seconds)
            used = processes.precise_cpu(server.pid) - used
            memory = processes.memory(server.pid).now
            crowd.go_on()
            time.sleep(0.2)
            began = time.monotonic()
            rig.submit(server.client, count, "/bin/true")
            woken = crowd.hear()["last"] - began
    return {
        "connections": count,
        "connected": connected,
        "memory": memory / 1e6,
        "grown": (memory - before) / 1e6,
        "cpu": used / seconds * 100,
        "woken": woken,
    }


def exchange(where: rig.Rig, count: int) -> Row:
    seconds = 2.0 if where.quick else SECONDS
    with tls_server(where) as server:
        bag = rig.submit(server.client, TASKS, "/bin/true")
        with pilots(server, "exchange", count, seconds) as crowd:
            crowd.hear()
            used = processes.precise_cpu(server.pid)
            found = crowd.hear()
            used = processes.precise_cpu(server.pid) - used
            memory = processes.memory(server.pid).now
        view = server.client.bag(bag)
        if view is None or view.done < found["count"]:
            raise rig.Broken(f"{view.done if view else 0} of {found['count']} ends are recorded")
    return {
        "connections": count,
        "each": found["count"] / used,
        "rate": found["count"] / found["seconds"],
        "busy": used / found["seconds"] * 100,
        "pilots": found["busy"] * 100,
        "least": found["least"],
        "most": found["most"],
        "turned_away": found["turned_away"],
        "memory": memory / 1e6,
    }
