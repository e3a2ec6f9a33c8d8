"""Converts records to rows and back: small codes for outcomes, packed output, JSON for what is only
read as a whole. What is written is read back equal.
"""

import zlib
from base64 import b64decode
from binascii import Error as BadBase64
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec

from covey.core.record.histories import History, SiteHistory
from covey.core.record.input_files import InputVersionView, version_of
from covey.core.record.model import (
    AttemptId,
    BagId,
    BagRecord,
    BagSpec,
    BagStatus,
    ChunkRecord,
    InputChanges,
    InputVersion,
    JobRecord,
    OutputSummary,
    PilotRecord,
    PolicySpec,
    Segment,
    SiteRecord,
    TokenRecord,
)
from covey.core.values.space import Point
from covey.pilot.protocol.messages import (
    CANCELLED,
    FAILED,
    HOST,
    LOST,
    MEMORY,
    OK,
    OUTPUT,
    OWN_FAILURES,
    RETURNED,
    SETUP,
    TIMEOUT,
    OutputFile,
)
from covey.store.results.columns import OWN
from covey.wire import BriefRow, HostView, PilotView, ResultRow

# The position is the code in the table. So add new outcomes at the end.
OUTCOMES = (OK, FAILED, TIMEOUT, CANCELLED, RETURNED, HOST, LOST, MEMORY, OUTPUT, SETUP)
OUTCOME_CODES = {outcome: code for code, outcome in enumerate(OUTCOMES)}
HOST_FAILURES = (*OWN_FAILURES, HOST)  # outcomes that a host's count of failures includes

PACK_ABOVE = 400  # characters
LAST_LINE = 200
LAST_LINES = 20
LAST_LINES_LENGTH = 4000
MOST_RESULT_NAMES = 1000  # columns of one bag


def _columns(fields: Sequence[str], sources: Mapping[str, str] = MappingProxyType({})) -> str:
    """What to select for these fields, in their order; `sources` are those of fields that are not
    columns."""
    return ", ".join(sources.get(name, name) for name in fields)


def saving(table: str, names: Sequence[str], changing: Sequence[str]) -> str:
    """The statement that saves a record by the names of its fields: as a new row, or else as
    changes of one with its id."""
    values = ", ".join(f":{name}" for name in names)
    changes = ", ".join(f"{name} = excluded.{name}" for name in changing)
    return (
        f"INSERT INTO {table} ({', '.join(names)}) VALUES ({values}) "
        f"ON CONFLICT (id) DO UPDATE SET {changes}"
    )


PILOT_COLUMNS = _columns(
    PilotRecord.__struct_fields__,
    {"recorded": "coalesce((SELECT number FROM synced WHERE pilot = id), 0)"},
)
TOKEN_COLUMNS = _columns(TokenRecord.__struct_fields__)
JOB_COLUMNS = _columns(JobRecord.__struct_fields__)
BAG_COLUMNS = "id, spec, total, created, status, reason, open, policy, outputs"
VIEW_COLUMNS = (
    "id, host, site, job, slots, status, enrolled, max(enrolled, changed), tags, version, "
    "memory_mb, gpus, owner, CASE status WHEN 'active' THEN '' ELSE reason END"
)
INPUT_VERSION_COLUMNS = "epoch, sequence, at, files, names, changes"
HOST_COLUMNS = "name, site, slots, first, heard, done, failed, tags, machine"
# What is selected for a field of a result row that is not a column of the same name. `result_from`
# computes `values`, `attempt` and `inputs_version` from what is selected in their places.
_SOURCES = {
    "values": "NULL",
    "attempt": "epoch",
    "host": OWN["host"].sql,
    "wall_seconds": OWN["seconds"].sql,
    "message": "coalesce(message, '')",
    "output": OWN["output"].sql,
    "cause": OWN["cause"].sql,
    "inputs_version": "sequence",
}
_RESULT_FIELDS = ResultRow.__struct_fields__
_TASK, _VALUES, _OUTCOME, _COUNTED, _ATTEMPT, _RESULT, _INPUTS_VERSION = map(
    _RESULT_FIELDS.index,
    ("task", "values", "outcome", "counted", "attempt", "result", "inputs_version"),
)
RESULT_COLUMNS = _columns(_RESULT_FIELDS, _SOURCES)
_BRIEF_FIELDS = (
    "row", "task", "outcome", "exit_code", "signal", "host", "wall_seconds", "message", "result",
    "files",
)  # fmt: skip
BRIEF_COLUMNS = _columns(_BRIEF_FIELDS, _SOURCES)
# The places of the columns that may be long.
RESULT_TEXTS = tuple(map(_RESULT_FIELDS.index, ("message", "result")))
BRIEF_TEXTS = tuple(map(_BRIEF_FIELDS.index, ("message", "result")))


class _Titled(msgspec.Struct):
    """The part of a spec that is read if the whole spec cannot be read."""

    name: str = ""
    owner: str = ""


_titled = msgspec.json.Decoder(_Titled)
_outputs = msgspec.json.Decoder(OutputSummary)
_changes = msgspec.json.Decoder(InputChanges)
_names = msgspec.json.Decoder(tuple[str, ...])
_tags = msgspec.json.Decoder(dict[str, str])
_reported = msgspec.json.Decoder(dict[str, Any])

spec_from = msgspec.json.Decoder(BagSpec).decode
segment_from = msgspec.json.Decoder(Segment).decode
policy_from = msgspec.json.Decoder(PolicySpec).decode
history_from = msgspec.json.Decoder(History).decode
site_history_from = msgspec.json.Decoder(SiteHistory).decode
site_from = msgspec.json.Decoder(SiteRecord).decode


def json_text(value: object) -> str:
    return msgspec.json.encode(value).decode()


def policy_text(policy: PolicySpec | None) -> str | None:
    return None if policy is None else json_text(policy)


def outputs_from(text: str) -> OutputSummary:
    """Bags of version 5 have an empty text: what their tasks wrote is not known."""
    return _outputs.decode(text) if text else OutputSummary(something=True)


def input_version_row(bag: BagId, version: InputVersion) -> tuple[Any, ...]:
    """In the order of INPUT_VERSION_COLUMNS, with the bag first and no number."""
    return (
        bag,
        *version.first,
        version.at,
        version.files,
        json_text(version.names),
        json_text(version.changes),
    )


def input_version_from(row: tuple[Any, ...]) -> InputVersion:
    """From INPUT_VERSION_COLUMNS."""
    epoch, sequence, at, files, names, changes = row
    return InputVersion(
        first=AttemptId(epoch, sequence),
        at=at,
        files=files,
        names=_names.decode(names),
        changes=_changes.decode(changes),
    )


def input_version_view_from(row: tuple[Any, ...]) -> InputVersionView:
    """From number, at, files and names: the changes may be many, and are not read."""
    number, at, files, names = row
    return InputVersionView(version=number, at=at, files=files, names=list(_names.decode(names)))


def history_text(history: History) -> str:
    """Empty if the history is empty."""
    return "" if history == History() else json_text(history)


def bag_from(
    row: tuple[Any, ...], segments: tuple[Segment, ...], versions: tuple[InputVersion, ...]
) -> BagRecord:
    id_, spec, total, created, status, reason, open_, policy, outputs = row
    return BagRecord(
        id=BagId(id_),
        spec=spec_from(spec),
        total=total,
        created=created,
        status=BagStatus(status),
        reason=reason,
        open=bool(open_),
        segments=segments,
        policy=None if policy is None else policy_from(policy),
        outputs=outputs_from(outputs),
        input_versions=versions,
    )


def shell_from(row: tuple[Any, ...]) -> BagRecord:
    """The readable part of a bag whose spec, policy or segments cannot be read."""
    id_, spec, total, created, status, reason, open_, _, _ = row
    return BagRecord(
        id=BagId(id_),
        spec=shell_spec(spec),
        total=total,
        created=created,
        status=BagStatus(status),
        reason=reason,
        open=bool(open_),
    )


def shell_spec(text: str) -> BagSpec:
    """A spec with only the name and the owner. The owner is empty if it cannot be read: then only
    admins see the bag."""
    try:
        name, owner = msgspec.structs.astuple(_titled.decode(text))
    except (msgspec.MsgspecError, TypeError, ValueError, RecursionError):
        name = owner = ""
    return BagSpec(argv=("?",), name=name, owner=owner)


def chunk_from(row: tuple[Any, ...]) -> ChunkRecord:
    return ChunkRecord(first=row[0], stop=row[1], closed=bool(row[2]))


def pilot_from(row: tuple[Any, ...]) -> PilotRecord:
    """From PILOT_COLUMNS."""
    fields = dict(zip(PilotRecord.__struct_fields__, row, strict=True))
    return msgspec.convert({**fields, "tags": _tags.decode(fields["tags"])}, PilotRecord)


def pilot_view_from(row: tuple[Any, ...]) -> PilotView:
    id_, host, site, job, slots, status, enrolled, heard, tags, version = row[:10]
    memory_mb, gpus, owner, reason = row[10:]
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
        memory_mb=memory_mb,
        gpus=gpus,
        owner=owner,
        reason=reason,
    )


def host_from(row: tuple[Any, ...]) -> HostView:
    name, site, slots, first, heard, done, failed, tags, machine = row
    return HostView(
        host=name,
        site=site,
        slots=slots,
        pilots=0,
        running=0,
        first=first,
        heard=heard,
        done=done,
        failed=failed,
        tags=_tags.decode(tags),
        machine=machine,
    )


def token_from(row: tuple[Any, ...]) -> TokenRecord:
    """From TOKEN_COLUMNS."""
    return msgspec.convert(dict(zip(TokenRecord.__struct_fields__, row, strict=True)), TokenRecord)


def job_from(row: Sequence[Any]) -> JobRecord:
    """From JOB_COLUMNS. SQLite has 0 and 1 for a flag, which only a reader that is not strict
    takes."""
    fields = dict(zip(JobRecord.__struct_fields__, row, strict=True))
    return msgspec.convert(fields, JobRecord, strict=False)


def result_from(
    row: tuple[Any, ...], values: Point, firsts: Sequence[tuple[int, int]] = ()
) -> ResultRow:
    """From RESULT_COLUMNS. `firsts` has the first attempt with each version of the inputs, from the
    second version on."""
    fields = list(row)
    epoch, sequence = fields[_ATTEMPT], fields[_INPUTS_VERSION]
    fields[_VALUES] = values(fields[_TASK])
    fields[_OUTCOME] = OUTCOMES[fields[_OUTCOME]]
    fields[_COUNTED] = fields[_COUNTED] == 1
    fields[_ATTEMPT] = f"{epoch}.{sequence}"
    result = fields[_RESULT]
    fields[_RESULT] = reported(result) or {} if result else {}
    fields[_INPUTS_VERSION] = version_of(firsts, (epoch, sequence))
    return ResultRow(*fields)  # by place: pages are long, and names would double the time for a row


def brief_from(row: tuple[Any, ...]) -> BriefRow:
    """From BRIEF_COLUMNS."""
    number, task, outcome, exit_code, signal, host, seconds, message, result, files = row
    brief = BriefRow(number, task, [], OUTCOMES[outcome], True, exit_code, signal, "", 0, host)
    brief.wall_seconds, brief.message, brief.files = seconds, message, files
    if result:
        brief.result = reported(result) or {}
    return brief


def reported(text: str) -> dict[str, Any] | None:
    """The values of a task's report; None if it is not a JSON object that can be read."""
    try:
        return _reported.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        return None


def file_content(file: OutputFile) -> bytes:
    """What a broken pilot sends as base64 is an empty file; its size tells."""
    try:
        return b64decode(file.data, validate=True)
    except (BadBase64, ValueError):
        return b""


def last_line(stdout: str) -> str:
    """The last line that is not blank, shortened."""
    text = stdout.rstrip()
    start = max(text.rfind("\n"), text.rfind("\r")) + 1
    return text[start : start + LAST_LINE]


def last_lines(stderr: str, stdout: str) -> str:
    """The last lines of standard error; of standard output if standard error is empty."""
    text = stderr.rstrip() or stdout.rstrip()
    return "\n".join(text.splitlines()[-LAST_LINES:])[-LAST_LINES_LENGTH:]


def pack(text: str) -> str | bytes | None:
    """The text as it is stored: null if empty, compressed if that is shorter, else unchanged."""
    if not text:
        return None
    if len(text) <= PACK_ABOVE:
        return text
    plain = text.encode()
    packed = zlib.compress(plain, 3)
    return packed if len(packed) < len(plain) else text


def pack_data(data: bytes) -> tuple[bytes | None, int]:
    """A small file as it is stored, and whether it is compressed (only if that saves enough)."""
    if len(data) <= PACK_ABOVE:
        return data or None, 0
    packed = zlib.compress(data, 3)
    return (packed, 1) if len(packed) < len(data) * 0.9 else (data, 0)


def unpack(kept: str | bytes | None) -> str:
    if kept is None:
        return ""
    return zlib.decompress(kept).decode() if isinstance(kept, bytes) else kept
