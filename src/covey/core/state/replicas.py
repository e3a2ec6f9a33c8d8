"""Running tasks that get another attempt (`replication`)."""

from collections import deque
from collections.abc import Container

from msgspec import Struct, field

from covey.core.record.model import AttemptId, BagId, TaskNumber

FEW_DEADLINES = 1024


class Replicas(Struct, eq=False):
    """Offers of running tasks of one bag. Only tasks that are out with pilots are offered again."""

    tail: bool = False  # the bag is in its tail
    overdue: dict[int, None] = field(default_factory=dict)  # tasks whose attempts are all late
    offers: dict[int, None] = field(default_factory=dict)  # running tasks that may run twice
    sent: int = 0

    def forget(self, task: int) -> None:
        self.overdue.pop(task, None)
        self.offers.pop(task, None)

    def forget_all(self) -> None:
        self.overdue.clear()
        self.offers.clear()

    def check(self, live: Container[int]) -> None:
        for task in (*self.overdue, *self.offers):
            assert task in live, "a task that does not run is offered again"


class Draw(Struct):
    """Running tasks of a bag for which its policy is evaluated, until `wanted` of them are offered.
    `tasks`: None if they are not drawn yet."""

    bag: BagId
    wanted: int
    tasks: list[int] | None = None


class ReplicaWatch(Struct, eq=False):
    """For all bags: attempts with a deadline, and running tasks that may be offered again."""

    drawn_at: float  # when replicas were last drawn
    deadlines: list[tuple[float, AttemptId, BagId, TaskNumber]] = field(default_factory=list)
    most_deadlines: int = FEW_DEADLINES  # above this, deadlines of ended attempts are removed
    drawing: deque[Draw] = field(default_factory=deque)  # draws that are not finished

    def check(self) -> None:
        heap = self.deadlines
        assert all(heap[(place - 1) // 2] <= heap[place] for place in range(1, len(heap)))
