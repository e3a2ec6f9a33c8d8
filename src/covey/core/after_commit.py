"""Steps that follow when a write is durable. They wait in `Journal.then`, with the write's
number."""

from typing import TypeAlias

from msgspec import Struct

from covey.core.record.actions import ReplyMessage
from covey.core.record.model import BagId, JobId, PilotId, RequestId


class Answering(Struct, frozen=True):
    """Answer this sync."""

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
    """Forget a bag that is over: the record has it."""

    bag: BagId


Then: TypeAlias = Answering | Replying | Reserving | Starting | Forgetting
