"""Bodies of bags: a pilot is told which of them it may drop, so that it keeps few of them."""

from covey.core.bodies import MOST_BODIES
from covey.pilot.messages import Answer
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

    def run_out(self) -> None:
        """Run tasks one by one until there are no more."""
        answers = replies(self.pilot.sync(), Answer)
        while answers:
            self.take(answers[0])
            if not answers[0].tasks:
                return
            answers = replies(self.pilot.sync(1, [end(answers[0])]), Answer)


def test_a_pilot_keeps_no_bodies_of_bags_that_are_over() -> None:
    table = Table()
    keeper = Keeper(table.enrol())
    for _ in range(2 * MOST_BODIES):
        table.submit(spec(2))
        keeper.run_out()
    assert 1 <= keeper.most <= 2
