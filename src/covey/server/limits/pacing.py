"""How often whoever follows a bag is answered while much of it is still to come.

Tasks of a millisecond end in small heaps, many times a second. A page of results for each would
cost the server, and whoever reads them, more than the results. So while tasks of the bag wait to
be sent, the next page comes PAGE_SECONDS after the last one, with all that has ended in between.
Nobody waits longer for the last results: when nothing is left to send, each comes at once. So do
those of a bag that may grow, perhaps by what its owner makes of a result.
"""

from covey.core.record.model import BagId
from covey.questions.bag_questions import Progress
from covey.wire import ResultQuery

PAGE_SECONDS = 0.25
MOST_BAGS = 1000


class Pace:
    """Times are by the event loop's clock."""

    def __init__(self) -> None:
        self._answered: dict[BagId, float] = {}

    def next_at(self, bag: Progress | None, query: ResultQuery) -> float:
        """When the next page is due; 0: as soon as there is something in it."""
        if bag is None or bag.open or not bag.waits:
            return 0.0
        if not query.by_row or query.after < 0:  # they have just come
            return 0.0
        return self._answered.get(bag.bag, -PAGE_SECONDS) + PAGE_SECONDS

    def answered(self, bag: BagId, now: float) -> None:
        """A page of its results goes out."""
        if len(self._answered) >= MOST_BAGS:
            self._answered.clear()
        self._answered[bag] = now
