"""What clients and the server say to each other, and how messages become bytes.

Pilots' messages are defined in `covey.pilot.messages`; here they get checked decoders. Everything
a person can see (console, CLI, Python) is one of the views below.
"""

from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from covey.core.space import Scalar
from covey.pilot.messages import Answer, Enrol, Enrolled, Leave, Left, Sync

Message = TypeVar("Message", Enrol, Sync, Leave)


class BagView(Struct, kw_only=True):
    """A bag as its owner sees it. Without a server `running` and `in_doubt` are 0."""

    id: int
    name: str
    owner: str
    argv: list[str]
    names: list[str]
    status: str  # running, finished, cancelled
    total: int
    done: int
    failed: int
    running: int = 0
    in_doubt: int = 0
    created: float
    ended: float = 0.0
    retries: int = 0
    limit_seconds: float = 0.0
    idempotent: bool = True

    @property
    def over(self) -> bool:
        return self.status != "running"


class ResultRow(Struct, kw_only=True):
    """One ended attempt; in a bag's results, the one that counts for its task."""

    row: int  # grows with the order in which ends were recorded
    task: int
    values: list[Scalar]
    outcome: str  # covey.pilot.messages: ok, failed, timeout, …
    counted: bool
    exit_code: int
    signal: int
    attempt: str
    pilot: int
    host: str
    sent: float
    fetched: float
    started: float
    ended: float
    delivered: float
    wall_seconds: float
    cpu_seconds: float
    memory_kb: int
    stdout_bytes: int
    stderr_bytes: int
    message: str
    output: str  # last line of standard output, shortened


class RunningRow(Struct, kw_only=True):
    """A task that is out with a pilot."""

    task: int
    values: list[Scalar]
    attempt: str
    pilot: int
    host: str
    sent: float


class Output(Struct, kw_only=True):
    task: int
    attempt: str
    outcome: str
    stdout: str
    stderr: str


class PilotView(Struct, kw_only=True):
    id: int
    host: str
    site: str
    job: str
    slots: int
    status: str
    running: int
    enrolled: float
    heard: float
    tags: dict[str, str]
    version: str


class ServerView(Struct, kw_only=True):
    version: str
    epoch: int
    pid: int
    started: float
    state: str  # ready, or why not
    store: str
    bags: int
    pilots: int
    slots: int


class ProblemDocument(Struct, kw_only=True):
    """RFC 9457: why a request changed nothing, and what to do."""

    type: str
    title: str
    status: int
    detail: str


def _decoder(message: type[Enrol] | type[Sync] | type[Leave]) -> msgspec.json.Decoder[Any]:
    """A checked decoder from a JSON object to what `message` describes."""
    defaults = message._field_defaults
    fields = [
        (name, kind, defaults[name]) if name in defaults else (name, kind)
        for name, kind in message.__annotations__.items()
    ]
    return msgspec.json.Decoder(msgspec.defstruct(message.__name__, fields))


_DECODERS: dict[object, msgspec.json.Decoder[Any]] = {
    Enrol: _decoder(Enrol),
    Sync: _decoder(Sync),
    Leave: _decoder(Leave),
}


def decode(message: type[Message], body: bytes) -> Message:
    """Raises msgspec.DecodeError (or its ValidationError), with words, if anything is off."""
    return message(*msgspec.structs.astuple(_DECODERS[message].decode(body)))


def encode(message: Answer | Enrolled | Left) -> bytes:
    return msgspec.json.encode(message._asdict())
