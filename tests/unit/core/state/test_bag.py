"""What holds between the parts of a bag, and for its smaller parts."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from covey.core.protocol.recovery import new_bag
from covey.core.record.model import (
    AttemptId,
    BagId,
    BagRecord,
    BagSnapshot,
    BagStatus,
    InputChanges,
    InputVersion,
    Need,
    PolicySpec,
)
from covey.core.state import Bag
from tests.unit.core.table import spec


def bag(count: int = 8) -> Bag:
    """One chunk of four of its tasks is open, and the first of them was handed out."""
    record = BagRecord(id=BagId(1), spec=spec(count), total=count, created=0.0, open=False)
    made = new_bag(BagSnapshot(bag=record, chunks=(), open_done=(), failed=(), tries={}))
    made.chunks.reserve(4)
    made.chunks.open_up(0)
    made.places.next = 1
    made.free(0)
    return made


def test_a_bag_joins_its_parts() -> None:
    found = bag()
    found.check()
    assert found.unsent() == 8
    assert not found.over()


def test_a_freed_task_goes_where_it_belongs() -> None:
    found = bag()
    found.hold(0)
    found.places.rescued.add(0)
    found.free(0)
    found.check()
    assert list(found.places.rescue) == [0]
    found.fail_over_no_more()
    found.check()
    assert list(found.places.ready[0]) == [0]
    found.hold(0)
    found.chunks.awaited[0] = 4
    found.free(0)
    found.check()
    assert list(found.places.parked) == [0]


def test_a_class_has_its_place() -> None:
    found = bag()
    found.cache.dirty = False
    found.add_need(Need(cores=2))
    assert found.add_class(1, [3]) == 2
    assert found.cache.dirty
    assert len(found.places.ready) == 3
    found.check()


def _go_too_far(found: Bag) -> None:
    found.places.next = 5
    found.places.doubt.add_range(1, 5)


def _lose_a_place(found: Bag) -> None:
    found.places.ready.append(found.places.ready[0].copy())
    found.places.ready[1].clear()


def _put_a_policy_away(found: Bag) -> None:
    found.quarantine.held = PolicySpec()


def _make_a_shell(found: Bag) -> None:
    found.quarantine.shell = True


def _mix_versions(found: Bag) -> None:
    changes = InputChanges()
    version = InputVersion(first=AttemptId(1, 9), at=0.0, files=0, names=(), changes=changes)
    found.inputs.versions += [version, replace(version, first=AttemptId(1, 3))]


@pytest.mark.parametrize(
    "mistake", [_go_too_far, _lose_a_place, _put_a_policy_away, _make_a_shell, _mix_versions]
)
def test_a_mistake_is_noticed(mistake: Callable[[Bag], None]) -> None:
    found = bag()
    mistake(found)
    with pytest.raises(AssertionError):
        found.check()


def test_a_cancelled_bag_has_dropped_its_tasks() -> None:
    found = bag()
    found.status = BagStatus.CANCELLED
    found.hold_all()
    found.check()
    assert found.unsent() == 0
