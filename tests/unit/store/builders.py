"""Short ways to say what is in a record."""

from base64 import b64encode
from collections.abc import Iterable

from covey.core.record.actions import (
    Change,
    LeaseChunk,
    RecordEnds,
    SaveBag,
    SaveBagStatus,
    SavePilot,
)
from covey.core.record.model import (
    BagId,
    BagRecord,
    BagSpec,
    BagStatus,
    EndRecord,
    JobId,
    PilotId,
    PilotRecord,
    Verdict,
)
from covey.core.values.space import Axis, Range
from covey.pilot.protocol.messages import End, OutputFile

BAG = BagId(1)
PILOT = PilotId(7)


def bag(id_: int = 1, total: int = 10, **spec: object) -> BagRecord:
    space = Axis("x", Range("100", "1", total))
    made = BagSpec(argv=("/bin/true",), space=space, **spec)  # type: ignore[arg-type]
    return BagRecord(id=BagId(id_), spec=made, total=total, created=1000.5)


def pilot(id_: int = 7, **fields: object) -> PilotRecord:
    values: dict[str, object] = {
        "id": PilotId(id_),
        "key": f"key-of-pilot-{id_}",
        "credential": "digest",
        "host": "node1",
        "slots": 4,
        "site": "here",
        "job": JobId(""),
        "tags": {"arch": "x86"},
        "version": "1",
        "enrolled": 900.25,
    }
    return PilotRecord(**(values | fields))  # type: ignore[arg-type]


def end(
    task: int,
    outcome: str = "ok",
    verdict: Verdict = Verdict.COUNTS,
    *,
    attempt: tuple[int, int] | None = None,
    bag: int = 1,
    **fields: object,
) -> EndRecord:
    """`fields` are those of the end or of its record."""
    epoch, sequence = attempt or (1, task + 1)
    of_end: dict[str, object] = {
        "exit_code": 0 if outcome == "ok" else 1,
        "cpu_seconds": 1.25,
        "memory_kb": 3412,
    }
    of_record: dict[str, object] = {
        "pilot": PILOT,
        "host": "node1",
        "sent": 1000.1,
        "fetched": 1000.2,
        "started": 1000.3,
        "ended": 1001.7,
        "delivered": 1001.8,
    }
    for name, value in fields.items():
        (of_end if name in End._fields else of_record)[name] = value
    message = End(epoch, sequence, bag, task, outcome, **of_end)  # type: ignore[arg-type]
    return EndRecord(message, verdict, **of_record)  # type: ignore[arg-type]


def returned(
    path: str, size: int, digest: str = "", *, data: bytes = b"", executable: bool = False
) -> OutputFile:
    """A file that a task returned."""
    return OutputFile(path, size, digest, b64encode(data).decode(), executable)


def ends(*rows: EndRecord, number: int = 0) -> RecordEnds:
    return RecordEnds(PILOT, number, rows)


def successes(tasks: Iterable[int], number: int = 0, *, bag: int = 1) -> RecordEnds:
    return ends(*(end(task, bag=bag) for task in tasks), number=number)


def a_bag_of(total: int, chunks: int = 1, id_: int = 1) -> list[Change]:
    """A pilot, and a bag of which all tasks are leased, in equal chunks."""
    size = total // chunks
    leases = [LeaseChunk(BagId(id_), first, first + size) for first in range(0, total, size)]
    return [SavePilot(pilot()), SaveBag(bag(id_, total)), *leases]


def finished(done: int, failed: int = 0, at: float = 2000.5) -> SaveBagStatus:
    return SaveBagStatus(BAG, BagStatus.FINISHED, at, done, failed)


def cancelled(done: int, failed: int = 0, at: float = 2000.5) -> SaveBagStatus:
    return SaveBagStatus(BAG, BagStatus.CANCELLED, at, done, failed)
