"""ranks: do bags finish in the order of their ranks? GridBot's Figure 7, smaller.

50 bags of 40 very short tasks are submitted in random order, each with a rank that no other has,
to a real server with real pilots. A bag that holds all slots until the others are there makes them
come at once. Kendall's tau compares the order in which bags finish with their ranks; besides, how
many pairs of bags are in order when a tenth of each one's tasks is left, before the tails mix.
"""

import random
import time
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

from bench import rig
from bench.report import NOTE, RUN, Column, Report, Row, Table, Verdict, at_least
from covey.client.client import Client
from covey.core.record.model import BagSpec, PolicySpec

BAGS = 50
TASKS = 40
PILOTS, SLOTS = 2, 2
SEEDS = (1, 2, 3)
BOUND = 0.9
LEFT = 0.1  # of a bag's tasks, where the second figure is taken
WAIT = "until [ -e {0} ]; do sleep 0.02; done"
GATE_SECONDS = 30.0
COLUMNS = (
    RUN,
    Column("seed", "seed", "d"),
    Column("bags", "bags", "d"),
    Column("tasks", "tasks in each", "d"),
    Column("tau", "Kendall's tau", ".3f"),
    Column("in_order", "pairs in order at 90 %", ".3f"),
    Column("seconds", "all done in, s", ".2f"),
    NOTE,
)


class Finished(NamedTuple):
    """A bag, and when it had done 90 % of its tasks, and all."""

    rank: int
    nearly: float
    wholly: float


def run(where: rig.Rig) -> Report:
    bags = 10 if where.quick else BAGS
    rows = where.repeat("ranks", lambda run: once(where, SEEDS[run - 1], bags), len(SEEDS))
    title = f"{bags} bags, each with a rank of its own"
    return Report("ranks", title, [Table(COLUMNS, rows)], verdicts(rows))


def verdicts(rows: list[Row]) -> list[Verdict]:
    return [at_least(f"tau, seed {SEEDS[row['run'] - 1]}", row.get("tau"), BOUND) for row in rows]


def once(where: rig.Rig, seed: int, bags: int) -> Row:
    with where.server("--pilots", str(PILOTS), "--slots", str(SLOTS)) as server:
        gate = server.directory.parent / "gate"
        began, found = contest(server.client, gate, seed, bags, TASKS, PILOTS * SLOTS)
    return {
        "seed": seed,
        "bags": bags,
        "tasks": TASKS,
        "tau": tau([one.wholly for one in found]),
        "in_order": share_in_order([one.nearly for one in found]),
        "seconds": max(one.wholly for one in found) - began,
    }


def contest(
    client: Client, gate: Path, seed: int, bags: int, tasks: int, slots: int, *argv: str
) -> tuple[float, list[Finished]]:
    """When the gate was opened, and how the bags fared, the best ranked first. Tasks are `argv`;
    `/bin/true` without."""
    script = WAIT.format(gate)
    guard = client.submit(BagSpec(argv=("sh", "-c", script), space=rig.counting(slots))).bag
    wait_running(client, guard, slots)
    ranks = list(range(1, bags + 1))
    random.Random(seed).shuffle(ranks)
    ids = {}
    for rank in ranks:
        policy = PolicySpec(rank=str(rank))
        spec = BagSpec(argv=argv or ("/bin/true",), space=rig.counting(tasks), policy=policy)
        ids[rank] = client.submit(spec).bag
    gate.touch()
    began = time.time()
    found = [finished(client, ids[rank], rank, tasks) for rank in ranks]
    return began, sorted(found, reverse=True)


def wait_running(client: Client, bag: int, count: int) -> None:
    until = time.monotonic() + GATE_SECONDS
    while (view := client.bag(bag)) is None or view.running < count:
        if time.monotonic() > until:
            raise rig.Broken(f"{view.running if view else 0} of {count} slots are held")
        time.sleep(0.02)


def finished(client: Client, bag: int, rank: int, tasks: int) -> Finished:
    rows = rig.stream(client, bag, tasks)
    rig.statuses(rows, tasks)
    ended = sorted(row.ended for row in rows)
    return Finished(rank, ended[int(tasks * (1 - LEFT)) - 1], ended[-1])


# -- arithmetic ----------------------------------------------------------------------------


def tau(times: Sequence[float]) -> float:
    """Kendall's: 1 if they grow all the way, -1 if they fall. A tie counts for neither."""
    pairs = list(combinations(times, 2))
    return sum((first < second) - (first > second) for first, second in pairs) / len(pairs)


def share_in_order(times: Sequence[float]) -> float:
    """Of all pairs, those in which the first comes first."""
    pairs = list(combinations(times, 2))
    return sum(first < second for first, second in pairs) / len(pairs)
