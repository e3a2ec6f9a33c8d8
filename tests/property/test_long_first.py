"""Longest first: whatever the times are, tasks go out by them, and the bag ends soon.

A bag on pilots of one slot each, in virtual time: a pilot whose task has ended asks for the next.
"""

import heapq
from itertools import product

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from covey.core.record.model import BagSpec, Segment
from covey.core.record.task_classes import find_needs
from covey.core.values.space import Axis, Values
from covey.pilot.protocol.messages import Answer
from tests.unit.core.table import Hand, Table, end

seconds = st.lists(st.integers(1, 9), min_size=1, max_size=8)


def a_run(times: list[int], pilots: int, order: str) -> tuple[list[int], int]:
    """The tasks in the order in which they went out, and when the last one ended."""
    table = Table(chunk=4, lease_seconds=1e9)
    bag = BagSpec(
        argv=("work",),
        space=Axis("t", Values(tuple(times))),
        need_from={"time": "{t}"},
        order=order,
    )
    table.submit(replace(bag, task_needs=find_needs(bag, Segment(space=bag.space))))
    hands: list[Hand] = [table.enrol(1, key=f"the pilot {k}", host=f"h{k}") for k in range(pilots)]
    went: list[int] = []
    ends: list[tuple[int, int]] = [(0, k) for k in range(pilots)]
    answers: dict[int, Answer] = {}
    now = 0
    while ends:
        now, k = heapq.heappop(ends)
        ended = [end(answers.pop(k))] if k in answers else []
        if len(went) == len(times):
            hands[k].sync(0, ended)
            continue
        answer = answers[k] = hands[k].ask(1, ended)
        [task] = answer.tasks
        went.append(task.task)
        heapq.heappush(ends, (now + times[task.task], k))
    return went, now


@given(times=seconds, pilots=st.integers(1, 3))
def test_tasks_go_out_by_their_time_then_by_number(times: list[int], pilots: int) -> None:
    went, _ = a_run(times, pilots, "long-first")
    assert went == sorted(range(len(times)), key=lambda task: (-times[task], task))


@given(times=seconds, pilots=st.integers(1, 3))
def test_the_given_order_is_kept(times: list[int], pilots: int) -> None:
    went, _ = a_run(times, pilots, "given")
    assert went == list(range(len(times)))


@given(times=seconds, pilots=st.integers(1, 3))
def test_no_bag_takes_a_third_longer_than_it_must(times: list[int], pilots: int) -> None:
    """Graham's bound for the longest first."""
    best = min(
        max(sum(t for t, k in zip(times, places, strict=True) if k == one) for one in range(pilots))
        for places in product(range(pilots), repeat=len(times))
    )
    _, took = a_run(times, pilots, "long-first")
    assert took <= (4 / 3 - 1 / (3 * pilots)) * best


def test_what_one_long_task_at_the_end_costs() -> None:
    times = [*[4] * 20, 20]
    assert a_run(times, 4, "given")[1] == 40
    assert a_run(times, 4, "long-first")[1] == 28
