"""The work that one owner's policies may be: counted, never timed."""

from collections.abc import Callable
from typing import Any

import pytest

from covey.classad.fast import METER
from covey.core.match import match_cache, policy_budget
from covey.core.match.policies import Compiled
from covey.core.record.events import DrawContinued, Event, PolicyRequested, Ticked
from covey.core.record.model import BagId, BagSpec, BagStatus, PolicySpec, SiteSpec
from covey.core.sites import allowed_sites
from covey.core.values.space import Axis, Values
from covey.pilot.protocol.messages import Task
from tests.unit.core.table import Hand, Table, end, spec

CLASSES = 300
LONG = "sum({" + ", ".join(["Job.x + Pilot.RunningJobs"] * 60) + "})"
NOWHERE = f"{LONG} < 0"
ONE_BAG = 100_000  # units, about, for each pilot


def expensive(
    requirements: str, owner: str = "eve", classes: int = CLASSES, **policy: Any
) -> BagSpec:
    space = Axis("x", Values(tuple(range(classes))))
    found = PolicySpec(requirements=requirements, **policy)
    return BagSpec(argv=("work",), space=space, owner=owner, policy=found)


@pytest.fixture
def evaluations(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """How many evaluations there were since the last call."""
    count = 0

    class Counting(Compiled):
        def __init__(self, *words: Any) -> None:
            super().__init__(*words)
            inner = self.dispatch.evaluate

            def evaluate(*ads: Any) -> Any:
                nonlocal count
                count += 1
                return inner(*ads)

            self.dispatch.evaluate = evaluate

    monkeypatch.setattr("covey.core.match.bag_policy.Compiled", Counting)

    def since() -> int:
        nonlocal count
        found, count = count, 0
        return found

    return since


def laid(bags: int, requirements: str) -> tuple[Table, Hand]:
    table = Table(chunk=1024)
    for _ in range(bags):
        table.submit(expensive(requirements))
    return table, table.enrol(slots=4)


def go_on(table: Table) -> int:
    """As the server does after a tick."""
    looks = 0
    while policy_budget.goes_on(table.scheduler.state, looks):
        looks += 1
        table.handle(DrawContinued())
    return looks


def test_a_turn_asks_no_more_than_its_budget(evaluations: Callable[[], int]) -> None:
    table, hand = laid(20, NOWHERE)
    evaluations()
    hand.sync(want=1)
    asked = evaluations()
    assert 0 < asked < 2 * CLASSES, "of 6,000 classes"
    assert table.scheduler.state.budget.overruns >= 1


def test_others_get_their_tasks_in_the_same_turn(evaluations: Callable[[], int]) -> None:
    table, hand = laid(20, NOWHERE)
    table.submit(spec(1, owner="ann"))
    evaluations()
    answer = hand.ask(want=1)
    assert [task.bag for task in answer.tasks] == [21]
    assert evaluations() < 2 * CLASSES


def test_what_was_put_off_goes_on_in_later_turns() -> None:
    """All classes of all bags have their turn, however small the budget, and none is asked twice
    while nothing changes that it looks at."""
    table, hand = laid(10, NOWHERE)
    hand.sync(want=1)
    for _ in range(10):
        table.handle(Ticked())
        looks = go_on(table)
        if not looks:
            break
    state = table.scheduler.state
    [face] = next(iter(state.pilots.values())).faces.values()
    assert len(face.found) == 10
    assert all(found.whole() for found in face.found.values())
    assert not face.start


def test_a_class_whose_turn_comes_late_is_sent() -> None:
    """Only the last class of the last bag may run."""
    table, hand = laid(9, NOWHERE)
    last = table.submit(expensive(f"{LONG} > 0 && Job.x == {CLASSES - 1}"))
    sent: list[Task] = []
    events: list[Event] = [Ticked(), *[DrawContinued()] * policy_budget.MOST_LOOKS]
    hand.sync(want=1)
    for _ in range(30):
        for event in events:
            for action in table.handle(event):
                sent += getattr(getattr(action, "message", None), "tasks", [])
        if sent:
            break
    assert [(task.bag, task.task) for task in sent] == [(last, CLASSES - 1)]


def test_who_is_short_for_long_loses_the_most_expensive_bags() -> None:
    table, hand = laid(3, NOWHERE)
    cheap = table.submit(spec(5, owner="eve", policy=PolicySpec(requirements="false")))
    table.submit(spec(5, owner="ann", policy=PolicySpec(requirements="false")))
    state = table.scheduler.state
    began = table.now
    while not state.counters.quarantines:
        hand.sync(want=4)
        table.later(1)
        go_on(table)
        for pilot in state.pilots.values():
            pilot.faces.clear()  # whatever policies look at has changed
        state.budget.owners["eve"].left = 1000.0
        assert table.now - began < 60
    assert table.now - began >= policy_budget.SHORT_SECONDS
    for _ in range(10):
        hand.sync(want=4)
        table.later(1)
        state.budget.owners["eve"].left = -1000.0
    paused = [bag for bag in state.bags.values() if bag.quarantine.reason]
    assert [bag.id for bag in paused] == [1, 2, 3]
    for bag in paused:
        assert bag.status is BagStatus.PAUSED
        assert bag.reason.startswith("quarantined: its policy needs too much work: ")
    assert state.bags[cheap].status is BagStatus.RUNNING  # type: ignore[index]


def test_who_only_has_to_wait_for_the_next_turn_is_not_short() -> None:
    """One bag that is too much for one turn: the rest of it is asked a moment later."""
    table, _ = laid(1, NOWHERE)
    table.submit(spec(5, owner="ann", policy=PolicySpec(requirements="false")))
    hands = [table.enrol(slots=4, host=f"host {k}") for k in range(2)]
    state = table.scheduler.state
    for second in range(45):
        for pilot in state.pilots.values():
            pilot.faces.clear()
        if second % 20 == 0:
            for hand in hands:
                hand.sync(want=4)
        table.later(1)
        go_on(table)
    assert state.budget.overruns
    assert not state.counters.quarantines


def test_who_is_alone_is_not_paused() -> None:
    table, hand = laid(3, NOWHERE)
    hand.sync(want=4)
    for _ in range(60):
        table.later(1)
        state = table.scheduler.state
        for pilot in state.pilots.values():
            pilot.faces.clear()  # all is to be asked again
    assert state.budget.overruns
    assert not state.counters.quarantines


def test_a_second_has_a_budget_while_others_have_bags(evaluations: Callable[[], int]) -> None:
    """However many events there are in it."""
    table, hand = laid(20, NOWHERE)
    table.submit(spec(1000, owner="ann"))
    answer = hand.ask(want=1)
    evaluations()
    for _ in range(60):
        for pilot in table.scheduler.state.pilots.values():
            pilot.faces.clear()
        answer = hand.ask(want=1, ends=[end(answer)])
        assert [task.bag for task in answer.tasks] == [21]
    most = (policy_budget.RESERVE + policy_budget.TURN) / (ONE_BAG / CLASSES)
    assert evaluations() < 1.5 * most


def test_an_expression_that_is_always_too_long_is_counted() -> None:
    """Its evaluation is given up, but not before it has cost something."""
    text = "size({" + ", ".join(["{1,2,3,4,5,6,7,8,9}"] * 200) + "}) > 0 && Pilot.Slots > 0"
    compiled = Compiled(PolicySpec(requirements=f"{text} && Job.x"))
    context = compiled.dispatch.context
    context.steps = 50
    METER.used = 0
    compiled.dispatch.general(*[compiled.ad] * 8)
    assert METER.used > 0


def test_sites_are_asked_about_within_the_budget() -> None:
    """GridPolicy, and requirements, of a bag with many classes at many sites."""
    sites = tuple(SiteSpec(name=f"s{k}", driver="slurm", slots=1) for k in range(30))
    table = Table(chunk=1024, sites=sites)
    for _ in range(5):
        table.submit(expensive(f'{LONG} < 0 && Site.Name == "nowhere"', grid="true"))
    state = table.scheduler.state
    for _ in range(60):
        before = state.turns
        table.handle(Ticked())
        left = state.budget.owners["eve"]
        assert left.in_turn > -policy_budget.TURN / 2, "a turn asked far too much"
        assert state.turns > before
        go_on(table)
    bag = state.bags[1]  # type: ignore[index]
    assert allowed_sites.suits(state, table.now, bag) == dict.fromkeys(state.sites, False)


def changed(table: Table, bag: int, requirements: str, units: float) -> None:
    """The bag gets this policy, while its owner has so many units left."""
    budget = table.scheduler.state.budget.owners["eve"]
    budget.left, budget.at = units, table.now
    policy = PolicySpec(requirements=requirements)
    table.handle(PolicyRequested(table.request(), BagId(bag), policy))


def test_a_new_policy_is_asked_about_every_pilot() -> None:
    """The units suffice for the first pilot only, and nothing changes after that."""
    table, _ = laid(1, "Job.x < 0")
    table.submit(spec(1, owner="ann", policy=PolicySpec(requirements="false")))
    hands = [table.enrol(slots=1, host=f"host {k}", key=f"key-{k:08}") for k in range(2)]
    for hand in hands:
        hand.sync(want=1)
        table.later(1)
    refresh = match_cache.REFRESH * (1 + CLASSES)
    changed(table, 1, "Job.x >= 0", refresh + 10.0)
    for _ in range(3):
        table.later(1)
        go_on(table)
    state = table.scheduler.state
    assert [pilot.load for pilot in state.pilots.values()] == [0, 1, 1]


def test_the_answer_of_an_earlier_policy_does_not_hold() -> None:
    table = Table()
    bag = table.submit(expensive("Job.x >= 0", classes=10))
    table.submit(spec(1, owner="ann", policy=PolicySpec(requirements="false")))
    hand = table.enrol()
    answer = hand.ask(want=1)
    changed(table, bag, "Job.x < 0", -1000.0)
    hand.sync(want=1, ends=[end(answer)])
    assert [pilot.load for pilot in table.scheduler.state.pilots.values()] == [0]
