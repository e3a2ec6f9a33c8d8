"""Pages come one by one in a while, but never later than the last result, nor for whoever waits."""

import pytest

from covey.core.record.model import BagId
from covey.core.state import Bag
from covey.questions.bag_questions import Progress, ProgressOfBag
from covey.server.limits.pacing import MOST_BAGS, PAGE_SECONDS, Pace
from covey.wire import ResultQuery
from tests.unit.core.table import Table, spec

FOLLOW = ResultQuery(by_row=True, after=7)


def a_bag(table: Table, tasks: int = 4, *, open_: bool = False) -> Bag:
    return table.scheduler.state.bags[BagId(table.submit(spec(tasks, open=open_)))]


def test_the_first_page_comes_at_once_and_the_next_in_a_while() -> None:
    table, pace = Table(), Pace()
    bag = a_bag(table)
    assert pace.next_at(progress(table, bag), FOLLOW) == 0.0
    pace.answered(bag.id, 100.0)
    assert pace.next_at(progress(table, bag), FOLLOW) == 100.0 + PAGE_SECONDS


def progress(table: Table, bag: Bag) -> Progress:
    found = ProgressOfBag(bag.id).answer(table.scheduler.state, table.now)
    assert found is not None
    return found


@pytest.mark.parametrize("query", [ResultQuery(by_row=True), ResultQuery(after=7)])
def test_who_does_not_follow_is_not_kept_waiting(query: ResultQuery) -> None:
    table, pace = Table(), Pace()
    bag = a_bag(table)
    pace.answered(bag.id, 100.0)
    assert pace.next_at(progress(table, bag), query) == 0.0


def test_nobody_waits_for_the_last_results() -> None:
    table, pace = Table(), Pace()
    bag = a_bag(table, 2)
    pace.answered(bag.id, 100.0)
    table.enrol(slots=2).ask(want=2)
    assert len(bag.places.live) == 2
    assert not bag.unsent()
    assert pace.next_at(progress(table, bag), FOLLOW) == 0.0
    assert pace.next_at(None, FOLLOW) == 0.0


def test_a_bag_that_may_grow_is_not_paced() -> None:
    table, pace = Table(), Pace()
    bag = a_bag(table, open_=True)
    pace.answered(bag.id, 100.0)
    assert bag.unsent()
    assert pace.next_at(progress(table, bag), FOLLOW) == 0.0


def test_it_remembers_so_many_bags() -> None:
    table, pace = Table(), Pace()
    bag = a_bag(table)
    pace.answered(bag.id, 100.0)
    for other in range(MOST_BAGS):
        pace.answered(BagId(1000 + other), 100.0)
    assert pace.next_at(progress(table, bag), FOLLOW) == 0.0
