"""Bodies of bags: a pilot is told which of them it may drop, so that it keeps few of them."""

from covey.core.protocol.bag_bodies import MOST_BODIES
from covey.core.record.actions import Action
from covey.core.record.events import BagSubmitted
from covey.pilot.protocol.messages import Answer
from tests.unit.core.table import Hand, Table, end, replies, spec


class Keeper:
    """Does with bodies what a pilot does."""

    def __init__(self, pilot: Hand) -> None:
        self.pilot = pilot
        self.bodies: set[int] = set()
        self.most = 0

    def take(self, answer: Answer) -> None:
        self.bodies -= set(answer.forget)
        self.bodies |= {body.bag for body in answer.bodies}
        assert {task.bag for task in answer.tasks} <= self.bodies
        self.most = max(self.most, len(self.bodies))

    def run_out(self, actions: list[Action]) -> None:
        """Run tasks one by one until there are no more, and the last request is parked."""
        while answers := replies(actions, Answer):
            for answer in answers:
                self.take(answer)
            ends = [end(answer, k) for answer in answers for k in range(len(answer.tasks))]
            actions = self.pilot.sync(1, ends)


def test_a_pilot_keeps_no_bodies_of_bags_that_are_over() -> None:
    table = Table()
    keeper = Keeper(table.enrol())
    keeper.run_out(keeper.pilot.sync())
    for _ in range(2 * MOST_BODIES):
        keeper.run_out(table.handle(BagSubmitted(table.request(), spec(2))))
    assert 1 <= keeper.most <= 2
