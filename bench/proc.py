"""proc: 20,000 × `/bin/true` on two slots, from the first submit call to the last exit status in
the submitter's hands. `xargs -P2`, which keeps no record of anything, is the peer.

Where others use the machine too (a column says how much of one core), covey, which has more
processes than the floor, gets more than the floor's share of it, and its ratio flatters. CPU time
does not: with both cores busy, the floor's CPU per spawn over ours per task is the ratio to come.

Then as many tasks again on the same server, in slices that take turns, so that all meet the same
machine: bags with a policy (requirements over statistics and tags of the host, rank, concurrency)
and bags without.
"""

import subprocess
import time
from pathlib import Path
from statistics import median

from bench import cpu, rig
from bench.measures import Floors
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
from covey.client.client import Client
from covey.core.record.model import BagSpec, PolicySpec

TASKS = 20_000
CROWDED = 20  # per cent of a core that others may use in a run that counts
COLUMNS = (
    RUN,
    Column("rate", "covey tasks/s", ",.0f"),
    Column("ratio", "of the floor", ".2f"),
    *FLOORS,
    Column("micros", "CPU µs/task", ",.0f"),
    Column("cpu_ratio", "floor's CPU/ours", ".2f"),
    Column("others", "others' CPU, %", ".0f"),
    Column("peer", "xargs -P2 tasks/s", ",.0f"),
    Column("peer_ratio", "xargs of its floor", ".2f"),
    Column("ahead", "covey/xargs", ".2f"),
    Column("peer_floor_after", "floor after xargs", ",.0f"),
    Column("with_policy", "with a policy/without", ".2f"),
    NOTE,
)
SLICES = 4  # with a policy, and as many without
NONE = PolicySpec()
POLICY = PolicySpec(
    requirements="Host.ErrorRate < 0.5 && Host.cores >= 1 && Host.Turnaround < 1000",
    rank="Host.cores * (1 - Host.ErrorRate) + Host.JobsToday / 1e6",
    concurrency="Host.ConsecutiveFailures > 3 ? Pilot.Slots : 500 * Pilot.Slots",
)


class Proc:
    def __init__(self, where: rig.Rig) -> None:
        self.rig = where
        self.tasks = 2_000 if where.quick else TASKS
        self.breakdown: Table | None = None  # of the least crowded run
        self.least_others = float("inf")

    def run(self) -> Report:
        rows = self.rig.repeat("proc", self._once)
        tables = [Table(COLUMNS, with_best(rows, "ratio"))]
        if self.breakdown is not None:
            tables.append(self.breakdown)
        verdicts = [
            at_least("best ratio to the floor", best_of(rows, "ratio"), 0.75),
            at_least("best ratio to xargs -P2 of the same run", best_of(rows, "ahead"), 1.0),
            at_least(
                "best rate with a policy over that without", best_of(rows, "with_policy"), 0.85
            ),
        ]
        verdicts = [unless_noisy(verdict, rows) for verdict in verdicts]
        return Report("proc", f"{self.tasks:,} × /bin/true, 2 slots", tables, verdicts)

    def _once(self, _: int) -> Row:
        with self.rig.server("--slots", "2") as server:
            rig.warm_up(server.client)
            (seconds, used), floors = self.rig.with_floors(lambda: self._covey(server))
            with_policy = self._with_policy(server)
        peer_seconds = xargs(self.rig.directory(), self.tasks)
        peer_floors = Floors(floors.after, self.rig.floor())
        rate, peer = self.tasks / seconds, self.tasks / peer_seconds
        others = used[cpu.OTHERS] * rate / 1e4
        if self.rig.cpu and others < self.least_others:
            self.least_others, self.breakdown = others, cpu.breakdown(used, floors)
        cells = floor_cells(floors)
        notes = [cells["note"], "xargs noisy" * peer_floors.noisy, "crowded" * (others > CROWDED)]
        cells["note"] = ", ".join(filter(None, notes))
        cells["noisy"] |= others > CROWDED
        return {
            **cells,
            "rate": rate,
            "ratio": floors.ratio(rate),
            "micros": cpu.ours(used),
            "cpu_ratio": floors.micros / cpu.ours(used),
            "others": others,
            "peer": peer,
            "peer_ratio": peer_floors.ratio(peer),
            "ahead": rate / peer,
            "peer_floor_after": peer_floors.after.rate,
            "with_policy": with_policy,
        }

    def _covey(self, server: rig.Server) -> tuple[float, dict[str, float]]:
        """Seconds in all, and where the CPU time went."""
        before = cpu.usage(server.pid)
        began = time.monotonic()
        bag = rig.submit(server.client, self.tasks, "/bin/true")
        rig.statuses(rig.stream(server.client, bag, self.tasks), self.tasks)
        seconds = time.monotonic() - began
        after = cpu.usage(server.pid)
        return seconds, cpu.per_task(before, after, self.tasks, server.pid)

    def _with_policy(self, server: rig.Server) -> float:
        """Tasks per second with a policy over those without."""
        count = self.tasks // (2 * SLICES)
        plain, ruled = [], []
        for _ in range(SLICES):
            plain.append(bag_seconds(server.client, count, NONE))
            ruled.append(bag_seconds(server.client, count, POLICY))
        return median(plain) / median(ruled)


def bag_seconds(client: Client, count: int, policy: PolicySpec) -> float:
    began = time.monotonic()
    spec = BagSpec(argv=("/bin/true",), space=rig.counting(count), policy=policy)
    rig.statuses(rig.stream(client, client.submit(spec).bag, count), count)
    return time.monotonic() - began


def xargs(directory: Path, count: int) -> float:
    """Seconds for `xargs -P2 -n1 /bin/true` with that many arguments."""
    arguments = directory / "arguments"
    arguments.write_text("".join(f"{i}\n" for i in range(1, count + 1)))
    with open(arguments) as lines:
        began = time.monotonic()
        subprocess.run(["xargs", "-P2", "-n1", "/bin/true"], stdin=lines, check=True)
        return time.monotonic() - began


def run(where: rig.Rig) -> Report:
    return Proc(where).run()
