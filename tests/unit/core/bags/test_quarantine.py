"""A bag that cannot be handled is put away; everything else goes on."""

from typing import Any

import pytest
from msgspec.structs import replace

from covey.core.bags.bag_check import check_spec
from covey.core.errors import InvalidBag
from covey.core.match.pilot_fit import MOST_GROWTH, limits
from covey.core.record.actions import Done, LoadBag, Note, SaveBagStatus, Write
from covey.core.record.events import (
    BagLoaded,
    BagSubmitted,
    CancelRequested,
    PolicyRequested,
    PurgeRequested,
    ResumeRequested,
    RetryRequested,
    SegmentAppended,
    Ticked,
)
from covey.core.record.model import (
    BagId,
    BagRecord,
    BagSnapshot,
    BagSpec,
    BagStatus,
    ChunkRecord,
    Condition,
    Need,
    PolicySpec,
    Rule,
    Segment,
    TaskInput,
    TaskNumber,
)
from covey.core.state import Bag
from covey.core.values.space import Axis, Product, Range, Values
from covey.pilot.protocol.messages import Answer
from tests.unit.core.table import EMPTY, Table, end, only, refusal, spec

POLICY = PolicySpec(requirements="Pilot.Slots > 0 && Job.i >= 0", rank="Host.Cpus")


def bag_of(table: Table, id_: int) -> Bag:
    return table.scheduler.state.bags[BagId(id_)]


def is_put_away(table: Table, id_: int) -> bool:
    bag = bag_of(table, id_)
    assert bag.status is BagStatus.PAUSED
    assert bag.reason == bag.quarantine.reason
    assert bag.policy.plain
    assert bag.classes.classify is None
    return bag.reason.startswith("quarantined: ")


def broken(*_: object) -> Any:
    raise ValueError("no such luck")


def test_a_policy_that_raises_puts_its_bag_away_and_no_other() -> None:
    table = Table()
    bad, good = table.submit(spec(policy=POLICY)), table.submit(spec(policy=POLICY))
    hand = table.enrol()
    bag_of(table, bad).policy.dispatch.evaluate = broken
    answer = hand.ask()
    assert [task.bag for task in answer.tasks] == [good]
    assert is_put_away(table, bad)
    assert "ValueError: no such luck" in bag_of(table, bad).reason
    noted = [one for one in table.actions if isinstance(one, Note) and "quarantined" in one.what]
    assert [note.bag for note in noted] == [bad]
    assert "Traceback" in noted[0].detail
    saved = [one.change for one in table.actions if isinstance(one, Write)]
    assert any(isinstance(one, SaveBagStatus) and "no such luck" in one.reason for one in saved)


def test_bags_that_say_the_same_are_put_away_together() -> None:
    """Their policy is asked once for all of them; others' bags are asked for themselves."""
    table = Table()
    same = PolicySpec(requirements="Pilot.Slots > 0")
    bad = [table.submit(spec(policy=same, owner="eve")) for _ in range(2)]
    good = table.submit(spec(policy=PolicySpec(requirements="Pilot.Slots > 0.5"), owner="ann"))
    bag_of(table, bad[0]).policy.dispatch.evaluate = broken
    answer = table.enrol(slots=4).ask(want=4)
    assert {task.bag for task in answer.tasks} == {good}
    assert all(is_put_away(table, one) for one in bad)


@pytest.mark.parametrize("part", ["tail", "replication", "grid"])
def test_other_parts_of_a_policy_may_raise(part: str) -> None:
    table = Table()
    policy = PolicySpec(replication="true", tail="true", grid="true", sticky_tail=False)
    bad, good = table.submit(spec(1, policy=policy)), table.submit(spec(1))
    getattr(bag_of(table, bad).policy, part).evaluate = broken
    hand = table.enrol(slots=4)
    hand.sync(want=4)
    table.later(3)
    if part == "grid":
        assert not table.scheduler.state.counters.quarantines, "there is no site to ask about"
    else:
        assert is_put_away(table, bad)
    assert bag_of(table, good).places.live


def test_rules_that_raise_put_the_bag_away() -> None:
    table = Table()
    rule = Rule(when=(Condition(name="i", low=2.0),), need=Need(cores=2))
    bad = table.submit(spec(rules=(rule,)))
    bag_of(table, bad).classes.classify = broken
    segment = Segment(space=Axis("i", Range("0", "1", 4)))
    table.handle(SegmentAppended(table.request(), BagId(bad), segment, ""))
    answer = table.enrol(slots=4).ask(want=4)
    assert answer.tasks, "those that were told apart before"
    bag = bag_of(table, bad)
    bag.classes.classify = broken
    bag.class_of(0)
    table.handle(Ticked())
    assert is_put_away(table, bad)


def test_tasks_that_cannot_be_sent_put_the_bag_away() -> None:
    table = Table()
    inputs = (TaskInput(source="{i}", path="x"),)
    bad, good = table.submit(spec(task_inputs=inputs)), table.submit(spec())
    bag_of(table, bad).inputs.filled = [(broken, broken, False)]
    answer = table.enrol(slots=2).ask(want=2)
    assert is_put_away(table, bad)
    assert not bag_of(table, bad).places.failed
    assert not bag_of(table, bad).places.live
    assert [task.bag for task in answer.tasks] == [good, good]
    assert not answer.recalls


def test_it_can_be_given_another_policy_and_go_on() -> None:
    table = Table()
    bad = table.submit(spec(2, policy=POLICY))
    hand = table.enrol()
    bag_of(table, bad).policy.dispatch.evaluate = broken
    hand.sync()
    assert is_put_away(table, bad)
    request = PolicyRequested(table.request(), BagId(bad), PolicySpec(requirements="1 +"))
    assert "requirements" in refusal(table.handle(request)).detail.lower()
    request = PolicyRequested(table.request(), BagId(bad), PolicySpec(requirements="Job.i > 0"))
    assert only(table.handle(request), Done).count == 1
    assert is_put_away(table, bad), "until somebody wants it"
    resumed = table.handle(ResumeRequested(table.request(), BagId(bad)))
    assert only(resumed, Done).count == 1
    assert not bag_of(table, bad).quarantine.reason
    assert [task.task for task in only(resumed, Answer).tasks] == [1]
    assert bag_of(table, bad).policy.spec.requirements == "Job.i > 0"


def test_it_can_be_cancelled_and_purged_while_tasks_run() -> None:
    table = Table()
    bad = table.submit(spec(4, policy=POLICY))
    hand = table.enrol()
    answer = hand.ask()
    bag = bag_of(table, bad)
    bag.policy.dispatch.evaluate = broken
    bag.cache.dirty, bag.cache.stamp = True, bag.cache.stamp + 1
    next(iter(table.scheduler.state.pilots.values())).faces.clear()
    hand.sync(want=1, ends=[end(answer)])
    assert is_put_away(table, bad)
    assert only(table.handle(CancelRequested(table.request(), BagId(bad))), Done).count == 3
    purge = PurgeRequested(table.request(), BagId(bad), "all")
    assert only(table.handle(purge), Done).count == 1


def test_a_check_that_raises_is_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table()
    monkeypatch.setattr("covey.core.bags.bag_check.check_spec", broken)
    refused = refusal(table.handle(BagSubmitted(table.request(), spec())))
    assert "no such luck" in refused.detail
    assert table.scheduler.state.counters.next_bag == 1
    assert any(isinstance(one, Note) and "Traceback" in one.detail for one in table.actions)


def test_a_bag_that_cannot_be_built_is_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table()
    monkeypatch.setattr("covey.core.protocol.recovery.new_bag", broken)
    refusal(table.handle(BagSubmitted(table.request(), spec())))
    assert not table.scheduler.state.bags
    monkeypatch.undo()
    assert table.submit(spec()) == 1


# -- from the record --------------------------------------------------------------------------


def stored(given: BagSpec, **fields: Any) -> BagSnapshot:
    chunk = ChunkRecord(first=0, stop=4, closed=False)
    record = BagRecord(id=BagId(1), spec=given, total=8, created=1.0)
    return BagSnapshot(
        bag=record, chunks=(chunk,), open_done=(0,), failed=(1,), tries={2: 1}, **fields
    )


def started(*bags: BagSnapshot) -> Table:
    return Table(snapshot=replace(EMPTY, bags=bags, next_bag=len(bags) + 1))


@pytest.mark.parametrize(
    "spoilt",
    [
        {"space": Axis("x", Range("1e5000", "1", 8))},
        {"space": Axis("x", Range("1e99999999999999", "1", 8))},
        {"space": Product(tuple(Axis(f"a{k}", Range("0", "1", 2**62)) for k in range(300)))},
        {"space": Axis("x", Values((10**400, *range(7))))},
        {"policy": PolicySpec(requirements="1" * 4400)},
        {"policy": PolicySpec(preset="none of ours")},
    ],
)
def test_a_stored_bag_that_cannot_be_built_is_put_away(spoilt: dict[str, Any]) -> None:
    table = started(stored(BagSpec(argv=("work",), owner="eve", **spoilt)))
    assert is_put_away(table, 1)
    bag = bag_of(table, 1)
    assert (bag.total, len(bag.places.done), len(bag.places.failed), bag.spec.owner) == (
        8,
        1,
        1,
        "eve",
    )
    for event in (
        ResumeRequested(table.request(), BagId(1)),
        RetryRequested(table.request(), BagId(1), None),
    ):
        assert "covey cancel 1" in refusal(table.handle(event)).detail
    good = table.submit(spec())
    assert [task.bag for task in table.enrol().ask().tasks] == [good]
    table.later(5)
    assert only(table.handle(CancelRequested(table.request(), BagId(1))), Done).count == 6


def test_one_that_cannot_be_read_is_put_away() -> None:
    table = started(stored(BagSpec(argv=("?",), owner="eve"), broken="ValidationError: no"))
    assert is_put_away(table, 1)
    assert "the bag cannot be read from the record: ValidationError: no" in bag_of(table, 1).reason


def test_one_that_was_put_away_stays_so_until_somebody_wants_it() -> None:
    """The policy of one that was too expensive must not be asked by the next server."""
    snapshot = stored(spec(8, policy=POLICY))
    reason = "quarantined: its policy needs too much work"
    record = replace(snapshot.bag, status=BagStatus.PAUSED, reason=reason)
    table = started(replace(snapshot, bag=record))
    assert is_put_away(table, 1)
    assert only(table.handle(ResumeRequested(table.request(), BagId(1))), Done).count == 1
    assert bag_of(table, 1).policy.spec == POLICY
    assert table.enrol().ask().tasks


def test_a_bag_that_is_over_and_cannot_be_built_is_not_tried_again() -> None:
    table = started()
    table.scheduler.state.counters.next_bag = 2
    request = table.request()
    asked = table.handle(RetryRequested(request, BagId(1), None))
    assert any(isinstance(one, LoadBag) for one in asked)
    given = BagSpec(argv=("work",), space=Axis("x", Range("1e5000", "1", 8)))
    snapshot = stored(given)
    over = replace(snapshot, bag=replace(snapshot.bag, status=BagStatus.FINISHED))
    refused = refusal(table.handle(BagLoaded(request, BagId(1), over)))
    assert "cannot run its tasks" in refused.detail
    assert not table.scheduler.state.bags


def test_growth_has_an_end() -> None:
    """A thousand retries, each with a hundred times the memory, were too much for arithmetic."""
    table = Table()
    need = Need(memory_mb=10**8, limit_seconds=10.0)
    number = table.submit(spec(need=need, retries=1000, grow_memory=100.0, grow_time=100.0))
    table.enrol()
    bag = bag_of(table, number)
    bag.failures.short[0] = bag.failures.overtimes[0] = 1001
    [pilot] = table.scheduler.state.pilots.values()
    memory, seconds = limits(bag, TaskNumber(0), need, pilot.record)
    assert (memory, seconds) == (10**8 * MOST_GROWTH, 10.0 * MOST_GROWTH)


def test_words_do_not_repeat_all_that_was_sent() -> None:
    with pytest.raises(InvalidBag) as told:
        check_spec(BagSpec(argv=("x",), space=Axis("x" * 10**6, Range("0", "1", 3))))
    assert len(str(told.value)) < 1000
