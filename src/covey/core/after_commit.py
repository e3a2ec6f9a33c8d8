"""What is done once a write is durable: it waits in `Journal.then`, with the write's number."""

from typing import TypeAlias

from msgspec import Struct

from covey.core.record.actions import ReplyMessage
from covey.core.record.model import BagId, JobId, PilotId, RequestId


class Answering(Struct, frozen=True):
    """Once durable: answer this sync."""

    pilot: PilotId
    number: int


class Replying(Struct, frozen=True):
    request: RequestId
    message: ReplyMessage


class Reserving(Struct, frozen=True):
    bag: BagId
    chunk: int


class Starting(Struct, frozen=True):
    jobs: tuple[JobId, ...]


class Forgetting(Struct, frozen=True):
    """Once durable: the record has it, core need not."""

    bag: BagId


Then: TypeAlias = Answering | Replying | Reserving | Starting | Forgetting
