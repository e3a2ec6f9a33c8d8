"""Whether a bag has results that a client that follows it has not read.

Most clients ask again before another task has ended. Then the record need not be read: the last
reading saw the last row, and nothing that became durable since is a result of this bag.
"""

from typing import NamedTuple

from covey.core.record.model import BagId
from covey.questions.bag_questions import Progress
from covey.wire import ResultQuery, ResultRow

MOST_BAGS = 1000


class _Read(NamedTuple):
    """`row` was the bag's last row when the writes up to `durable` of this epoch could be read."""

    epoch: int
    durable: int
    row: int


class UnreadResults:
    def __init__(self) -> None:
        self._read: dict[BagId, _Read] = {}

    def certainly_none(self, bag: Progress | None, query: ResultQuery) -> bool:
        """Only for a bag that may still change (`bag` is not None): for others it is False, and
        the record is read."""
        if bag is None or not _follows(query):
            return False
        read = self._read.get(bag.bag)
        if not bag.recorded:
            return True  # a new bag: no task has ended
        if read is None or read.epoch != bag.epoch:
            return False
        return read.row <= query.after and bag.recorded <= read.durable

    def learn(self, bag: Progress, query: ResultQuery, rows: list[ResultRow]) -> None:
        """Remember what a reading found. `bag`: its progress when the reading began."""
        whole = len(rows) < query.limit and not query.failed_only and not query.where
        if whole and _follows(query):
            if len(self._read) >= MOST_BAGS:
                self._read.clear()
            last = rows[-1].row if rows else query.after
            self._read[bag.bag] = _Read(bag.epoch, bag.durable, last)


def _follows(query: ResultQuery) -> bool:
    return query.by_row and not query.sort and not query.offset
