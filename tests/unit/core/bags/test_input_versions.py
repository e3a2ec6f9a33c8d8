"""Tasks that run again with other input files."""

from typing import Any

import pytest
from msgspec.structs import replace

from covey.core.bags import input_versions
from covey.core.explain.bag_answers import of_task
from covey.core.record.actions import Done, LoadBag, ReopenFailed, SaveInputVersion, Write
from covey.core.record.events import BagLoaded, RetryRequested
from covey.core.record.model import (
    AttemptId,
    BagId,
    BagRecord,
    BagSnapshot,
    BagStatus,
    Blob,
    ChunkRecord,
    InputChanges,
    InputVersion,
    Placed,
    Snapshot,
    TaskInput,
)
from covey.core.state import Bag
from covey.pilot.protocol.messages import Answer, Held
from tests.unit.core.table import Hand, Table, end, only, refusal, spec, writes

OLD, NEW, OTHER = Blob("a" * 64, 3), Blob("b" * 64, 4), Blob("c" * 64, 5)
INPUT = Placed(path="fit.py", blob=OLD)
CHANGED = InputChanges(inputs=(Placed(path="fit.py", blob=NEW),))


def bag_of(table: Table, bag: int) -> Bag:
    return table.scheduler.state.bags[BagId(bag)]


def retry(table: Table, bag: int, changes: InputChanges | None, **more: Any) -> list[Any]:
    return table.handle(RetryRequested(table.request(), BagId(bag), changes=changes, **more))


def sent_files(answer: Answer) -> list[str]:
    return [one.digest for body in answer.bodies for one in body.inputs]


@pytest.fixture
def table() -> Table:
    return Table()


def one_failed(table: Table, count: int = 3, **fields: object) -> tuple[int, Hand, Answer]:
    """A bag whose first task has failed; the second one is out."""
    bag = table.submit(spec(count, inputs=(INPUT,), **fields))
    pilot = table.enrol()
    answer = pilot.ask()
    assert (sent_files(answer), answer.bodies[0].inputs_version) == ([OLD.digest], 1)
    return bag, pilot, pilot.ask(1, [end(answer, 0, "failed", 1)])


def test_later_attempts_get_the_new_files_and_earlier_ones_keep_theirs(table: Table) -> None:
    bag, pilot, out = one_failed(table)
    actions = retry(table, bag, CHANGED)
    assert only(actions, Done).count == 1
    assert [type(one.change) for one in actions if isinstance(one, Write)][:2] == [
        SaveInputVersion,
        ReopenFailed,
    ], "a crash between them must not let tasks go out with the old files"
    answer = pilot.ask(1, [end(out)])
    assert [task.task for task in answer.tasks] == [0]
    assert (sent_files(answer), answer.bodies[0].inputs_version) == ([NEW.digest], 2)
    answer = pilot.ask(1, [end(answer)])
    assert [(task.task, answer.bodies) for task in answer.tasks] == [(2, [])]
    found = bag_of(table, bag)
    ids = [AttemptId(1, number) for number in (1, 2, 3, 4)]
    assert [input_versions.version_in(found, one) for one in ids] == [1, 1, 2, 2]
    told = of_task(table.scheduler.state, table.now, found, 2)
    assert [one.inputs_version for one in told.running] == [2]


def test_what_was_sent_ahead_is_asked_back(table: Table) -> None:
    bag = table.submit(spec(4, inputs=(INPUT,)))
    pilot = table.enrol()
    first = pilot.ask()
    ahead = pilot.ask(3, [end(first, 0, "failed", 1)])
    pilot.sync(3)
    (answer,) = [one.message for one in retry(table, bag, CHANGED) if hasattr(one, "message")][:1]
    assert isinstance(answer, Answer)
    assert [held.task for held in answer.recalls] == [task.task for task in ahead.tasks]


def test_nothing_goes_out_before_the_new_files_are_recorded(table: Table) -> None:
    bag, pilot, out = one_failed(table)
    table.durable = False
    retry(table, bag, CHANGED)
    answers = pilot.sync(1, [end(out)])
    assert not [one for one in answers if isinstance(getattr(one, "message", None), Answer)]
    answer = only(table.commit(), Answer)
    assert sent_files(answer) == [NEW.digest]


def test_a_request_that_is_repeated_makes_no_second_version(table: Table) -> None:
    bag, _, _ = one_failed(table)
    retry(table, bag, CHANGED)
    assert writes(retry(table, bag, CHANGED), SaveInputVersion) == []
    assert len(bag_of(table, bag).inputs.versions) == 1


def test_without_a_task_to_run_again_nothing_changes(table: Table) -> None:
    bag = table.submit(spec(2, inputs=(INPUT,)))
    actions = retry(table, bag, CHANGED)
    assert only(actions, Done).count == 0
    assert writes(actions, SaveInputVersion) == []


def test_files_are_added_removed_and_changed_for_single_tasks(table: Table) -> None:
    own = TaskInput(source="{i}.csv", path="in.csv")
    bag, pilot, out = one_failed(table, task_inputs=(own,), manifest={"0.csv": OLD, "1.csv": OLD})
    changes = InputChanges(
        inputs=(Placed(path="new", blob=NEW), INPUT),
        removed=("fit.py", "nothing"),
        manifest={"0.csv": OTHER, "1.csv": OLD},
    )
    (saved,) = writes(retry(table, bag, changes), SaveInputVersion)
    assert saved.version.changes.inputs == (Placed(path="new", blob=NEW),), "only what is new"
    assert (saved.version.files, saved.version.names) == (3, ("new", "fit.py", "0.csv"))
    answer = pilot.ask(1, [end(out)])
    assert sent_files(answer) == [NEW.digest]
    assert [one.digest for one in answer.tasks[0].inputs] == [OTHER.digest]
    earlier = bag_of(table, bag).inputs.earlier
    assert {OLD.digest} == earlier, "attempts that are out may still need these"


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (InputChanges(inputs=(Placed(path="../x", blob=NEW),)), "inside the task's directory"),
        (InputChanges(inputs=(Placed(path="x", blob=Blob("no", 1)),)), "SHA-256"),
        (InputChanges(inputs=(Placed(path="x"),)), "either a file or a URL"),
        (InputChanges(manifest={"k": NEW}), "no inputs of single tasks"),
        (InputChanges(removed=("fit.py",), sources_seal="x" * 5000), "seal"),
    ],
)
def test_what_cannot_be_is_refused(table: Table, changes: InputChanges, told: str) -> None:
    bag, _, _ = one_failed(table)
    assert told in refusal(retry(table, bag, changes)).detail
    assert bag_of(table, bag).inputs.versions == []
    assert bag_of(table, bag).places.failed


def test_there_is_an_end_to_versions(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_versions, "MOST_VERSIONS", 2)
    bag, pilot, out = one_failed(table)
    retry(table, bag, CHANGED)
    answer = pilot.ask(1, [end(out)])
    pilot.sync(1, [end(answer, 0, "failed", 1)])
    back = InputChanges(inputs=(INPUT,))
    assert "2 versions" in refusal(retry(table, bag, back)).detail
    monkeypatch.setattr(input_versions, "MOST_VERSIONS", 1000)
    monkeypatch.setattr(input_versions, "MOST_CHANGED", 1)
    assert "more than 1 changed" in refusal(retry(table, bag, back)).detail


def versions_of(*firsts: AttemptId) -> tuple[InputVersion, ...]:
    blobs = (NEW, OTHER)
    return tuple(
        InputVersion(
            first=first,
            at=5.0,
            files=1,
            names=("fit.py",),
            changes=InputChanges(inputs=(Placed(path="fit.py", blob=blob),)),
        )
        for first, blob in zip(firsts, blobs, strict=False)
    )


def snapshot(status: BagStatus = BagStatus.RUNNING, failed: tuple[int, ...] = ()) -> BagSnapshot:
    record = BagRecord(
        id=BagId(1),
        spec=spec(2, inputs=(INPUT,)),
        total=2,
        created=1.0,
        status=status,
        input_versions=versions_of(AttemptId(1, 5), AttemptId(1, 9)),
    )
    chunks = (ChunkRecord(first=0, stop=2, closed=False),)
    done = tuple(task for task in (0, 1) if failed and task not in failed)
    return BagSnapshot(bag=record, chunks=chunks, open_done=done, failed=failed, tries={})


def test_a_bag_of_the_record_has_its_latest_files() -> None:
    start = Snapshot(
        epoch=2, bags=(snapshot(),), pilots=(), jobs=(), next_bag=2, next_pilot=1, keys={}
    )
    table = Table(snapshot=start)
    answer = table.enrol().ask()
    assert (sent_files(answer), answer.bodies[0].inputs_version) == ([OTHER.digest], 3)
    found = bag_of(table, 1)
    assert found.inputs.earlier == {OLD.digest, NEW.digest}
    ids = (AttemptId(1, 4), AttemptId(1, 5), AttemptId(1, 8), AttemptId(1, 9), AttemptId(2, 1))
    assert [input_versions.version_in(found, one) for one in ids] == [1, 2, 2, 3, 3]


def test_a_bag_that_is_over_gets_new_files(table: Table) -> None:
    bag, pilot, out = one_failed(table, 2)
    pilot.sync(1, [end(out)])
    actions = retry(table, bag, CHANGED)
    (load,) = [one for one in actions if isinstance(one, LoadBag)]
    over = snapshot(BagStatus.FINISHED, failed=(0,))
    over = replace(over, bag=replace(over.bag, input_versions=()))
    actions = table.handle(BagLoaded(load.request, BagId(bag), over))
    assert only(actions, Done).count == 1
    assert len(writes(actions, SaveInputVersion)) == 1


def test_an_adopted_attempt_keeps_the_version_it_was_sent_with() -> None:
    start = Snapshot(
        epoch=2, bags=(snapshot(),), pilots=(), jobs=(), next_bag=2, next_pilot=1, keys={}
    )
    table = Table(snapshot=start)
    hand = table.enrol()
    hand.sync(1, held=[Held(1, 6, 1, 0)])
    bag = bag_of(table, 1)
    assert [input_versions.version_in(bag, one.id) for one in bag.places.live[0]] == [2]
