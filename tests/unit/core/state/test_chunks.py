"""Chunks of task numbers: reserved, opened, counted down, closed, opened again."""

import pytest
from pyroaring import BitMap

from covey.core.state.chunks import Chunks


def chunks() -> Chunks:
    """Three of four tasks."""
    found = Chunks()
    for stop in (4, 8, 12):
        found.reserve(stop)
    return found


def end(found: Chunks, tasks: BitMap, first: int, stop: int) -> list[tuple[int, int]]:
    """The tasks from `first` to before `stop` have results now; the chunks that this closes."""
    closed = []
    for task in range(first, stop):
        tasks.add(task)
        last = found.count_down(task)
        found.check(tasks)
        closed += [last] if last is not None else []
    return closed


def test_chunks_follow_each_other() -> None:
    found = chunks()
    found.check(BitMap())
    assert found.open == {0: 4, 4: 8, 8: 12}
    assert [found.first_of(task) for task in (0, 3, 4, 11)] == [0, 0, 4, 8]
    assert found.asked_mark == 12


def test_the_mark_moves_over_chunks_that_were_early() -> None:
    found = chunks()
    found.open_up(4)
    assert (found.mark, found.opened) == (0, {4})
    found.open_up(0)
    assert (found.mark, found.opened) == (8, set())
    found.check(BitMap())


def test_the_last_task_closes_its_chunk() -> None:
    found, settled = chunks(), BitMap()
    found.awaited[0] = found.set_aside[0] = 4
    found.sorted_at[0] = 1.0
    assert end(found, settled, 0, 6) == [(0, 4)]
    assert found.closed() == [(0, 4)]
    assert not found.awaited
    assert not found.set_aside
    assert not found.sorted_at
    assert found.unfinished == {4: 2, 8: 4}
    assert found.count_down(0) is None, "a result that takes the place of another"
    found.check(settled)


def test_tasks_that_run_again_open_their_chunks() -> None:
    found, settled = chunks(), BitMap()
    end(found, settled, 0, 6)
    chosen = BitMap([1, 2, 5])
    assert found.reopen(chosen) == [(0, 4)]
    found.check(settled - chosen)
    assert found.unfinished == {0: 2, 4: 3, 8: 4}
    assert found.closed() == []


def test_a_wrong_count_is_noticed() -> None:
    found = chunks()
    with pytest.raises(AssertionError, match="chunk 4"):
        found.check(BitMap([5]))


def test_rows_of_a_closed_chunk_are_not_awaited() -> None:
    found, settled = chunks(), BitMap()
    end(found, settled, 0, 4)
    found.awaited[0] = 4
    with pytest.raises(AssertionError, match="rows are awaited"):
        found.check(settled)
