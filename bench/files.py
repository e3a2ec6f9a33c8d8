"""files: 20,000 tasks with a shared input of 1 MB, each of which reads its directory and returns
a file of 1 kB; against as many tasks without files, in the same run.

The program is the same in both halves, and copies 1 kB: only where it comes from and where it goes
differs, so the ratio is what covey's files cost.
"""

import os
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
from covey.client.client import Client
from covey.client.upload import Upload
from covey.core.record.model import BagSpec, Placed

TASKS = 20_000
INPUT_BYTES = 1 << 20
OUTPUT_BYTES = 1000

COLUMNS = (
    RUN,
    Column("rate", "with files, tasks/s", ",.0f"),
    Column("plain", "without, tasks/s", ",.0f"),
    Column("ratio", "with/without", ".2f"),
    Column("of_floor", "with files, of the floor", ".2f"),
    *FLOORS,
    NOTE,
)


class Files:
    def __init__(self, where: rig.Rig) -> None:
        self.rig = where
        self.tasks = 1_000 if where.quick else TASKS

    def run(self) -> Report:
        rows = self.rig.repeat("files", self._once)
        verdict = at_least("best ratio to tasks without files", best_of(rows, "ratio"), 0.5)
        title = f"{self.tasks:,} tasks with a 1 MB shared input and a 1 kB output, 2 slots"
        table = Table(COLUMNS, with_best(rows, "ratio"))
        return Report("files", title, [table], [unless_noisy(verdict, rows)])

    def _once(self, _: int) -> Row:
        with self.rig.server("--slots", "2") as server:
            rig.warm_up(server.client)
            spec = self._with_files(server.client)
            (seconds, plain), floors = self.rig.with_floors(lambda: self._both(server, spec))
        rate = self.tasks / seconds
        return {
            **floor_cells(floors),
            "rate": rate,
            "plain": self.tasks / plain,
            "ratio": plain / seconds,
            "of_floor": floors.ratio(rate),
        }

    def _both(self, server: rig.Server, spec: BagSpec) -> tuple[float, float]:
        plain = BagSpec(argv=("/bin/true",), space=rig.counting(self.tasks))
        return self._timed(server.client, spec), self._timed(server.client, plain)

    def _timed(self, client: Client, spec: BagSpec) -> float:
        began = time.monotonic()
        bag = client.submit(spec).bag
        rows = rig.stream(client, bag, self.tasks)
        seconds = time.monotonic() - began
        rig.statuses(rows, self.tasks)
        if spec.outputs and any(row.files != 1 for row in rows):
            raise rig.Broken("a task has not returned its file")
        return seconds

    def _with_files(self, client: Client) -> BagSpec:
        upload = Upload(client)
        blob = upload.add(os.urandom(INPUT_BYTES))
        upload.send()
        return BagSpec(
            argv=("/bin/dd", "if=shared.bin", "of=out.bin", f"bs={OUTPUT_BYTES}", "count=1",
                  "status=none"),
            space=rig.counting(self.tasks),
            inputs=(Placed(path="shared.bin", blob=blob),),
            outputs=("out.bin",),
        )  # fmt: skip


def run(where: rig.Rig) -> Report:
    return Files(where).run()
