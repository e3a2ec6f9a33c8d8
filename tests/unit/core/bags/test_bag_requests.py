"""Appending, chances, pauses, purges: what is asked of a bag, and what it does then."""

import pytest

from covey.core.record.actions import (
    Done,
    PurgeBag,
    RecordEnds,
    ReopenFailed,
    SaveHost,
)
from covey.core.record.events import (
    BagSubmitted,
    FollowRequested,
    PauseRequested,
    PilotEnrolled,
    PurgeRequested,
    ResumeRequested,
    RetryRequested,
    SyncReceived,
)
from covey.core.record.model import (
    BagId,
    BagStatus,
    Blob,
    Condition,
    More,
    Need,
    Placed,
    Rule,
)
from covey.pilot.protocol.messages import Answer, End, Enrol, Enrolled, Followed, Sync, Task
from tests.unit.core.table import Hand, Table, only, refusal, replies, spec, writes

DIGEST = "ab" * 32
MANY_VALUES = Condition(name="i", values=tuple(range(10_001)))


def enrol(table: Table, slots: int, memory_mb: int = 0, gpus: int = 0) -> Hand:
    message = Enrol(f"key-{table.requests:08}", "host", slots, memory_mb=memory_mb, gpus=gpus)
    event = PilotEnrolled(table.request(), message, "word", "digest")
    return Hand(table, only(table.handle(event), Enrolled).pilot)


def tasks(answers: list[Answer]) -> list[Task]:
    return [task for answer in answers for task in answer.tasks]


def asked(hand: Hand, want: int, ends: list[End] | None = None) -> list[Task]:
    return tasks(replies(hand.sync(want, ends or []), Answer))


def ended(hand: Hand, task: Task, outcome: str = "ok", exit_code: int = 0) -> End:
    return End(hand.epoch, task.sequence, task.bag, task.task, outcome, exit_code)


# -- chances -----------------------------------------------------------------------------------


def test_a_task_over_its_time_limit_gets_three_times_the_limit_three_times() -> None:
    table = Table()
    table.submit(spec(1, need=Need(limit_seconds=10.0)))
    pilot = enrol(table, 1)
    (task,) = asked(pilot, 1)
    limits = [task.limit_seconds]
    for _ in range(3):
        (task,) = asked(pilot, 1, [ended(pilot, task, "timeout")])
        limits.append(task.limit_seconds)
    assert limits == [0.0, 30.0, 90.0, 270.0]
    last = pilot.sync(1, [ended(pilot, task, "timeout")])
    (record,) = writes(last, RecordEnds)[0].ends
    assert (record.verdict.value, record.cause) == ("counts", "time limit")


def test_a_retry_after_a_lack_of_memory_gets_more_but_no_more_than_there_is() -> None:
    table = Table()
    need = Need(memory_mb=100)
    table.submit(spec(1, need=need, retries=3, grow_memory=2.0))
    pilot = enrol(table, 1, memory_mb=300)
    (task,) = asked(pilot, 1)
    got = []
    for _ in range(3):
        (task,) = asked(pilot, 1, [ended(pilot, task, "memory")])
        got.append(task.memory_mb)
    assert got == [200, 300, 300]


def test_too_many_failures_in_a_row_pause_the_bag_and_say_why() -> None:
    table = Table(chunk=64)
    bag = BagId(table.submit(spec(40, breaker=5)))
    pilot = enrol(table, 1)
    task = asked(pilot, 1)
    sent = 0
    while task:
        sent += 1
        failure = ended(pilot, task[0], "failed", 1)._replace(stderr="ValueError: bad value 17\n")
        task = asked(pilot, 1, [failure])
    assert sent == 5
    state = table.scheduler.state.bags[bag]
    assert state.status is BagStatus.PAUSED
    assert "exit 1: ValueError: bad value N" in state.reason
    pilot.sync(1)
    resumed = table.handle(ResumeRequested(table.request(), bag))
    assert len(tasks(replies(resumed, Answer))) == 1


def test_a_success_between_failures_keeps_the_bag_going() -> None:
    table = Table(chunk=64)
    bag = BagId(table.submit(spec(40, breaker=3)))
    pilot = enrol(table, 1)
    task = asked(pilot, 1)
    for number in range(12):
        outcome = "ok" if number % 3 == 2 else "failed"
        task = asked(pilot, 1, [ended(pilot, task[0], outcome)])
    assert table.scheduler.state.bags[bag].status is BagStatus.RUNNING


def test_a_paused_bag_sends_nothing_and_asks_back_what_was_prefetched() -> None:
    table = Table(chunk=64)
    bag = BagId(table.submit(spec(40)))
    pilot = enrol(table, 1)
    (first,) = asked(pilot, 4)
    got = asked(pilot, 4, [ended(pilot, first)])
    assert len(got) == 4
    pilot.sync(4)
    actions = table.handle(PauseRequested(table.request(), bag, "lunch"))
    assert only(actions, Done).count == 1
    recalls = [one for answer in replies(actions, Answer) for one in answer.recalls]
    assert len(recalls) == 4
    back = [ended(pilot, task, "returned") for task in got]
    assert not asked(pilot, 4, back)


def test_some_failed_tasks_are_tried_again_with_more_memory_while_others_run() -> None:
    table = Table(chunk=4)
    bag = BagId(table.submit(spec(4, need=Need(memory_mb=100))))
    pilot = enrol(table, 4)
    got = asked(pilot, 4)
    failures = [ended(pilot, task, "memory") for task in got[:3]]
    assert not asked(pilot, 4, failures)
    pilot.sync(4)
    actions = table.handle(RetryRequested(table.request(), bag, (0, 2, 3), More(1.5)))
    assert only(actions, Done).count == 2, "task 3 has not failed"
    (reopened,) = writes(actions, ReopenFailed)
    assert (reopened.tasks, reopened.more.memory) == ((0, 2), 1.5)
    again = tasks(replies(actions, Answer))
    assert [(task.task, task.memory_mb) for task in again] == [(0, 150), (2, 150)]
    pilot.sync(4, [ended(pilot, got[3]), *(ended(pilot, task) for task in again)])
    assert bag not in table.scheduler.state.bags, "finished: three done, one failed"


# -- files -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"inputs": (Placed(path="../x", blob=Blob(DIGEST, 1)),)}, "inside the task's directory"),
        ({"inputs": (Placed(path="x", blob=Blob("abc", 1)),)}, "SHA-256"),
        ({"inputs": (Placed(path="x"),)}, "either a file or a URL"),
        ({"inputs": (Placed(path="x", blob=Blob(DIGEST, 1)),), "chdir": "/tmp"}, "chdir"),
        ({"outputs": ("/etc/passwd",)}, "leads out of the task's directory"),
        ({"need": Need(cores=0)}, "at least one core"),
        ({"rules": (Rule(when=(Condition(name="z"),), need=Need()),)}, "parameter 'z'"),
        ({"rules": (Rule(when=(Condition(name="i", low=0),) * 301, need=Need()),)}, "300 condi"),
        ({"rules": (Rule(when=(MANY_VALUES,), need=Need()),)}, "at most 10,000 values"),
        ({"grow_memory": 0.5}, "grow_memory must be between 1 and 100, not 0.5"),
        ({"ok_codes": (300,)}, "exit statuses"),
    ],
)
def test_a_bag_that_makes_no_sense_is_refused_with_words(
    fields: dict[str, object], words: str
) -> None:
    table = Table()
    problem = refusal(table.handle(BagSubmitted(table.request(), spec(4, **fields))))
    assert words in problem.detail


# -- the rest ----------------------------------------------------------------------------------


def test_pilots_are_told_what_people_watch_and_when_they_stop() -> None:
    table = Table()
    bag = BagId(table.submit(spec(1)))
    pilot = enrol(table, 1)
    asked(pilot, 1)
    pilot.sync(1)
    (answer,) = replies(table.handle(FollowRequested(bag, -1)), Answer)
    assert answer.follow == [Followed(bag, -1)]
    pilot.sync(1)
    follows = []
    for _ in range(40):
        for answer in replies(table.later(1.0), Answer):
            follows.append(answer.follow)
            pilot.sync(1)
    assert [follow for follow in follows if follow is not None] == [[]]


def test_tags_of_a_host_are_recorded_when_they_change() -> None:
    table = Table()
    pilot = enrol(table, 1)
    sync = Sync(pilot.pilot, pilot.epoch, 1, 0, 0, tags={"ann:data": "yes"})
    (saved,) = writes(table.handle(SyncReceived(table.request(), sync)), SaveHost)
    assert (saved.host, saved.tags) == ("host", {"ann:data": "yes"})


def test_only_what_is_over_can_be_purged() -> None:
    table = Table()
    bag = BagId(table.submit(spec(1, key="k")))
    early = refusal(table.handle(PurgeRequested(table.request(), bag, "all")))
    assert "not finished" in early.detail
    pilot = enrol(table, 1)
    (task,) = asked(pilot, 1)
    pilot.sync(1, [ended(pilot, task)])
    actions = table.handle(PurgeRequested(table.request(), bag, "all"))
    assert writes(actions, PurgeBag) == [PurgeBag(bag, "all")]
    assert table.submit(spec(1, key="k")) != bag, "its key is free again"
