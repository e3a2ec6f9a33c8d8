"""many-bags: what a thousand queued bags cost, compared with one bag.

All bags are submitted while another one holds every slot, so that all are queued when the first of
their tasks starts. They are large: for as long as is measured, all but a few are queued. Everything
goes through a real server with a real pilot. The server's CPU time for each task is given, too: it
is less noisy than the rate.

Each kind of bag is compared with one plain bag, which is measured just before it: the machine may
have become slower or faster since the last one.
"""

import time
from typing import NamedTuple

from bench import processes, ranks, rig
from bench.report import NOTE, RUN, Column, Report, Row, Table, Verdict, at_least, good
from covey.core.record.model import BagSpec, PolicySpec
from covey.core.values.space import Axis, Product, Range

BAGS = 1_000
TASKS = 1_000  # in each of them: 100 for each of ten values of `k`
FIRST_SECONDS, SECONDS = 2.0, 10.0  # after the start, what is measured begins; and lasts
SLOTS = 2
COLUMNS = (
    RUN,
    Column("kind", "bags with"),
    Column("bags", "bags", ",d"),
    Column("one", "tasks/s of one plain bag", ",.0f"),
    Column("many", "tasks/s", ",.0f"),
    Column("share", "share", ".2f"),
    Column("one_cpu", "server µs a task, one plain bag", ",.0f"),
    Column("many_cpu", "server µs a task", ",.0f"),
    NOTE,
)


class Kind(NamedTuple):
    name: str
    policy: PolicySpec
    bound: float  # of the rate of one plain bag


KINDS = (
    Kind("no policy", PolicySpec(), 0.9),
    Kind("requirements", PolicySpec(requirements="Host.ErrorRate < 0.5"), 0.8),
    Kind("a preset", PolicySpec(preset="fast-tail"), 0.8),
    Kind("a rank by parameter", PolicySpec(rank="Job.k"), 0.5),
)


class Speed(NamedTuple):
    rate: float  # tasks ended in a second
    micros: float  # CPU time of the server for each task


class Look(NamedTuple):
    """How far a server is."""

    time: float
    ended: int
    cpu: float


def run(where: rig.Rig) -> Report:
    bags, seconds = (50, 1.0) if where.quick else (BAGS, SECONDS)
    rows: list[Row] = []
    for kind in KINDS:

        def once(_: int, kind: Kind = kind) -> Row:
            return compare(where, kind, bags, seconds)

        rows += where.repeat(f"many-bags, {kind.name}", once)
    title = f"{bags:,} queued bags of {TASKS:,} tasks, compared with one bag"
    return Report("many-bags", title, [Table(COLUMNS, rows)], verdicts(rows))


def verdicts(rows: list[Row]) -> list[Verdict]:
    found = []
    for kind in KINDS:
        shares = [row["share"] for row in good(rows, "share") if row["kind"] == kind.name]
        best = max(shares, default=None)
        found.append(at_least(f"share of the rate, {kind.name}", best, kind.bound))
    return found


def compare(where: rig.Rig, kind: Kind, bags: int, seconds: float) -> Row:
    one = measure(where, PolicySpec(), 1, bags * TASKS, seconds)
    many = measure(where, kind.policy, bags, TASKS, seconds)
    return {
        "kind": kind.name,
        "bags": bags,
        "one": one.rate,
        "many": many.rate,
        "share": many.rate / one.rate,
        "one_cpu": one.micros,
        "many_cpu": many.micros,
    }


def measure(where: rig.Rig, policy: PolicySpec, bags: int, tasks: int, seconds: float) -> Speed:
    with where.server("--slots", str(SLOTS)) as server:
        client = server.client
        rig.warm_up(client)
        gate = server.directory.parent / "gate"
        guard = BagSpec(argv=("sh", "-c", ranks.WAIT.format(gate)), space=rig.counting(SLOTS))
        ranks.wait_running(client, client.submit(guard).bag, SLOTS)
        space = Product((Axis("k", Range("1", "1", 10)), rig.counting(tasks // 10)))
        spec = BagSpec(argv=("/bin/true",), space=space, policy=policy)
        for _ in range(bags):
            client.submit(spec)
        gate.touch()
        time.sleep(FIRST_SECONDS)
        before = look(server)
        time.sleep(seconds)
        after = look(server)
    ended = after.ended - before.ended
    if not ended:
        raise rig.Broken(f"no task ended in {seconds:.0f} s")
    return Speed(ended / (after.time - before.time), 1e6 * (after.cpu - before.cpu) / ended)


def look(server: rig.Server) -> Look:
    used = processes.cpu(server.pid)
    views = server.client.bags()
    failed = sum(view.failed for view in views) - 1  # one of those that warm up fails
    if failed:
        raise rig.Broken(f"{failed} tasks failed")
    return Look(time.monotonic(), sum(view.done for view in views), used)
