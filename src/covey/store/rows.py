"""Between records and rows: small codes for outcomes, packed output, JSON for what is only read
whole. Everything that is written is read back equal.
"""

import zlib
from typing import Any

import msgspec

from covey.core.model import (
    BagId,
    BagRecord,
    BagSpec,
    BagStatus,
    ChunkRecord,
    JobId,
    JobRecord,
    JobStatus,
    PilotId,
    PilotRecord,
    PilotStatus,
)
from covey.core.space import Point
from covey.pilot.messages import CANCELLED, FAILED, HOST, LOST, OK, RETURNED, TIMEOUT
from covey.wire import PilotView, ResultRow

# The position is the code in the table, so new ones go at the end.
OUTCOMES = (OK, FAILED, TIMEOUT, CANCELLED, RETURNED, HOST, LOST)
OUTCOME_CODES = {outcome: code for code, outcome in enumerate(OUTCOMES)}
OWN_FAILURES = (FAILED, TIMEOUT)

PACK_ABOVE = 400  # characters
LAST_LINE = 200

BAG_COLUMNS = "id, spec, total, created, status"
PILOT_COLUMNS = (
    "id, key, credential, host, slots, site, job, tags, version, enrolled, status, "
    "coalesce((SELECT number FROM synced WHERE pilot = id), 0)"
)
JOB_COLUMNS = "id, site, slots, submitted, status"
VIEW_COLUMNS = "id, host, site, job, slots, status, enrolled, max(enrolled, changed), tags, version"
RESULT_COLUMNS = (
    "row, task, outcome, counted, exit_code, signal, epoch, sequence, pilot, "
    "(SELECT name FROM hosts WHERE id = ends.host), sent, fetched, started, ended, delivered, "
    "cpu_seconds, memory_kb, stdout_bytes, stderr_bytes, message, last_line"
)

_spec = msgspec.json.Decoder(BagSpec)
_tags = msgspec.json.Decoder(dict[str, str])


def spec_text(spec: BagSpec) -> str:
    return msgspec.json.encode(spec).decode()


def spec_from(text: str) -> BagSpec:
    return _spec.decode(text)


def tags_text(tags: dict[str, str]) -> str:
    return msgspec.json.encode(tags).decode()


def bag_from(row: tuple[Any, ...]) -> BagRecord:
    id_, spec, total, created, status = row
    return BagRecord(
        id=BagId(id_),
        spec=spec_from(spec),
        total=total,
        created=created,
        status=BagStatus(status),
    )


def chunk_from(row: tuple[Any, ...]) -> ChunkRecord:
    return ChunkRecord(first=row[0], stop=row[1], closed=bool(row[2]))


def pilot_from(row: tuple[Any, ...]) -> PilotRecord:
    id_, key, credential, host, slots, site, job, tags, version, enrolled, status, recorded = row
    return PilotRecord(
        id=PilotId(id_),
        key=key,
        credential=credential,
        host=host,
        slots=slots,
        site=site,
        job=JobId(job),
        tags=_tags.decode(tags),
        version=version,
        enrolled=enrolled,
        status=PilotStatus(status),
        recorded=recorded,
    )


def pilot_view_from(row: tuple[Any, ...]) -> PilotView:
    id_, host, site, job, slots, status, enrolled, heard, tags, version = row
    return PilotView(
        id=id_,
        host=host,
        site=site,
        job=job,
        slots=slots,
        status=status,
        running=0,
        enrolled=enrolled,
        heard=heard,
        tags=_tags.decode(tags),
        version=version,
    )


def job_from(row: tuple[Any, ...]) -> JobRecord:
    id_, site, slots, submitted, status = row
    return JobRecord(
        id=JobId(id_), site=site, slots=slots, submitted=submitted, status=JobStatus(status)
    )


def result_from(row: tuple[Any, ...], point: Point, total: int) -> ResultRow:
    task, started, ended = row[1], row[12], row[13]
    return ResultRow(
        row=row[0],
        task=task,
        values=point(task) if 0 <= task < total else [],
        outcome=OUTCOMES[row[2]],
        counted=bool(row[3]),
        exit_code=row[4],
        signal=row[5],
        attempt=f"{row[6]}.{row[7]}",
        pilot=row[8],
        host=row[9],
        sent=row[10],
        fetched=row[11],
        started=started,
        ended=ended,
        delivered=row[14],
        wall_seconds=ended - started,
        cpu_seconds=row[15],
        memory_kb=row[16],
        stdout_bytes=row[17],
        stderr_bytes=row[18],
        message=row[19] or "",
        output=row[20] or "",
    )


def last_line(stdout: str) -> str:
    """The last line that says something, shortened."""
    text = stdout.rstrip()
    start = max(text.rfind("\n"), text.rfind("\r")) + 1
    return text[start : start + LAST_LINE]


def pack(text: str) -> str | bytes | None:
    """Text as it is kept: nothing, itself, or compressed if that is worth it."""
    if not text:
        return None
    if len(text) <= PACK_ABOVE:
        return text
    plain = text.encode()
    packed = zlib.compress(plain, 3)
    return packed if len(packed) < len(plain) else text


def unpack(kept: str | bytes | None) -> str:
    if kept is None:
        return ""
    return zlib.decompress(kept).decode() if isinstance(kept, bytes) else kept
