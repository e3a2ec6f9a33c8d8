"""Which bags need a server."""

from typing import Any

import pytest
from pyroaring import BitMap

from covey.core.record.attempts import Attempt
from covey.core.record.model import BagStatus
from covey.core.state.places import TaskPlaces
from covey.questions.server_questions import works

RUNNING, PAUSED = BagStatus.RUNNING, BagStatus.PAUSED


class FakeBag:
    def __init__(self, status: BagStatus, live: int, settled: int) -> None:
        self.status = status
        running: dict[int, list[Attempt]] = {task: [] for task in range(live)}
        self.places = TaskPlaces(done=BitMap(range(settled)), live=running)
        self.total = 3


@pytest.mark.parametrize(
    ("status", "live", "settled", "needed"),
    [
        (RUNNING, 1, 0, True),
        (RUNNING, 0, 0, True),
        (RUNNING, 0, 3, False),  # open, and waits for more tasks
        (RUNNING, 1, 3, True),
        (PAUSED, 0, 0, False),
        (PAUSED, 1, 0, True),
    ],
)
def test_what_keeps_a_server(status: BagStatus, live: int, settled: int, needed: bool) -> None:
    bag: Any = FakeBag(status, live, settled)
    assert works(bag) is needed
