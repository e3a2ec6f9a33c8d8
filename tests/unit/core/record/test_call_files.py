"""Bags of calls: what they may ask for, and that what is done is not kept in memory."""

import binascii
import re
from typing import Any

import pytest
from msgspec.structs import replace

from covey.core.bags import bag_check
from covey.core.errors import InvalidBag
from covey.core.record import call_files as core_calls
from covey.core.record.actions import Problem, Refuse, Submitted
from covey.core.record.events import RetryRequested, SegmentAppended
from covey.core.record.model import (
    BagId,
    BagRecord,
    BagSnapshot,
    BagSpec,
    Blob,
    ChunkRecord,
    Placed,
    Rows,
    Segment,
    TaskInput,
)
from covey.core.record.task_numbers import Numbering
from covey.core.values.space import Axis, Range, Values
from covey.pilot.calls.call_records import CALL, CALL_FILE, MOST_CALL, MOST_FILE
from covey.pilot.protocol.messages import Input
from tests.unit.core.table import EMPTY, Table, end, only

LARGE = Blob("1a96e" * 12 + "ca11", 5_000_000)
IN_FILE = core_calls.reference(LARGE)
INPUT = Placed(path="worker.pyz", blob=Blob("da7a" * 16, 10))


def listed(*calls: Any, name: str = CALL) -> Axis:
    return Axis(name, Values(calls))


def a_bag(*calls: str, **fields: Any) -> BagSpec:
    given: dict[str, Any] = {"argv": ("python3", "worker.pyz"), "space": listed(*calls), **fields}
    return BagSpec(calls=True, open=True, **given)


def append(table: Table, bag: int, *calls: Any, name: str = CALL) -> Any:
    segment = Segment(space=listed(*calls, name=name))
    actions = table.handle(SegmentAppended(table.request(), BagId(bag), segment, ""))
    refused = [action for action in actions if isinstance(action, Refuse)]
    return refused[0] if refused else only(actions, Submitted)


def kept(table: Table, bag: int) -> int:
    """Calls that are in memory."""
    numbering = table.scheduler.state.bags[BagId(bag)].numbering
    count = 0
    for task in range(numbering.total):
        try:
            numbering.values(task, 0)
            count += 1
        except KeyError:
            pass
    return count


def test_an_empty_open_bag_with_its_inputs_is_fine() -> None:
    bag_check.check_spec(a_bag(inputs=(INPUT,), env={"A": "{task}"}, setup="true"))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"check": "true"}, "cannot have a check"),
        ({"outputs": ("x",)}, "cannot have outputs"),
        ({"optional_outputs": ("x",)}, "cannot have outputs"),
        ({"task_inputs": (TaskInput(source="{call}", path="x"),)}, "inputs of single tasks"),
        ({"export": True}, "parameters in the environment"),
        ({"ok_codes": (0, 1)}, "exit statuses"),
        ({"argv": ("python3", "{call}")}, "the command cannot contain '{call}'"),
        ({"argv": ("python3", "-{task}")}, "the command cannot contain '-{task}'"),
        ({"space": listed("YQ==", name="i")}, "one parameter, 'call'"),
        ({"space": Axis(CALL, Range("0", "1", 3))}, "listed one by one"),
        ({"space": listed("YQ==", 3)}, "base64 text, not 3"),
        ({"space": listed("A" * (MOST_CALL * 4 // 3 + 8))}, "put large data into files"),
        ({"space": listed("@")}, "DIGEST:SIZE of a file, not '@'"),
        ({"space": listed(IN_FILE + "0")}, "DIGEST:SIZE of a file"),
        ({"space": listed(IN_FILE.replace("a", "A"))}, "DIGEST:SIZE of a file"),
        ({"space": listed(f"@{'a' * 64}:{MOST_FILE + 1}")}, "104,857,601 bytes; at most"),
        ({"space": listed(IN_FILE), "chdir": "/work"}, "leave out chdir"),
    ],
)
def test_what_one_worker_cannot_do_is_refused_with_words(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidBag, match=re.escape(words)):
        bag_check.check_spec(a_bag(**wrong))


def test_calls_do_not_come_from_the_rows_of_a_file() -> None:
    rows = Rows(digest="da7a" * 16, form="lines", names=("call",), count=3)
    with pytest.raises(InvalidBag, match="rows of a file"):
        bag_check.check_spec(BagSpec(argv=("x",), calls=True, rows=rows))


def test_what_is_appended_must_be_calls_too() -> None:
    table = Table()
    bag = table.submit(a_bag())
    assert append(table, bag, "YQ==", "Yg==").total == 2
    for refused in (append(table, bag, 5), append(table, bag, "YQ==", name="i")):
        assert refused.problem is Problem.INVALID
    assert append(table, bag, "Yw==").total == 3


def test_calls_that_are_done_are_forgotten_and_others_still_go_out() -> None:
    table = Table()
    bag = table.submit(a_bag())
    for first in range(0, 30, 10):
        append(table, bag, *(f"c{number}" for number in range(first, first + 10)))
    hand = table.enrol(slots=1)
    answer, seen = hand.ask(want=1), []
    for _ in range(25):
        seen += answer.tasks[0].values
        answer = hand.ask(want=1, ends=[end(answer)])
    assert seen == [f"c{number}" for number in range(25)]
    assert kept(table, bag) == 10
    append(table, bag, "last")
    for _ in range(6):
        seen += answer.tasks[0].values
        if len(seen) < 31:
            answer = hand.ask(want=1, ends=[end(answer)])
    assert seen[25:] == [*(f"c{number}" for number in range(25, 30)), "last"]


def test_a_call_that_failed_for_good_is_kept_for_another_try() -> None:
    table = Table()
    bag = table.submit(a_bag())
    append(table, bag, "good", "bad")
    append(table, bag, "later")
    hand = table.enrol(slots=1)
    first = hand.ask(want=1)
    second = hand.ask(want=1, ends=[end(first)])
    third = hand.ask(want=1, ends=[end(second, outcome="failed", exit_code=1)])
    assert kept(table, bag) == 3
    table.handle(RetryRequested(table.request(), BagId(bag), None))
    again = hand.ask(want=1, ends=[end(third)])
    assert again.tasks[0].values == ["bad"]


@pytest.mark.parametrize("size", [1, 262_144, 5_000_000, 50_000_000, MOST_FILE])
def test_what_stands_for_a_large_call_is_never_base64(size: int) -> None:
    """Or a pilot that knows nothing of files would make a call of it."""
    made = core_calls.reference(Blob("0123456789abcdef" * 4, size))
    assert core_calls.file_of(made) == Blob("0123456789abcdef" * 4, size)
    bag_check.check_spec(a_bag(made))
    with pytest.raises(binascii.Error):
        binascii.a2b_base64(made)


def test_a_large_call_goes_out_with_its_file_and_others_without() -> None:
    table = Table()
    bag = table.submit(a_bag("Zmlyc3Q="))
    hand = table.enrol(slots=4)
    (first,) = hand.ask(want=1).tasks
    append(table, bag, "YQ==", IN_FILE, "Yg==")
    answer = hand.ask(want=4)
    found = {task.values[0]: task.inputs for task in (first, *answer.tasks)}
    file = Input(CALL_FILE, LARGE.digest, LARGE.size)
    assert found == {"Zmlyc3Q=": [], "YQ==": [], IN_FILE: [file], "Yg==": []}
    assert all(task.memory_mb == 0 and task.limit_seconds == 0 for task in answer.tasks)
    large = next(index for index, task in enumerate(answer.tasks) if task.inputs)
    kept_bag = table.scheduler.state.bags[BagId(bag)]
    assert kept_bag.call_file(answer.tasks[large].task) == LARGE
    hand.ask(want=0, ends=[end(answer, large)])
    assert kept_bag.call_file(answer.tasks[large].task) is None, "nobody needs it any more"


def test_a_bag_that_is_restored_knows_of_its_large_calls() -> None:
    segment = Segment(space=listed("YQ==", IN_FILE))
    record = BagRecord(
        id=BagId(1), spec=a_bag(), total=2, created=1.0, open=True, segments=(segment,)
    )
    chunk = ChunkRecord(first=0, stop=2, closed=False)
    bag = BagSnapshot(bag=record, chunks=(chunk,), open_done=(0,), failed=(), tries={})
    table = Table(snapshot=replace(EMPTY, bags=(bag,), next_bag=2))
    (task,) = table.enrol(slots=1).ask(want=1).tasks
    assert (task.task, [one.digest for one in task.inputs]) == (1, [LARGE.digest])


def test_the_values_of_other_bags_are_no_files() -> None:
    table = Table()
    table.submit(BagSpec(argv=("x", "{call}"), space=listed(IN_FILE)))
    (task,) = table.enrol(slots=1).ask(want=1).tasks
    assert (task.values, task.inputs) == ([IN_FILE], [])


def test_parts_that_are_forgotten_become_one() -> None:
    numbering = Numbering()
    for _ in range(5):
        numbering.append(Segment(space=listed("a", "b")))
    for first in (2, 6, 4, 0):
        numbering.release(first, first + 1)
        assert numbering.values(first, 0) == ["a"], "half of it is still needed"
        numbering.release(first + 1, first + 2)
    assert [(part.first, part.stop) for part in numbering.parts] == [(0, 8), (8, 10)]
    assert numbering.total == 10
    assert numbering.values(9, 0) == ["b"]
    with pytest.raises(KeyError):
        numbering.values(7, 0)
    numbering.append(Segment(space=listed("c")))
    assert numbering.values(10, 0) == ["c"]


@pytest.mark.parametrize("idempotent", [True, False])
def test_calls_are_given_ahead_unless_they_must_not_be_repeated(idempotent: bool) -> None:
    table = Table()
    bag = table.submit(a_bag("YQ==", idempotent=idempotent))
    assert table.scheduler.state.bags[BagId(bag)].body.ahead == idempotent
