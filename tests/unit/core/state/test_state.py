"""Parts of the state that are not a bag's."""

from collections import deque

import pytest

from covey.core.after_commit import Forgetting, Then
from covey.core.record.events import RetryRequested
from covey.core.record.model import BagId, PilotId, RequestId, Settings
from covey.core.state import State
from covey.core.state.pilots import PilotArrivals, PilotQueue
from covey.core.state.state import BagIndex, Journal

THEN: Then = Forgetting(BagId(1))


def test_an_empty_state_is_sound() -> None:
    state = State(1, Settings(), 0.0)
    state.check()
    assert (state.slots(), state.unsent()) == (0, 0)


def test_what_waits_for_a_write_waits_in_order() -> None:
    Journal(writes=4, durable=1, then=deque([(2, THEN), (4, THEN)])).check()


@pytest.mark.parametrize(
    "journal",
    [
        Journal(writes=4, durable=5),
        Journal(writes=4, durable=1, then=deque([(3, THEN), (2, THEN)])),
        Journal(writes=4, durable=3, then=deque([(3, THEN)])),
        Journal(writes=4, durable=1, then=deque([(5, THEN)])),
    ],
)
def test_a_wrong_journal_is_noticed(journal: Journal) -> None:
    with pytest.raises(AssertionError):
        journal.check()


def test_pilots_that_are_gone_wait_for_nothing() -> None:
    queue = PilotQueue(hungry={PilotId(1): None}, signalled={PilotId(1): None})
    queue.check({PilotId(1)})
    with pytest.raises(AssertionError, match="waits for work"):
        queue.check(set())
    queue.remove(PilotId(1))
    queue.check(set())
    assert not queue.signalled


def test_departures_are_saved_when_all_are_heard() -> None:
    with pytest.raises(AssertionError, match="not saved"):
        PilotArrivals(0.0, departed={PilotId(1): None}).check({})


def test_bags_that_are_tried_again_are_read() -> None:
    event = RetryRequested(RequestId(1), BagId(3))
    index = BagIndex(retrying={RequestId(1): event}, loading={BagId(3): False})
    index.check()
    index.loading.clear()
    with pytest.raises(AssertionError, match="not read"):
        index.check()
