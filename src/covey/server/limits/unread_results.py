"""Whether a bag has results that somebody who follows it has not read.

Most who follow a bag ask again before anything has ended. What a reading found, and how far the
record was then, says as much as another reading would: nothing that became durable since has an
end of that bag, so there is nothing after the last row that was read.
"""

from typing import NamedTuple

from covey.core.record.model import BagId
from covey.core.state import Bag, State
from covey.wire import ResultQuery, ResultRow

MOST_BAGS = 1000


class _Read(NamedTuple):
    """When the writes up to `durable` of `epoch` could be read, no row came after `row`."""

    epoch: int
    durable: int
    row: int


class Unread:
    def __init__(self) -> None:
        self._read: dict[BagId, _Read] = {}

    def certainly_none(self, state: State | None, bag: Bag | None, query: ResultQuery) -> bool:
        """For a bag that may still change; of others the record is asked."""
        if state is None or bag is None or not _follows(query):
            return False
        read = self._read.get(bag.id)
        if not bag.progress.recorded:
            return True  # it is new, and nothing has ended
        if read is None or read.epoch != state.epoch:
            return False
        return read.row <= query.after and bag.progress.recorded <= read.durable

    def learn(
        self, epoch: int, durable: int, bag: BagId, query: ResultQuery, rows: list[ResultRow]
    ) -> None:
        """What a reading found that began when so much was durable."""
        whole = len(rows) < query.limit and not query.failed_only and not query.where
        if whole and _follows(query):
            if len(self._read) >= MOST_BAGS:
                self._read.clear()
            self._read[bag] = _Read(epoch, durable, rows[-1].row if rows else query.after)


def _follows(query: ResultQuery) -> bool:
    return query.by_row and not query.sort and not query.offset
