"""Bags of calls whose programs wait for them, or do not any more."""

from msgspec.structs import replace

from covey.core.bags import waiting_programs
from covey.core.record.actions import Done
from covey.core.record.events import (
    PauseRequested,
    ProgramHeard,
    ResumeRequested,
    RetryRequested,
    SegmentAppended,
)
from covey.core.record.model import BagId, BagRecord, BagSnapshot, BagSpec, Segment
from covey.core.state import Bag
from covey.core.values.space import Axis, Values
from covey.pilot.calls.call_records import CALL
from tests.unit.core.table import EMPTY, Table, end, only, spec

PATIENCE = 100.0


def program(table: Table, *calls: str) -> Bag:
    space = Axis(CALL, Values(calls))
    bag = table.submit(BagSpec(argv=("python3", "worker.pyz"), calls=True, open=True, space=space))
    return table.scheduler.state.bags[BagId(bag)]


def said(bag: Bag) -> tuple[str, str]:
    return bag.status.value, bag.reason


RUNNING, ABSENT = ("running", ""), ("paused", waiting_programs.ABSENT)


def test_a_program_that_is_gone_pauses_its_bag_and_one_that_waits_does_not() -> None:
    table = Table(absent_seconds=PATIENCE)
    gone, here = program(table, "a", "b"), program(table, "c")
    plain = table.scheduler.state.bags[BagId(table.submit(spec()))]
    for _ in range(3):
        table.later(PATIENCE * 0.6)
        table.handle(ProgramHeard(here.id))
    assert (said(gone), said(here), said(plain)) == (ABSENT, RUNNING, RUNNING)


def test_what_has_not_started_is_asked_back_and_goes_out_when_somebody_waits() -> None:
    table = Table(absent_seconds=PATIENCE, poll_seconds=1e4, lease_seconds=1e5)
    bag = program(table, "a", "b")
    hand = table.enrol(slots=2)
    assert len(hand.ask(want=2).tasks) == 2
    table.later(PATIENCE + 2.0)
    assert len(hand.ask().recalls) == 2
    table.handle(ProgramHeard(bag.id))
    assert said(bag) == RUNNING


def test_nothing_to_do_is_no_reason_to_wait() -> None:
    table = Table(absent_seconds=PATIENCE)
    bag = program(table, "a")
    hand = table.enrol()
    answer = hand.ask()
    hand.sync(ends=[end(answer)])
    table.later(3 * PATIENCE)
    assert said(bag) == RUNNING
    segment = Segment(space=Axis(CALL, Values(("b",))))
    table.handle(SegmentAppended(table.request(), bag.id, segment, ""))
    table.later(PATIENCE * 0.9)
    assert said(bag) == RUNNING, "whoever appends is there"
    table.later(PATIENCE * 0.2)
    assert said(bag) == ABSENT


def test_a_person_may_want_it_all_the_same() -> None:
    table = Table(absent_seconds=PATIENCE)
    bag = program(table, "a")
    table.later(PATIENCE + 2.0)
    assert only(table.handle(ResumeRequested(table.request(), bag.id)), Done).count == 1
    table.handle(ProgramHeard(bag.id))
    table.later(3 * PATIENCE)
    assert said(bag) == RUNNING


def test_calls_that_a_person_tries_again_need_nobody_who_waits() -> None:
    table = Table(absent_seconds=PATIENCE)
    bag = program(table, "a")
    hand = table.enrol()
    answer = hand.ask()
    hand.sync(ends=[end(answer, outcome="failed", exit_code=1)])
    table.handle(RetryRequested(table.request(), bag.id, None))
    table.later(3 * PATIENCE)
    assert said(bag) == RUNNING


def test_who_paused_it_for_another_reason_goes_on_himself() -> None:
    table = Table(absent_seconds=PATIENCE)
    bag = program(table, "a")
    table.handle(PauseRequested(table.request(), bag.id, "by its owner"))
    table.later(PATIENCE + 2.0)
    table.handle(ProgramHeard(bag.id))
    assert said(bag) == ("paused", "by its owner")
    assert table.handle(ProgramHeard(BagId(99))) == []


def test_after_a_restart_all_get_as_long_again() -> None:
    space = Axis(CALL, Values(("a",)))
    made = BagSpec(argv=("python3", "worker.pyz"), calls=True, open=True, space=space)
    record = BagRecord(id=BagId(1), spec=made, total=1, created=1.0, open=True)
    kept = BagSnapshot(bag=record, chunks=(), open_done=(), failed=(), tries={})
    table = Table(snapshot=replace(EMPTY, bags=(kept,), next_bag=2), absent_seconds=PATIENCE)
    bag = table.scheduler.state.bags[BagId(1)]
    table.later(PATIENCE * 0.9)
    assert said(bag) == RUNNING
    table.later(PATIENCE * 0.2)
    assert said(bag) == ABSENT


def test_a_program_that_is_back_goes_on_by_appending() -> None:
    table = Table(absent_seconds=PATIENCE)
    bag = program(table, "a")
    table.later(PATIENCE + 2.0)
    assert said(bag) == ABSENT
    segment = Segment(space=Axis(CALL, Values(("b",))))
    table.handle(SegmentAppended(table.request(), bag.id, segment, ""))
    assert said(bag) == RUNNING


def test_a_server_that_was_stopped_itself_knows_of_nobody_who_is_gone() -> None:
    table = Table(absent_seconds=PATIENCE)
    bag = program(table, "a")
    table.later(PATIENCE * 0.5)
    table.now += 3 * PATIENCE  # a suspended machine
    table.later(PATIENCE * 0.4)
    assert said(bag) == RUNNING
    table.later(PATIENCE * 0.2)
    assert said(bag) == ABSENT
