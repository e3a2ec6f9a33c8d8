"""kill -9 at any moment: what `apply` returned for is there, whole, and nothing is there by half.

A child commits numbered batches as fast as it can and prints each number when its commit has
returned. It is killed after a random time, again and again, on the same record.
"""

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from covey.core.record.actions import LeaseChunk, SaveBag, SavePilot
from covey.store.sqlite.reading import SqliteReader
from covey.store.sqlite.sqlite_record import SqliteRecord
from covey.wire import ResultQuery
from tests.unit.store.builders import BAG, PILOT, bag, pilot

ROWS = 30  # per batch
KILLS = 20
TOTAL = 3_000_000

CHILD = """
import sys
from pathlib import Path
from covey.core.record.model import AttemptId
from covey.store.sqlite.sqlite_record import SqliteRecord
from covey.wire import ResultQuery
from tests.unit.store.builders import end, ends
rows, network = int(sys.argv[2]), sys.argv[3]
mounts = f"s:/x {Path(sys.argv[1]).parent} nfs rw 0 0\\n" if network == "nfs" else None
record = SqliteRecord(Path(sys.argv[1]), mounts=mounts)
snapshot = record.open()
batch = max((p.recorded for p in snapshot.pilots), default=0)
print("epoch", snapshot.epoch, flush=True)
while True:
    batch += 1
    tasks = range((batch - 1) * rows, batch * rows)
    made = [
        end(task, attempt=(snapshot.epoch, task + 1), stdout=f"{batch} says " + "x" * (task % 900))
        for task in tasks
    ]
    record.apply([ends(*made[: rows // 2]), ends(*made[rows // 2 :], number=batch)])
    print(batch, flush=True)
"""


@pytest.mark.parametrize("where", ["local", "nfs"])
def test_killed_inside_commits(tmp_path: Path, where: str) -> None:
    path = tmp_path / "record.db"
    record = SqliteRecord(path)
    record.open()
    record.apply([SavePilot(pilot()), SaveBag(bag(1, TOTAL)), LeaseChunk(BAG, 0, TOTAL)])
    record.close()
    chance = random.Random(20)
    batches, epoch = 0, 1
    for _ in range(KILLS if where == "local" else KILLS // 2):
        said = run_and_kill(path, where, chance.uniform(0.0, 0.25))
        assert int(said[0].split()[1]) == epoch + 1, "an epoch was used twice, or skipped"
        epoch += 1
        acknowledged = max(map(int, said[1:]), default=batches)
        batches = check(path, acknowledged, batches)
    assert batches > KILLS, "too few commits to mean anything"


def run_and_kill(path: Path, where: str, seconds: float) -> list[str]:
    """Kill it after so many seconds of work; all whole lines that it said."""
    command = [sys.executable, "-c", CHILD, str(path), str(ROWS), where]
    root = Path(__file__).parents[2]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=root) as child:
        assert child.stdout is not None
        first = child.stdout.readline()
        time.sleep(seconds)
        child.kill()
        rest = child.stdout.read()
    whole = rest[: rest.rfind(b"\n") + 1]
    return [first.decode(), *whole.decode().splitlines()]


def check(path: Path, acknowledged: int, before: int) -> int:
    """The batches that are there; they must be those acknowledged, or one more."""
    reader = SqliteReader(path)
    view = reader.bag(BAG)
    assert view is not None
    batches, part = divmod(view.done, ROWS)
    assert part == 0, "half a batch is there"
    assert acknowledged <= batches <= acknowledged + 1
    assert reader.results(BAG, ResultQuery(after=batches * ROWS - 1)) == []
    rows = reader.results(BAG, ResultQuery(after=before * ROWS - 1, limit=10**6))
    assert [row.task for row in rows] == list(range(before * ROWS, batches * ROWS))
    for row in rows[:: ROWS // 3]:
        output = reader.output(BAG, row.task)
        assert output is not None
        assert output.stdout == f"{row.task // ROWS + 1} says " + "x" * (row.task % 900)
    connection = reader._connection
    assert connection is not None
    assert connection.execute("SELECT number FROM synced").fetchall() == (
        [(batches,)] if batches else []
    )
    assert connection.execute("SELECT id FROM pilots").fetchall() == [(PILOT,)]
    assert connection.execute("PRAGMA quick_check").fetchall() == [("ok",)]
    reader.close()
    return batches
