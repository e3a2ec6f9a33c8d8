"""fault-worker, fault-server, flaky: what killed workers, a killed server, and a run of bad luck
cost. Tasks write down that they ran, so that no tool's word is needed for it."""

import os
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from bench import processes, rig
from bench.peers import misfortune
from bench.peers.field import NOTE, RUN, TOOL, US, Field, best_rows, bound_again, ours
from bench.peers.link import Link
from bench.peers.misfortune import Schedule
from bench.peers.peer import NotThere
from bench.report import FLOORS, Column, Report, Row, Table, at_most, floor_cells

POLL_SECONDS = 0.05
STUCK_SECONDS = 20.0
MOST_SECONDS = 160.0  # of a run, after which it is counted as it stands
RETRIES = 10

WORKERS = 4
SLEEPS = 200
KILL_AFTER_SECONDS = 5.0
WORKER_COLUMNS = (
    TOOL,
    RUN,
    Column("undisturbed", "undisturbed, s", ".2f"),
    Column("disturbed", "with a kill, s", ".2f"),
    Column("lost", "lost, s", ".2f"),
    Column("ok", "ok", ",d"),
    Column("failed", "failed", ",d"),
    Column("began", "tasks that began", ",d"),
    Column("restarted", "run again", ",d"),
    *FLOORS,
    NOTE,
)


# -- fault-worker --------------------------------------------------------------------------


def fault_worker(field: Field) -> Report:
    count = 80 if field.quick else SLEEPS
    after = 1.5 if field.quick else KILL_AFTER_SECONDS

    def once(link: Link) -> Row:
        def both() -> tuple[Row, Row]:
            calm = _sleeps(link, count, None)
            return calm, _sleeps(link, count, after)

        link.start(workers=WORKERS, slots=1)
        link.ask("check")
        bound_again()
        (calm, hit), floors = field.rig.with_floors(both)
        cells = floor_cells(floors)
        cells["note"] = "; ".join(filter(None, (cells["note"], calm["note"], hit.pop("note"))))
        times = {"undisturbed": calm["seconds"], "disturbed": hit.pop("seconds")}
        return {**times, "lost": times["disturbed"] - times["undisturbed"], **hit, **cells}

    rows = field.rounds("fault-worker", once)
    title = f"{count} × sleep 0.2, {WORKERS} workers of one slot, one killed with all below it"
    verdicts = [at_most("covey: tasks failed", ours(rows, "failed", max), 0, ".0f")]
    tables = [Table(WORKER_COLUMNS, rows + best_rows(rows, "lost", min))]
    notes = [
        "GNU parallel and xargs have no workers: the job in a slot is killed.",
        "A killed worker is replaced at once, by the tool if it does so itself (covey, parsl,"
        " executorlib), else by the harness.",
    ]
    return Report("fault-worker", title, tables, verdicts, notes)


def _sleeps(link: Link, count: int, kill_after: float | None) -> Row:
    ran = _fresh(link.directory / "ran")
    began = time.monotonic()
    link.ask("begin", argv=["sh", "-c", f"echo {{i}} >> {ran}; sleep 0.2"], count=count)
    if kill_after is not None:
        time.sleep(kill_after)
        _kill_busy(link)
        if not link.traits["replaces_workers"]:
            link.ask("add_worker")
    found, stuck = _watch(link, ran, began)
    lines = Counter(ran.read_text().split())
    return {
        "seconds": time.monotonic() - began,
        "ok": found["ok"],
        "failed": found["failed"] + (count - found["done"]),
        "began": len(lines),
        "restarted": lines.total() - len(lines),
        "note": "; ".join(filter(None, (stuck, found["error"]))),
    }


def _fresh(path: Path) -> Path:
    path.unlink(missing_ok=True)
    path.touch()
    return path


def _kill_busy(link: Link) -> None:
    """One that has a task's shell or sleep below it."""
    until = time.monotonic() + 10
    while time.monotonic() < until:
        for pid in link.ask("workers")["workers"].values():
            below = [pid, *processes.descendants(pid)]
            if any(processes.command(one)[:2] == ["sleep", "0.2"] for one in below):
                processes.kill_tree(pid)
                return
    raise rig.Broken("no worker was seen to run a task")


def _watch(link: Link, ran: Path, began: float) -> tuple[dict[str, Any], str]:
    """What became of them, and why it was given up if it was."""
    size, since = -1, time.monotonic()
    while True:
        found = link.ask("poll")
        now = time.monotonic()
        new_size = ran.stat().st_size + found["done"]
        if found["over"]:
            return found, ""
        if new_size != size:
            size, since = new_size, now
        if now - since > STUCK_SECONDS + 100 * (link.tool.module == "parsl"):
            return found, f"nothing happened for {now - since:.0f} s"
        if now - began > MOST_SECONDS:
            return found, f"given up after {MOST_SECONDS:.0f} s"
        time.sleep(POLL_SECONDS)


# -- fault-server --------------------------------------------------------------------------

ECHOES = 2_000
SERVER_COLUMNS = (
    TOOL,
    RUN,
    Column("distinct", "distinct tasks run", ",d"),
    Column("before", "run before the kill", ",d"),
    Column("reruns", "reruns", ",d"),
    Column("ok", "ok", ",d"),
    Column("by_itself", "finished by itself"),
    Column("seconds", "in all, s", ".1f"),
    Column("ideal", "ideal, s", ".1f"),
    *FLOORS,
    NOTE,
)


def fault_server(field: Field) -> Report:
    count = 200 if field.quick else ECHOES

    def once(link: Link) -> Row:
        found, floors = field.rig.with_floors(lambda: _killed_half_way(field, link, count))
        cells = floor_cells(floors)
        cells["note"] = "; ".join(filter(None, (cells["note"], found.pop("note"))))
        return {**found, "ideal": count * 0.01 / 2, **cells}

    rows = field.rounds("fault-server", once)
    verdicts = [at_most("covey: reruns", ours(rows, "reruns", max), 0, ".0f")]
    title = f"{count:,} × 'echo i >> ran; sleep 0.01', 2 slots, server killed half-way"
    notes = [
        "Where the submitting program is the server (HyperQueue's PyPI build, parsl, ray without"
        " Redis, executorlib), that is killed and started again, and submits everything again;"
        " parsl with checkpoints, executorlib with a cache, as their manuals have it.",
        "parsl's checkpoints keep what had run; but its interchange outlives the program and works"
        " its queue off, beside the new program: its reruns are those.",
        "Where a tool does not go on by itself, everything is submitted again by hand; GNU parallel"
        " with --resume.",
    ]
    tables = [Table(SERVER_COLUMNS, rows + best_rows(rows, "reruns", min))]
    return Report("fault-server", title, tables, verdicts, notes)


def _killed_half_way(field: Field, link: Link, count: int) -> Row:
    traits = link.start(workers=1, slots=2, durable=True)
    ran = _fresh(link.directory / "ran")
    asked = {"argv": ["sh", "-c", f"echo {{i}} >> {ran}; sleep 0.01"], "count": count}
    began = time.monotonic()
    link.ask("begin", **asked)
    while len(ran.read_bytes().split()) < count // 2:
        time.sleep(0.005)
        # Not asked in between: a tool that is busy answers late, and the kill would come late.
        if time.monotonic() - began > MOST_SECONDS / 2:
            raise rig.Broken(f"half of it never ran; {link.ask('poll')['error']}")
    note, before = "", len(ran.read_bytes().split())
    if traits["is_program"]:
        link.kill()
        link = Link(link.tool, field.environments[link.tool.name], link.directory)
        link.start(workers=1, slots=2, durable=True)
        found = {"ok": 0}
    else:
        processes.kill(link.ask("server")["pid"])
        time.sleep(0.2)
        link.ask("restart")
        found, note = _watch(link, ran, began)
    by_itself = found["ok"] == count
    if not by_itself:
        link.ask("begin", **asked)
        found, note = _watch(link, ran, began)
    lines = Counter(ran.read_text().split())
    return {
        "distinct": len(lines),
        "before": before,
        "reruns": lines.total() - len(lines),
        "ok": found["ok"],
        "by_itself": "yes" if by_itself else "no",
        "seconds": time.monotonic() - began,
        "note": "; ".join(filter(None, (note, found.get("error", "")))),
    }


# -- flaky ---------------------------------------------------------------------------------

FLAKY_COLUMNS = (
    TOOL,
    RUN,
    Column("seconds", "makespan, s", ".1f"),
    Column("over", "of the bound", ".2f"),
    Column("ok", "ok", ",d"),
    Column("failed", "failed for good", ",d"),
    Column("lost", "never ran to an end", ",d"),
    Column("attempts", "attempts that ran", ",d"),
    Column("wasted", "wasted, s", ".1f"),
    Column("kills", "workers killed", ",d"),
    *FLOORS,
    NOTE,
)


def flaky(field: Field) -> Report:
    plan = misfortune.schedule()
    if field.quick:
        quick = {"seconds": misfortune.QUICK_SECONDS, "between": misfortune.QUICK_KILLS}
        plan = misfortune.schedule(tasks=60, **quick)

    def once(link: Link) -> Row:
        return _flaky(field, link, plan)

    rows = field.rounds("flaky", once)
    title = (
        f"{len(plan.durations)} tasks, {plan.work:.0f} s of work, {plan.workers} workers:"
        f" {plan.black} black holes, {plan.slow} slow, one killed every few s"
    )
    notes = [
        f"Lower bound: {plan.bound:.1f} s = {plan.work:.0f} s of work / ({plan.healthy} + "
        f"{plan.slow} × 0.2 workers). Seed {misfortune.SEED}. Retries: {RETRIES} for everybody, in"
        " the tool's own setting (docs/benchmarks.md).",
        "A makespan counts only together with the tasks that failed: giving up is fast.",
    ]
    done = [row for row in rows if row.get("ok") == len(plan.durations)]
    best = best_rows(rows, "score", min)
    verdicts = [at_most("covey: tasks failed for good", ours(rows, "failed", min), 0, ".0f")]
    mine, others = ours(done, "over", min), [row["over"] for row in done if row["tool"] != US]
    if mine is not None:
        verdicts.append(at_most("covey: of the bound", mine, 1.3))
    if mine is not None and others:
        ahead = mine / min(others)
        verdicts.append(at_most("covey: of the quickest other that ended all", ahead, 1.0))
    notes.append(f"Runs of other tools in which no task was left: {len(others)}.")
    return Report("flaky", title, [Table(FLAKY_COLUMNS, rows + best)], verdicts, notes)


def _flaky(field: Field, link: Link, plan: Schedule) -> Row:
    traits = link.start(workers=plan.workers, slots=1, retries=RETRIES)
    if link.tool.module == "hyperqueue":
        raise NotThere("its workers are threads of one process: none can be killed or slowed")
    folder = link.directory / "flaky"
    for name in ("black", "attempts"):
        (folder / name).mkdir(parents=True)
    (folder / "durations").write_text(" ".join(f"{one:.2f}" for one in plan.durations))
    bound_again()
    luck = Luck(link, plan, folder, traits)
    floor = field.rig.floor()
    try:
        found, seconds, note = luck.run()
    finally:
        luck.let_go()
    cells = floor_cells(rig.Floors(floor, field.rig.floor()))
    attempts = misfortune.read_attempts(folder / "attempts")
    cells["note"] = "; ".join(filter(None, (cells["note"], note, found["error"])))
    return {
        "seconds": seconds,
        "over": seconds / plan.bound,
        "ok": found["ok"],
        "failed": len(plan.durations) - found["ok"],
        "lost": misfortune.lost(attempts, len(plan.durations)),
        "attempts": len(attempts),
        "wasted": misfortune.wasted(attempts),
        "kills": luck.kills,
        "score": 1000 * (len(plan.durations) - found["ok"]) + seconds,
        **cells,
    }


class Luck:
    """Carries the schedule out on one tool's workers. A worker is a name and a process; one that
    takes the place of another takes its number."""

    def __init__(self, link: Link, plan: Schedule, folder: Path, traits: dict[str, Any]) -> None:
        self.link, self.plan, self.folder = link, plan, folder
        self.quick = len(plan.durations) < 100
        self.first_slot = traits["first_slot"]
        self.replaces = traits["replaces_workers"]
        self.names: list[str] = []
        self.pids: dict[str, int] = {}
        self.stopped: list[int] = []
        self.kills = 0

    def run(self) -> tuple[dict[str, Any], float, str]:
        argv = [sys.executable, "-I", "-S", str(misfortune.TASK), str(self.folder), "{i}"]
        asked = {"argv": argv, "count": len(self.plan.durations)}
        if self.first_slot is None:
            self._wait_workers()
        else:
            self.names = [str(self.first_slot + k) for k in range(self.plan.workers)]
        for name in self.names[: self.plan.black]:
            (self.folder / "black" / name).touch()
        began = time.monotonic()
        self.link.ask("begin", **asked)
        return self._play(began)

    def _wait_workers(self) -> None:
        until = time.monotonic() + 90
        while len(self.pids) < self.plan.workers:
            self.pids = self.link.ask("workers")["workers"]
            if time.monotonic() > until:
                raise rig.Broken(f"{len(self.pids)} of {self.plan.workers} workers came")
            time.sleep(0.1)
        self.names = list(self.pids)[: self.plan.workers]

    def _play(self, began: float) -> tuple[dict[str, Any], float, str]:
        kills = list(self.plan.kills)
        size, since, found = -1, began, self.link.ask("poll")
        while not found["over"]:
            now = time.monotonic()
            if kills and now - began >= kills[0].seconds:
                self._kill(kills.pop(0).worker)
            self._slow_down()
            found = self.link.ask("poll")
            new_size = found["done"] + len(os.listdir(self.folder / "attempts"))
            if new_size != size:
                size, since = new_size, now
            stuck = self.quick and now - since > 2 * STUCK_SECONDS
            if now - began > MOST_SECONDS or stuck:
                return found, now - began, f"given up after {now - began:.0f} s"
        return found, time.monotonic() - began, ""

    def _look(self) -> None:
        """New workers take the places of those that are gone."""
        self.pids = self.link.ask("workers")["workers"]
        if self.first_slot is not None:
            return
        new = [name for name in self.pids if name not in self.names]
        for k, name in enumerate(self.names):
            if name not in self.pids and new:
                self.names[k] = new.pop(0)

    def _kill(self, worker: int) -> None:
        self._look()
        name = self.names[self.plan.black + self.plan.slow + worker]
        pid = self.pids.get(name)
        if pid is None:
            return  # its replacement has not come yet, or its slot is empty
        processes.kill_tree(pid)
        self.kills += 1
        if not self.replaces:
            self.link.ask("add_worker")

    def _slow_down(self) -> None:
        """One period of 100 ms, of which the slow ones have 20."""
        if self.first_slot is not None:
            self._look()
        slow = self.names[self.plan.black : self.plan.black + self.plan.slow]
        parent_of = processes.parents()
        tops = [self.pids[name] for name in slow if name in self.pids]
        self.stopped = [pid for top in tops for pid in (top, *processes.below(top, parent_of))]
        _signal(self.stopped, signal.SIGSTOP)
        time.sleep(misfortune.PERIOD_SECONDS * misfortune.STOPPED)
        self.let_go()
        time.sleep(misfortune.PERIOD_SECONDS * (1 - misfortune.STOPPED))

    def let_go(self) -> None:
        _signal(self.stopped, signal.SIGCONT)
        self.stopped = []


def _signal(pids: list[int], number: int) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass
