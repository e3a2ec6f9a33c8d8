"""results: `covey results` on a bag of a million finished tasks, through a server and without one.

The record is filled through the store's own writer, as a server would, with values that tasks
reported. Then the real command runs: its first page on a terminal's terms, and the whole table as
CSV to a file, with its peak memory.
"""

import resource
import subprocess
import time
from pathlib import Path

from bench import rig
from bench.report import NOTE, RUN, Column, Report, Row, Table, at_least, at_most, best_of
from covey.client import embedded
from covey.core.record.actions import (
    Change,
    CloseChunk,
    LeaseChunk,
    RecordEnds,
    SaveBag,
    SaveBagStatus,
)
from covey.core.record.model import (
    BagId,
    BagRecord,
    BagSpec,
    BagStatus,
    EndRecord,
    PilotId,
    Verdict,
)
from covey.core.values.space import Axis, Product, Range
from covey.pilot.protocol.messages import End
from covey.store.sqlite.sqlite_record import SqliteRecord

TASKS = 1_000_000
BATCH = 10_000

COLUMNS = (
    RUN,
    Column("way", "read"),
    Column("first", "first page, ms", ",.0f"),
    Column("rate", "CSV rows/s", ",.0f"),
    Column("memory", "peak of the command, MB", ",.0f"),
    NOTE,
)


class Results:
    def __init__(self, where: rig.Rig) -> None:
        self.rig = where
        self.tasks = 20_000 if where.quick else TASKS

    def run(self) -> Report:
        rows: list[Row] = []
        self.rig.bounded("results", 1, lambda _: self._all(rows))
        verdicts = [
            at_most("first page, ms", best_of(rows, "first", min), 300.0),
            at_least("CSV rows/s", min((row["rate"] for row in rows), default=None), 100_000.0),
        ]
        title = f"`covey results` on {self.tasks:,} finished tasks"
        return Report("results", title, [Table(COLUMNS, rows)], verdicts)

    def _all(self, rows: list[Row]) -> Row:
        directory = self.rig.directory() / ".covey"
        directory.mkdir(mode=0o700)
        fill(directory / "covey.db", self.tasks)
        rows.append({"run": 1, "way": "without a server", **self._read(directory)})
        client = embedded.attach_or_start(directory, ())
        pid = client.server().pid
        try:
            rows.append({"run": 1, "way": "through a server", **self._read(directory)})
        finally:
            rig.stop(client, pid)
        return {}

    def _read(self, directory: Path) -> Row:
        command = [rig.covey_program(), "--dir", str(directory), "results"]
        first = min(timed([*command, "--limit", "50"])[0] for _ in range(3))
        target = self.rig.directory() / "table.csv"
        seconds, peak = timed([*command, "-o", str(target)])
        with open(target, "rb") as file:
            lines = sum(1 for _ in file)
        if lines != self.tasks + 1:
            raise rig.Broken(f"{lines} lines of {self.tasks + 1}")
        return {"first": first * 1000, "rate": self.tasks / seconds, "memory": peak}


def timed(command: list[str]) -> tuple[float, float]:
    """Seconds, and the largest memory in MB of any command so far."""
    began = time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    seconds = time.monotonic() - began
    return seconds, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024


def fill(path: Path, count: int) -> None:
    """A finished bag of so many tasks, with two parameters and two reported values."""
    record = SqliteRecord(path)
    record.open()
    columns = 100
    space = Product(
        (
            Axis("alpha", Range("0.0", "0.5", count // columns)),
            Axis("seed", Range("1", "1", columns)),
        )
    )
    spec = BagSpec(argv=("fit", "{alpha}", "{seed}"), space=space, name="million")
    bag = BagId(1)
    record.apply([SaveBag(BagRecord(id=bag, spec=spec, total=count, created=1000.0))])
    for first in range(0, count, BATCH):
        stop = min(first + BATCH, count)
        ends = tuple(_end(bag, task) for task in range(first, stop))
        changes: list[Change] = [
            LeaseChunk(bag, first, stop),
            RecordEnds(PilotId(1), first // BATCH + 1, ends),
            CloseChunk(bag, first),
        ]
        record.apply(changes)
    record.apply([SaveBagStatus(bag, BagStatus.FINISHED, 9000.0, count, 0)])
    record.close()


def _end(bag: BagId, task: int) -> EndRecord:
    started = 1000.0 + task / 1000
    end = End(
        1,
        task + 1,
        bag,
        task,
        "ok",
        exit_code=0,
        cpu_seconds=1.0 + task % 7 / 10,
        memory_kb=20_000 + task % 1000,
        result=f'{{"energy":{-task / 3:.6f},"steps":{task % 977}}}',
    )
    return EndRecord(
        end,
        Verdict.COUNTS,
        pilot=PilotId(1),
        host=f"node{task % 50}",
        sent=started,
        fetched=started,
        started=started,
        ended=started + 1.25,
        delivered=started + 1.5,
    )


def run(where: rig.Rig) -> Report:
    return Results(where).run()
