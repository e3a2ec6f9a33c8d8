"""How often a client that follows a bag gets a page of results.

Short tasks end in small groups, many times a second. A page for each group would cost server and
client more than the results themselves. So while tasks of the bag wait to be sent, the next page
comes PAGE_SECONDS after the last one, with everything that has ended in between. When no task
waits any more, each result comes at once. So do the results of an open bag: its owner may
add tasks that depend on them.
"""

from covey.core.record.model import BagId
from covey.questions.bag_questions import Progress
from covey.wire import ResultQuery

PAGE_SECONDS = 0.25
MOST_BAGS = 1000


class Pace:
    """All times are the event loop's."""

    def __init__(self) -> None:
        self._answered: dict[BagId, float] = {}

    def next_at(self, bag: Progress | None, query: ResultQuery) -> float:
        """When the next page is due; 0: as soon as it is not empty."""
        if bag is None or bag.open or not bag.waits:
            return 0.0
        if not query.by_row or query.after < 0:  # the client's first page
            return 0.0
        return self._answered.get(bag.bag, -PAGE_SECONDS) + PAGE_SECONDS

    def answered(self, bag: BagId, now: float) -> None:
        """A page of the bag's results was sent."""
        if len(self._answered) >= MOST_BAGS:
            self._answered.clear()
        self._answered[bag] = now
