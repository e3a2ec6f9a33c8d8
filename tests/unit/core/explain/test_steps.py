"""Answers that take several steps, while pilots come and go and bags end between them."""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from covey.core.explain.steps import finish
from covey.core.record.events import CancelRequested, PilotLeft
from covey.core.record.model import BagId, PolicySpec
from covey.pilot.protocol.messages import Leave
from covey.questions.bag_questions import RunningTasks, ViewsOfBags
from covey.questions.pilot_questions import HostsNow, ViewsOfPilots
from covey.questions.policy_questions import CheckPolicy, WhyBag
from covey.questions.question import LongQuestion
from covey.questions.server_questions import AllFigures
from tests.unit.core.table import Hand, Table, spec

POLICY = PolicySpec(
    requirements="Host.NumCpus > 0 && Job.i >= 0", replication="Job.RunningTime > 1"
)
MANY = 120


def crowd() -> tuple[Table, BagId, list[Hand]]:
    table = Table()
    bag = BagId(table.submit(spec(MANY * 2, policy=POLICY)))
    pilots = [table.enrol(1, host=f"n{number}", key=f"key of {number}") for number in range(MANY)]
    for pilot in pilots[::2]:
        pilot.ask(want=1)
    return table, bag, pilots


QUESTIONS: list[Callable[[BagId], LongQuestion[Any]]] = [
    lambda bag: WhyBag(bag, -1),
    lambda bag: WhyBag(bag, MANY),
    lambda bag: CheckPolicy(POLICY, "", bag),
    lambda bag: CheckPolicy(POLICY, "ann"),
    lambda bag: ViewsOfPilots("ann"),
    lambda bag: HostsNow(None),
    lambda bag: AllFigures(),
    lambda bag: ViewsOfBags((bag,)),
    lambda bag: RunningTasks(bag, 1000),
]


@pytest.mark.parametrize("question_of", QUESTIONS)
@pytest.mark.parametrize("seed", range(3))
def test_pilots_go_and_come_between_steps(
    question_of: Callable[[BagId], LongQuestion[Any]], seed: int
) -> None:
    random, (table, bag, pilots) = Random(seed), crowd()
    state, question = table.scheduler.state, question_of(bag)
    for _ in question.steps(state, table.now):
        if pilots and random.random() < 0.5:
            hand = pilots.pop(random.randrange(len(pilots)))
            table.handle(PilotLeft(table.request(), Leave(hand.pilot, state.epoch, "its time")))
        if random.random() < 0.1:
            number = random.randrange(10**9)
            table.enrol(1, host=f"m{number}", key=f"another key {number}").ask(want=1)
        state.check()


@pytest.mark.parametrize("question", [WhyBag(BagId(1), -1), CheckPolicy(POLICY, "ann", BagId(1))])
def test_a_bag_ends_between_steps(question: LongQuestion[Any]) -> None:
    table, bag, _ = crowd()
    steps = question.steps(table.scheduler.state, table.now)
    for _ in range(50):
        next(steps)
    table.handle(CancelRequested(table.request(), bag))
    assert bag not in table.scheduler.state.bags
    found = finish(steps)
    if isinstance(question, WhyBag):
        assert found is None, "the record tells"
    else:
        assert found.hosts == MANY, "it is checked as that of a new bag"
