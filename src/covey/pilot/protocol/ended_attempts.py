"""Attempts that have ended and whose ends the server does not have yet."""

from typing import List, NamedTuple, Optional

from covey.pilot.protocol.messages import Answer, End, Sync


class Ended(NamedTuple):
    end: End
    at: float
    queued: float  # seconds it waited for a slot
    size: int  # characters of output, result, message and files
    receipt: str  # proves that the attempt was ours


class Open:
    """A sync without a processed answer."""

    def __init__(self, sync: Sync, ends: List[Ended]) -> None:
        self.sync = sync
        self.ends = ends
        self.tries = 0
        self.retry_at: Optional[float] = None
        self.answer: Optional[Answer] = None


# The places in an End of the fields that only the pilot's state knows.
_QUEUED, _AGE = End._fields.index("queued_seconds"), End._fields.index("age_seconds")


def dated(ended: Ended, now: float) -> End:
    """The end as it is sent now. (`_replace` would take three times as long as this list.)"""
    fields = list(ended.end)
    fields[_QUEUED] = ended.queued
    fields[_AGE] = max(0.0, now - ended.at)
    return End._make(fields)


def batch(ends: List[Ended], most_ends: int, most_characters: int) -> int:
    """How many of these ends fit into one sync; at least one."""
    size = 0
    for count, ended in enumerate(ends[:most_ends]):
        size += ended.size
        if size > most_characters and count:
            return count
    return min(len(ends), most_ends)


def size_of(end: End) -> int:
    """Characters that an end carries besides its few numbers."""
    size = len(end.stdout) + len(end.stderr) + len(end.result) + len(end.message)
    for file in end.files:
        size += len(file.data) + len(file.path) + 100
    return size
