"""What the scheduler promises, one promise a test."""

import pytest
from msgspec.structs import replace

from covey.core.record.actions import (
    CloseChunk,
    Done,
    LeaseChunk,
    LoadBag,
    Problem,
    RecordEnds,
    ReopenFailed,
    Reply,
    SaveBagStatus,
    Submitted,
    Write,
)
from covey.core.record.events import (
    BagLoaded,
    BagSubmitted,
    CancelRequested,
    PilotLeft,
    RequestDropped,
    RetryRequested,
)
from covey.core.record.model import (
    BagId,
    BagRecord,
    BagSnapshot,
    BagStatus,
    ChunkRecord,
    Need,
    PilotId,
    PilotStatus,
    RequestId,
    TaskInput,
    Verdict,
)
from covey.pilot.protocol.messages import Answer, Leave
from tests.unit.core.table import Hand, Table, end, only, refusal, replies, spec, writes


def run_out(table: Table, pilot: Hand, outcome: str = "ok") -> None:
    """Run tasks one by one until there are no more."""
    answers = replies(pilot.sync(), Answer)
    while answers and answers[0].tasks:
        answers = replies(pilot.sync(1, [end(answers[0], 0, outcome)]), Answer)


def test_a_submission_sent_twice_is_one_bag() -> None:
    table = Table()
    first = table.submit(spec(key="k"))
    again = only(table.handle(BagSubmitted(table.request(), spec(key="k"))), Submitted)
    assert (again.bag, again.known) == (first, True)


@pytest.mark.parametrize(
    ("bag", "words"),
    [
        (spec(retries=-1), "retries"),
        (spec(need=Need(limit_seconds=-1.0)), "time limit"),
        (spec(env={"A=B": "x"}), "environment"),
    ],
)
def test_a_bag_that_makes_no_sense_is_refused(bag: object, words: str) -> None:
    table = Table()
    refused = refusal(table.handle(BagSubmitted(table.request(), bag)))  # type: ignore[arg-type]
    assert refused.problem is Problem.INVALID
    assert words in refused.detail
    assert not table.scheduler.state.bags


def test_a_bag_runs_to_its_end() -> None:
    table = Table()
    table.submit(spec(20))
    run_out(table, table.enrol())
    (status,) = writes(table.actions, SaveBagStatus)
    assert (status.status, status.done, status.failed) == (BagStatus.FINISHED, 20, 0)
    assert not table.scheduler.state.bags, "core forgets what is over"
    assert len(writes(table.actions, CloseChunk)) == len(writes(table.actions, LeaseChunk))


def test_a_repeated_sync_gets_the_same_answer_and_does_nothing() -> None:
    table = Table()
    table.submit(spec())
    pilot = table.enrol()
    answer = pilot.ask()
    before = len(table.actions)
    assert only(pilot.sync(number=1), Answer) == answer
    assert len(table.actions) == before + 1


def test_syncs_out_of_order_are_refused_and_change_nothing() -> None:
    table = Table()
    table.submit(spec())
    pilot = table.enrol()
    assert refusal(pilot.sync(number=3)).problem is Problem.OUT_OF_ORDER
    pilot.sync(number=1)
    pilot.sync(number=2)
    pilot.sync(number=3)
    assert refusal(pilot.sync(number=1)).problem is Problem.STALE


def test_new_work_wakes_a_parked_pilot() -> None:
    table = Table()
    pilot = table.enrol()
    assert not replies(pilot.sync(), Answer)
    table.submit(spec())
    assert len(replies(table.actions, Answer)[0].tasks) == 1


def test_a_newer_sync_releases_the_parked_one() -> None:
    table = Table()
    pilot = table.enrol()
    pilot.sync()
    released = only(pilot.sync(), Answer)
    assert (released.number, released.tasks) == (1, [])


def test_a_parked_sync_is_answered_in_time() -> None:
    table = Table(poll_seconds=10.0)
    pilot = table.enrol()
    pilot.sync()
    assert only(table.later(11), Answer).number == 1


def test_failures_use_up_retries_and_then_count() -> None:
    table = Table()
    table.submit(spec(1, retries=2))
    pilot = table.enrol()
    answer = pilot.ask()
    for _ in range(2):
        answer = pilot.ask(1, [end(answer, 0, "failed", 3)])
        assert [task.task for task in answer.tasks] == [0]
    pilot.ask(1, [end(answer, 0, "failed", 3)])
    verdicts = [e.verdict for ends in writes(table.actions, RecordEnds) for e in ends.ends]
    assert verdicts == [Verdict.WASTE, Verdict.WASTE, Verdict.COUNTS]


def test_losses_of_infrastructure_use_up_no_retries() -> None:
    table = Table()
    table.submit(spec(1))
    pilot = table.enrol()
    answer = pilot.ask()
    for _ in range(5):
        answer = pilot.ask(1, [end(answer, 0, "host")])
        assert [task.task for task in answer.tasks] == [0]


def test_a_bag_that_is_not_idempotent_is_not_repeated() -> None:
    table = Table()
    table.submit(spec(1, idempotent=False))
    pilot = table.enrol()
    assert not pilot.ask(1, [end(pilot.ask(), 0, "host")]).tasks
    (status,) = writes(table.actions, SaveBagStatus)
    assert status.failed == 1


def test_a_silent_pilot_is_lost_and_its_tasks_go_elsewhere() -> None:
    table = Table(lease_seconds=30.0)
    table.submit(spec(1))
    first = table.enrol()
    first.ask()
    second = table.enrol()
    for _ in range(4):
        second.sync()
        table.later(10)
    assert [task.task for task in replies(table.actions, Answer)[-1].tasks] == [0]


def test_a_late_success_counts_and_the_other_attempt_is_cancelled() -> None:
    table = Table(lease_seconds=30.0)
    table.submit(spec(1))
    slow = table.enrol()
    first_try = slow.ask()
    fast = table.enrol()
    for _ in range(4):
        fast.sync()
        table.later(10)
    assert replies(table.actions, Answer)[-1].tasks
    assert only(slow.sync(), Answer).resync
    fast.sync()
    actions = slow.sync(1, [end(first_try)], held=[])
    assert any(answer.cancels for answer in replies(actions, Answer))
    (status,) = writes(actions, SaveBagStatus)
    assert status.done == 1


def test_a_hung_up_pilot_is_only_suspected() -> None:
    table = Table()
    pilot = table.enrol()
    pilot.sync()
    table.handle(RequestDropped(table.request(), PilotId(pilot.pilot)))
    request = table.scheduler.state.pilots[PilotId(pilot.pilot)].waiting[1].request
    assert request is not None, "another request was dropped, not this one"
    table.handle(RequestDropped(request, PilotId(pilot.pilot)))
    state = table.scheduler.state.pilots[PilotId(pilot.pilot)]
    assert state.status is PilotStatus.SUSPECTED
    table.submit(spec())
    assert only(pilot.sync(number=1), Answer).tasks, "the same number again finds the work"


def test_a_leaving_pilot_gives_its_tasks_back() -> None:
    table = Table()
    table.submit(spec(1))
    pilot = table.enrol()
    pilot.ask()
    other = table.enrol()
    other.sync()
    actions = table.handle(PilotLeft(table.request(), Leave(pilot.pilot, 1, "done")))
    assert any(answer.tasks for answer in replies(actions, Answer))


def test_cancel_stops_what_runs() -> None:
    table = Table()
    bag = table.submit(spec(3))
    pilot = table.enrol()
    pilot.ask()
    pilot.sync()
    actions = table.handle(CancelRequested(table.request(), BagId(bag)))
    assert [held.task for held in only(actions, Answer).cancels] == [0]
    assert only(actions, Done).count == 3
    assert not replies(pilot.sync(5), Answer), "there is nothing more to do"


def test_cancel_of_an_unknown_bag_says_so() -> None:
    table = Table()
    refused = refusal(table.handle(CancelRequested(table.request(), BagId(7))))
    assert refused.problem is Problem.NOT_FOUND


def test_retry_runs_the_failed_again() -> None:
    table = Table()
    bag = table.submit(spec(3))
    pilot = table.enrol()
    answer = pilot.ask()
    answer = pilot.ask(1, [end(answer, 0, "failed", 1)])
    actions = table.handle(RetryRequested(table.request(), BagId(bag)))
    assert only(actions, Done).count == 1
    assert writes(actions, ReopenFailed)
    answer = pilot.ask(1, [end(answer)])
    assert [task.task for task in answer.tasks] == [0], "it goes first"


def test_retry_of_a_bag_that_is_over_loads_it() -> None:
    table = Table()
    bag = table.submit(spec(1))
    run_out(table, table.enrol(), "failed")
    actions = table.handle(RetryRequested(table.request(), BagId(bag)))
    assert any(isinstance(action, LoadBag) for action in actions)


def given_up_too_soon(table: Table) -> tuple[BagId, Hand, Answer]:
    """A bag that is over, and the pilot that may yet bring its task's success."""
    bag = BagId(table.submit(spec(1, idempotent=False)))
    slow = table.enrol()
    answer = slow.ask()
    table.later(40)
    return bag, slow, answer


def test_a_success_that_crosses_the_loading_of_its_bag_is_not_run_again() -> None:
    table = Table(lease_seconds=30.0)
    bag, slow, answer = given_up_too_soon(table)
    stale = given_up(bag)
    table.handle(RetryRequested(table.request(), bag))
    assert only(slow.sync(), Answer).resync
    slow.sync(1, [end(answer)], held=[])
    actions = table.handle(BagLoaded(RequestId(99), bag, stale))
    assert actions == [LoadBag(RequestId(99), bag)], "read again, with the success in it"


def test_two_who_want_the_same_tried_again_have_it_read_once() -> None:
    """Else the second would be told what was true before a success that the first waits for."""
    table = Table(lease_seconds=30.0)
    bag, slow, answer = given_up_too_soon(table)
    stale = given_up(bag)
    first, second = table.request(), table.request()
    table.handle(RetryRequested(first, bag))
    assert table.handle(RetryRequested(second, bag)) == []
    assert only(slow.sync(), Answer).resync
    slow.sync(1, [end(answer)], held=[])
    assert table.handle(BagLoaded(first, bag, stale)) == [LoadBag(first, bag)]
    actions = table.handle(BagLoaded(first, bag, replace(stale, failed=())))
    told = {one.request: one.message for one in actions if isinstance(one, Reply)}
    assert told == {first: Done(0), second: Done(0)}


def test_tasks_that_cannot_be_sent_end_their_bag() -> None:
    """Also when that is found out only as a waiting pilot is to get one."""
    table = Table()
    hand = table.enrol()
    hand.sync(want=1)
    inputs = (TaskInput(source="in{i}", path="x"),)
    bag = BagId(table.submit(spec(1, task_inputs=inputs, manifest={})))
    assert bag not in table.scheduler.state.bags
    saved = [one.change for one in table.actions if isinstance(one, Write)]
    assert [one.status for one in saved if isinstance(one, SaveBagStatus)] == [BagStatus.FINISHED]


def given_up(bag: BagId) -> BagSnapshot:
    record = BagRecord(id=bag, spec=spec(1), total=1, created=0.0, status=BagStatus.FINISHED)
    chunks = (ChunkRecord(first=0, stop=1, closed=True),)
    return BagSnapshot(bag=record, chunks=chunks, open_done=(), failed=(0,), tries={})


@pytest.mark.parametrize(
    "change",
    [
        {"task": 2**60},
        {"epoch": -(2**60)},
        {"memory_kb": 10**30},
        {"wall_seconds": 1e300},
        {"outcome": "splendid"},
        {"outcome": "lost"},
    ],
)
def test_an_end_that_cannot_be_is_refused_and_changes_nothing(change: dict[str, object]) -> None:
    table = Table()
    table.submit(spec())
    pilot = table.enrol()
    answer = pilot.ask()
    bad = end(answer)._replace(**change)  # type: ignore[arg-type]
    assert refusal(pilot.sync(1, [bad])).problem is Problem.INVALID
    assert len(table.scheduler.state.pilots[PilotId(pilot.pilot)].attempts) == 1
    assert pilot.sync(1, [end(answer)], number=2)


def test_room_that_ends_make_is_filled_before_they_are_durable() -> None:
    table = Table()
    table.submit(spec(8))
    pilot = table.enrol(slots=2)
    first = pilot.ask(want=1)
    table.durable = False
    assert replies(pilot.sync(want=1), Answer) == [], "it is parked"
    (answer,) = replies(pilot.sync(want=1, ends=[end(first)]), Answer)
    assert (answer.number, [task.task for task in answer.tasks]) == (2, [1])
    (durable,) = replies(table.commit(), Answer)
    assert (durable.number, durable.tasks) == (3, [])
