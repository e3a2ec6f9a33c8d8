"""Who may come in, by how much there is to do."""

from random import Random

import pytest

from covey.server.web.load import (
    EARLY_SECONDS,
    FIRST_RATE,
    FORGET_SECONDS,
    LEAST_RATE,
    LEAST_SHARE,
    LONGEST_SECONDS,
    MOST_RATE,
    SAMPLE_SECONDS,
    Bounds,
    Load,
    RequestKind,
    Sample,
    half_of_memory,
    memory,
)

BOUNDS = Bounds(lag_seconds=0.3, writes=1000, bytes=1 << 20, waiting=500, memory=1 << 30)
QUIET = Sample(0.0, 0, 0, 0, 0)
PILOTS = (RequestKind.ENROL, RequestKind.ASK, RequestKind.ENDS)


class Gate:
    """A load with a clock."""

    def __init__(self) -> None:
        self.load = Load(BOUNDS, Random(1))
        self.now = 1000.0

    def sample(self, times: int = 1, **values: float) -> None:
        for _ in range(times):
            self.now += SAMPLE_SECONDS
            sample = QUIET._replace(**values)  # type: ignore[arg-type]
            self.load.sampled(sample, SAMPLE_SECONDS, self.now)

    def admits(self) -> list[RequestKind]:
        """Which kinds may come in, of somebody who was never there."""
        return [kind for kind in RequestKind if not self.load.admit(kind, object(), self.now)]


def test_with_nothing_to_do_everybody_comes_in() -> None:
    gate = Gate()
    gate.sample(3)
    assert gate.admits() == list(RequestKind)
    assert gate.load.level == 0
    assert gate.load.calm


@pytest.mark.parametrize(
    "much",
    [{"lag_seconds": 0.4}, {"writes": 1100}, {"bytes": 1_200_000}, {"waiting": 600},
     {"memory": int(0.82 * (1 << 30))}],
    ids=lambda one: next(iter(one)),
)  # fmt: skip
def test_enrolments_wait_first(much: dict[str, float]) -> None:
    gate = Gate()
    gate.sample(4, **much)
    assert gate.load.level == 1
    assert gate.admits() == [RequestKind.ASK, RequestKind.ENDS, RequestKind.PEOPLE]


@pytest.mark.parametrize(
    "much", [{"lag_seconds": 0.7}, {"writes": 2100}, {"waiting": 1100}], ids=str
)
def test_then_syncs_that_bring_nothing(much: dict[str, float]) -> None:
    gate = Gate()
    gate.sample(4, **much)
    assert gate.load.level == 2
    assert gate.admits() == [RequestKind.ENDS, RequestKind.PEOPLE]


@pytest.mark.parametrize("much", [{"memory": 1 << 30}, {"bytes": 5 << 20}], ids=str)
def test_ends_wait_only_when_memory_runs_out(much: dict[str, float]) -> None:
    gate = Gate()
    gate.sample(4, lag_seconds=9.0, writes=10**6)
    assert RequestKind.ENDS in gate.admits()
    gate.sample(4, **much)
    assert gate.admits() == [RequestKind.PEOPLE]


def test_a_level_is_left_later_than_it_was_entered() -> None:
    gate = Gate()
    gate.sample(2, writes=1000)
    assert gate.load.level == 1
    gate.sample(2, writes=600)
    assert gate.load.level == 1
    gate.sample(2, writes=400)
    assert gate.load.level == 0


def test_one_hiccup_is_no_overload() -> None:
    gate = Gate()
    gate.sample(lag_seconds=0.5)
    assert gate.load.level == 0


def test_a_stampede_is_served_in_the_order_in_which_it_came() -> None:
    """Each comes back exactly when told; nobody who came later gets in before."""
    gate = Gate()
    gate.sample(4, writes=1500)
    came = list(range(600))
    due = [(gate.load.admit(RequestKind.ENROL, one, gate.now), one) for one in came]
    assert all(wait > 0 for wait, _ in due)
    coming = [(gate.now + wait, one) for wait, one in due]
    served: list[int] = []
    last, tries = 0.0, 0
    while coming:
        coming.sort()
        gate.now, one = coming.pop(0)
        tries += 1
        if gate.now > last + SAMPLE_SECONDS:
            last = gate.now
            gate.load.sampled(QUIET, SAMPLE_SECONDS, gate.now)  # there is room again
        wait = gate.load.admit(RequestKind.ENROL, one, gate.now)
        if wait:
            coming.append((gate.now + wait, one))
        else:
            served.append(one)
            late = object()
            assert not coming or gate.load.admit(RequestKind.ENROL, late, gate.now) > 0
    assert sorted(served) == came
    places = [abs(place - one) for place, one in enumerate(served)]
    assert max(places) <= 12, "the spread moves one by a few places, no more"
    assert tries < 2 * len(came)


def test_the_wait_grows_with_the_line_up_to_a_bound() -> None:
    gate = Gate()
    gate.sample(4, writes=1500)
    rate = gate.load.lines[RequestKind.ENROL].rate
    waits = [gate.load.admit(RequestKind.ENROL, one, gate.now) for one in range(40_000)]
    assert waits[0] < 0.2
    assert waits[1000] == pytest.approx(1000 / rate, rel=0.1)
    assert max(waits) <= LONGEST_SECONDS + 1.0
    first, again = (
        gate.load.lines[RequestKind.ENROL],
        gate.load.admit(RequestKind.ENROL, 500, gate.now),
    )
    assert again == pytest.approx(waits[500], abs=0.05), "who comes early keeps its place"
    assert len(first) == 40_000


def test_who_must_wait_longer_keeps_its_place() -> None:
    gate = Gate()
    gate.sample(4, writes=1500)
    line = gate.load.lines[RequestKind.ENROL]
    for one in range(300):
        gate.load.admit(RequestKind.ENROL, one, gate.now)
    gate.sample(40, writes=1500)  # it went on: all slots have passed, and few may pass
    assert line.rate == LEAST_RATE
    waits = [gate.load.admit(RequestKind.ENROL, one, gate.now) for one in range(300)]
    newcomer = gate.load.admit(RequestKind.ENROL, "new", gate.now)
    assert waits.count(0.0) == pytest.approx(LEAST_RATE * 0.1, abs=1)
    assert newcomer > max(waits) - 2 / LEAST_RATE


def test_the_rate_follows_what_was_served() -> None:
    gate = Gate()
    line = gate.load.lines[RequestKind.ENROL]
    assert line.rate == FIRST_RATE
    for _ in range(4):
        for one in range(100):
            assert not gate.load.admit(RequestKind.ENROL, one, gate.now)
        gate.sample(writes=0)
    for one in range(100):
        gate.load.admit(RequestKind.ENROL, one, gate.now)
    gate.sample(writes=1500)
    assert line.rate == pytest.approx(0.8 * 100 / SAMPLE_SECONDS)
    gate.sample(100, writes=1500)
    assert line.rate == LEAST_RATE
    gate.sample(100)
    assert line.rate == MOST_RATE


def test_who_does_not_come_back_is_forgotten() -> None:
    gate = Gate()
    gate.sample(4, writes=1500)
    gate.load.admit(RequestKind.ENROL, "gone", gate.now)
    assert len(gate.load.lines[RequestKind.ENROL]) == 1
    gate.now += FORGET_SECONDS + 1.0
    gate.sample()
    assert len(gate.load.lines[RequestKind.ENROL]) == 0
    gate.sample(2)
    assert gate.load.calm


def test_one_pilot_cannot_take_the_others_turns() -> None:
    gate = Gate()
    gate.sample(4, writes=1500)  # enrolments wait; syncs are taken
    gate.now = int(gate.now) + 0.1
    greedy = [gate.load.admit(RequestKind.ASK, "greedy", gate.now) for _ in range(1000)]
    modest = [
        gate.load.admit(RequestKind.ASK, one, gate.now) for one in range(100) for _ in range(3)
    ]
    assert greedy.count(0.0) == LEAST_SHARE
    assert not any(modest)
    assert max(greedy) <= 1.0 + EARLY_SECONDS
    gate.now += max(greedy)
    assert gate.load.admit(RequestKind.ASK, "greedy", gate.now) == 0.0


def test_this_process_knows_its_memory() -> None:
    assert 5 << 20 < memory() < half_of_memory() * 2
