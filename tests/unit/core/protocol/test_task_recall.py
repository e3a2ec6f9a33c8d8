"""Tasks that a pilot was given ahead are asked back: for idle slots, and of bags that pause."""

from covey.core.record.events import (
    PauseRequested,
)
from covey.core.record.model import (
    BagId,
    PilotId,
)
from covey.pilot.protocol.messages import Answer, End, Held
from tests.unit.core.table import Table, end, only, replies, spec


def test_what_was_prefetched_of_a_paused_bag_is_asked_back_whatever_was_lost() -> None:
    table = Table()
    bag = BagId(table.submit(spec(8)))
    hand = table.enrol()
    answer = hand.ask(6, [end(hand.ask())])
    hand.sync(want=1)
    (asked,) = replies(table.handle(PauseRequested(table.request(), bag, "")), Answer)
    assert len(asked.recalls) == 6
    held = [Held(1, task.sequence, bag, task.task) for task in answer.tasks]
    again = only(hand.sync(0, held=held, number=hand.number + 3), Answer)
    assert len(again.recalls) == 6, "that answer never arrived"


def test_prefetched_tasks_are_recalled_for_idle_slots() -> None:
    table = Table()
    table.submit(spec(7))
    hoarder = table.enrol(slots=1)
    first = hoarder.ask(want=6)
    assert len(first.tasks) == 1, "it does not know yet how long they take"
    assert len(hoarder.ask(6, [end(first)]).tasks) == 6
    hoarder.sync(want=6)
    idle = table.enrol(slots=2)
    idle.sync(want=2)
    (answer,) = replies(table.later(1), Answer)
    assert len(answer.recalls) == 2
    back = answer.recalls[0]
    actions = hoarder.sync(6, [returned(back)])
    assert [task.task for a in replies(actions, Answer) for task in a.tasks] == [back.task]


def test_a_task_that_was_given_back_goes_to_the_idle_pilot() -> None:
    """Not back to the one that had too many, whose question is open at that moment."""
    table = Table()
    table.submit(spec(4))
    hoarder = table.enrol(slots=1)
    assert len(hoarder.ask(3, [end(hoarder.ask())]).tasks) == 3
    hoarder.sync(want=3)
    idle = table.enrol(slots=1)
    idle.sync(want=1)
    (answer,) = replies(table.later(1), Answer)
    (back,) = answer.recalls
    hoarder.sync(want=3)
    hoarder.sync(3, [returned(back)])
    pilots = table.scheduler.state.pilots
    assert [one.task for one in pilots[PilotId(idle.pilot)].attempts.values()] == [back.task]


def returned(held: Held) -> End:
    return End(held.epoch, held.sequence, held.bag, held.task, "returned")
