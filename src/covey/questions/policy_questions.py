"""Questions about policies, and why a bag or a task is not running. They look at every pilot."""

from typing import TypeVar

from msgspec import Struct

from covey.core.explain import bag_answers, catalogue, policy_check
from covey.core.explain.answers import BagAnswer, Listed, PolicyReport, TaskAnswer
from covey.core.explain.steps import Steps
from covey.core.record.model import BagId, PolicySpec
from covey.core.state import Bag, State
from covey.questions.question import LongQuestion, Question

A = TypeVar("A")


class AttributesNow(Question[list[Listed]], frozen=True):
    """All attributes for policies, with examples that this owner may see (None: all)."""

    owner: str | None

    def answer(self, state: State, now: float) -> list[Listed]:
        return catalogue.attributes_of(state, now, self.owner)


class CheckPolicy(LongQuestion[PolicyReport], frozen=True):
    """What is wrong with a policy, for a bag of this owner that core holds, or for a new bag."""

    policy: PolicySpec
    owner: str
    bag: BagId | None = None

    def steps(self, state: State, now: float) -> Steps[PolicyReport]:
        bag = state.bags.get(self.bag) if self.bag is not None else None
        if bag is not None:
            report = yield from _while_held(
                state, bag, policy_check.examine(state, now, self.policy, bag, self.owner)
            )
            if report is not None:
                return report
        return (yield from policy_check.examine(state, now, self.policy, None, self.owner))


class BagReasons(Struct, frozen=True):
    """What core knows about a bag, or about one of its tasks."""

    name: str
    owner: str
    names: list[str]
    status: str
    total: int
    answer: BagAnswer | None  # None: about a task that does not wait
    task: TaskAnswer | None


class WhyBag(LongQuestion[BagReasons | None], frozen=True):
    """Why a bag, or one of its tasks, is not running. Task -1: the bag. None: core does not hold
    the bag, or forgot it before the answer was complete."""

    bag: BagId
    task: int

    def steps(self, state: State, now: float) -> Steps[BagReasons | None]:
        bag = state.bags.get(self.bag)
        if bag is None:
            return None
        return (yield from _while_held(state, bag, _reasons(state, now, bag, self.task)))


def _reasons(state: State, now: float, bag: Bag, task: int) -> Steps[BagReasons]:
    of_task = bag_answers.of_task(state, now, bag, task) if 0 <= task < bag.total else None
    answer = None
    if task < 0 or (of_task is not None and of_task.state == "waiting"):
        only = task if task >= 0 else None
        answer = yield from bag_answers.of_bag(state, now, bag, only)
    return BagReasons(
        name=bag.spec.name,
        owner=bag.spec.owner,
        names=[] if bag.spec.calls else bag.body.names,
        status=bag.status.value,
        total=bag.total,
        answer=answer,
        task=of_task,
    )


def _while_held(state: State, bag: Bag, steps: Steps[A]) -> Steps[A | None]:
    """The same answer; None if core forgets the bag between two steps."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            answer: A = end.value
            return answer
        yield
        if state.bags.get(bag.id) is not bag:
            return None
