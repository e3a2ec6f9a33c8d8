"""fault-worker and fault-server: what a killed pilot and a killed server cost."""

import subprocess
import time
from collections import Counter
from pathlib import Path

from bench import processes, rig
from bench.measures import middle
from bench.report import (
    FLOORS,
    NOTE,
    RUN,
    Column,
    Report,
    Row,
    Table,
    at_most,
    floor_cells,
    good,
    with_best,
    worst_of,
)
from covey.client import embedded
from covey.wire import ResultRow

PILOTS = 4
SLEEPS = 200
KILL_AFTER_SECONDS = 5.0
WORKER_COLUMNS = (
    RUN,
    Column("undisturbed", "undisturbed, s", ".2f"),
    Column("disturbed", "with a kill, s", ".2f"),
    Column("lost", "lost, s", ".2f"),
    Column("ok", "ok", ",d"),
    Column("failed", "failed", ",d"),
    Column("restarted", "restarted", ",d"),
    Column("killed", "processes killed", ",d"),
    *FLOORS,
    NOTE,
)

ECHOES = 2_000
SERVER_COLUMNS = (
    RUN,
    Column("distinct", "distinct tasks run", ",d"),
    Column("reruns", "reruns", ",d"),
    Column("done", "done", ",d"),
    Column("failed", "failed", ",d"),
    Column("by_itself", "finished by itself"),
    Column("ran_before", "run before the kill", ",d"),
    Column("gap", "longest pause, s", ".2f"),
    Column("seconds", "in all, s", ".1f"),
    Column("ideal", "ideal, s", ".1f"),
    *FLOORS,
    NOTE,
)


# -- fault-worker --------------------------------------------------------------------------


def run_worker(where: rig.Rig) -> Report:
    rows = where.repeat("fault-worker", lambda _: worker_once(where))
    verdicts = [
        at_most("tasks failed, worst", worst_of(rows, "failed"), 0, ".0f"),
        at_most("time lost, middle, s", middle([row["lost"] for row in good(rows, "lost")]), 1.5),
    ]
    title = f"{SLEEPS} × sleep 0.2, {PILOTS} pilots of one slot, one killed with all below it"
    tables = [Table(WORKER_COLUMNS, with_best(rows, "lost", min))]
    return Report("fault-worker", title, tables, verdicts)


def worker_once(where: rig.Rig) -> Row:
    (calm, disturbed), floors = where.with_floors(
        lambda: (_sleeps(where, kill=False), _sleeps(where, kill=True))
    )
    lost = disturbed["seconds"] - calm["seconds"]
    figures = {key: disturbed[key] for key in ("ok", "failed", "restarted", "killed")}
    cells = {"undisturbed": calm["seconds"], "disturbed": disturbed["seconds"], "lost": lost}
    if calm["restarted"] or calm["failed"]:
        raise rig.Broken(f"undisturbed: {calm['restarted']} restarted, {calm['failed']} failed")
    return {**cells, **figures, **floor_cells(floors)}


def _sleeps(where: rig.Rig, *, kill: bool) -> Row:
    with where.server("--pilots", str(PILOTS), "--slots", "1") as server:
        rig.warm_up(server.client)
        _wait_pilots(server)
        began = time.monotonic()
        bag = rig.submit(server.client, SLEEPS, "sleep", "0.2")
        killed = _kill_busy_pilot(server, began + KILL_AFTER_SECONDS) if kill else 0
        rows = rig.stream(server.client, bag, SLEEPS)
        seconds = time.monotonic() - began
        return {"seconds": seconds, "killed": killed, **_outcomes(server, bag, rows)}


def _wait_pilots(server: rig.Server) -> None:
    """A bag that keeps all pilots wanted, until all are there."""
    bag = rig.submit(server.client, 10_000, "sleep", "0.05")
    while sum(pilot.status == "active" for pilot in server.client.pilots()) < PILOTS:
        time.sleep(0.05)
    server.client.cancel(bag)
    time.sleep(0.3)


def _kill_busy_pilot(server: rig.Server, at: float) -> int:
    time.sleep(max(0.0, at - time.monotonic()))
    while True:
        for pilot in processes.children(server.pid):
            below = processes.descendants(pilot)
            if any(processes.command(pid)[:1] == ["sleep"] for pid in below):
                return processes.kill_tree(pilot)


def _outcomes(server: rig.Server, bag: int, rows: list[ResultRow]) -> Row:
    outcomes = Counter("ok" if row.outcome == "ok" else "failed" for row in rows)
    fine = ("ok", "returned")  # given back unstarted
    restarted = sum(
        any(attempt.outcome not in fine for attempt in server.client.attempts(bag, row.task))
        for row in rows
    )
    return {"ok": outcomes["ok"], "failed": outcomes["failed"], "restarted": restarted}


# -- fault-server --------------------------------------------------------------------------


def run_server(where: rig.Rig) -> Report:
    count = ECHOES // 5 if where.quick else ECHOES
    rows = where.repeat("fault-server", lambda _: server_once(where, count))
    itself = [{"missing": int(row.get("by_itself") != "yes")} for row in rows]
    missing = [{"missing": count - row["distinct"]} for row in rows if "distinct" in row]
    verdicts = [
        at_most("reruns, worst", worst_of(rows, "reruns"), 0, ".0f"),
        at_most("tasks that never ran, worst", worst_of(missing, "missing"), 0, ".0f"),
        at_most(
            "runs that did not finish by themselves", sum(r["missing"] for r in itself), 0, ".0f"
        ),
    ]
    title = f"{count:,} × 'echo i >> ran; sleep 0.01', 2 slots, server killed half-way"
    tables = [Table(SERVER_COLUMNS, with_best(rows, "seconds", min))]
    return Report("fault-server", title, tables, verdicts)


def server_once(where: rig.Rig, count: int) -> Row:
    found, floors = where.with_floors(lambda: _killed_half_way(where, count))
    return {**found, **floor_cells(floors)}


def _killed_half_way(where: rig.Rig, count: int) -> Row:
    with where.server("--slots", "2") as server:
        rig.warm_up(server.client)
        ran = server.directory.parent / "ran"
        ran.touch()
        began = time.monotonic()
        script = f"echo {{i}} >> {ran}; sleep 0.01"
        bag = rig.submit(server.client, count, "sh", "-c", script)
        server.client.close()
        before = _wait_lines(ran, count // 2)
        processes.kill(server.pid)
        processes.wait_gone(server.pid, 5)
        status, gap = _watch(server.command_line("watch", str(bag)), ran)
        seconds = time.monotonic() - began
        view = _view_again(server.directory, bag)
        lines = Counter(ran.read_text().split())
        return {
            **view,
            "distinct": len(lines),
            "reruns": lines.total() - len(lines),
            "by_itself": "yes" if status == 0 else "no",
            "gap": gap,
            "ran_before": before,
            "seconds": seconds,
            "ideal": count * 0.01 / 2,
        }


def _watch(command: list[str], ran: Path) -> tuple[int, float]:
    """Its exit status, and the longest time in which no task began."""
    null = subprocess.DEVNULL
    size, since, gap = 0, time.monotonic(), 0.0
    with subprocess.Popen(command, stdin=null, stdout=null, stderr=null) as watching:
        try:
            while watching.poll() is None:
                if (now_size := ran.stat().st_size) != size:
                    gap = max(gap, time.monotonic() - since)
                    size, since = now_size, time.monotonic()
                time.sleep(0.005)
        except BaseException:
            watching.kill()
            raise
        return watching.returncode, gap


def _wait_lines(path: Path, count: int) -> int:
    while (found := path.read_bytes().count(b"\n")) < count:
        time.sleep(0.005)
    return found


def _view_again(directory: Path, bag: int) -> Row:
    """What the server that was started in between says; it is stopped."""
    client = embedded.attach_or_start(directory)
    pid = client.server().pid
    try:
        view = client.bag(bag)
        if view is None:
            raise rig.Broken("the bag is gone")
        return {"done": view.done, "failed": view.failed}
    finally:
        rig.stop(client, pid)
