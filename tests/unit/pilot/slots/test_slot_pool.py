"""How slots are filled and heard, with somebody else at the other ends of their lines."""

import os
import select
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from covey.pilot.slots.orders import Order, Outcome, Plan, ValueSocket
from covey.pilot.slots.slot_pool import Slots

SHORT = 0.01  # seconds that a task takes


class Desk:
    """Two slots, and the ends of their lines that their processes would have."""

    def __init__(self, directory: Path) -> None:
        self.slots = Slots(str(directory), 2)
        self.slots.plan(Plan(1, {}))
        self.ends: list[ValueSocket] = []
        self.controls: list[ValueSocket] = []
        self.offered = 0
        for seat in self.slots._seats:
            ours, theirs = socket.socketpair()
            seat.orders = ValueSocket(ours)
            self.slots._by_fd[seat.orders.fileno()] = seat
            self.slots._poll.register(seat.orders, select.POLLIN)
            self.ends.append(ValueSocket(theirs))
            ours, theirs = socket.socketpair()
            seat.control = ValueSocket(ours)
            self.controls.append(ValueSocket(theirs))

    def close(self) -> None:
        for seat in self.slots._seats:
            for line in (seat.orders, seat.control):
                assert line is not None
                line.close()
        for line in self.ends + self.controls:
            line.close()

    def fill(self) -> int:
        """How many orders went in."""
        before = self.offered
        while self.slots.free():
            self.offered += 1
            assert self.slots.offer(Order(f"1.{self.offered}", 1, ["true"]))
        return self.offered - before

    def report(self, index: int, count: int) -> None:
        """The slot is through with its first ones."""
        seat = self.slots._seats[index]
        done = list(seat.inside.items())[:count]
        self.ends[index].send(
            [
                (number, tuple(Outcome(order.key, "ok", wall_seconds=SHORT, started=1.0)))
                for number, order in done
            ]
        )

    def warm_up(self) -> None:
        """Until it is known that tasks are short, and both slots are full of them."""
        for _ in range(40):
            self.fill()
            for index in (0, 1):
                self.report(index, 2)
            self.slots.read()
        self.fill()

    def room(self) -> int:
        return sum(max(0, seat.depth - len(seat.inside)) for seat in self.slots._seats)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    made = Desk(tmp_path / "slots")
    yield made
    made.close()


class Elsewhere:
    """Stands in for what is listened to besides slots: nothing is heard there."""

    def __init__(self) -> None:
        self.asked = 0

    def poll(self, _: float) -> list[tuple[int, int]]:
        self.asked += 1
        return []


@pytest.fixture
def elsewhere(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> Elsewhere:
    """The desk is warm."""
    desk.warm_up()
    made = Elsewhere()
    monkeypatch.setattr(desk.slots, "_elsewhere", made)
    return made


def test_reports_of_busy_slots_are_heard_together(desk: Desk, elsewhere: Elsewhere) -> None:
    desk.report(0, 3)
    desk.report(1, 4)
    desk.slots.wait(1.0)
    assert elsewhere.asked == 1
    assert len(desk.slots.read()) == 7


def test_a_slot_with_little_to_do_is_heard_at_once(desk: Desk, elsewhere: Elsewhere) -> None:
    few = len(desk.slots._seats[1].inside) - 2
    desk.report(1, few)
    assert len(desk.slots.read()) == few
    desk.report(0, 1)
    desk.slots.wait(1.0)
    assert elsewhere.asked == 0
    assert len(desk.slots.read()) == 1


def test_what_is_listened_to_ends_a_wait_of_busy_slots(desk: Desk) -> None:
    desk.warm_up()
    ours, theirs = os.pipe()
    try:
        desk.slots.listen(ours)
        os.write(theirs, b"x")
        desk.slots.wait(60.0)
        assert [fd for fd, _ in desk.slots._rung or ()] == [ours]
        assert desk.slots.read() == []
    finally:
        os.close(ours)
        os.close(theirs)


def test_what_is_free_is_known_through_all_that_happens(desk: Desk) -> None:
    assert desk.slots.free() == desk.room() == 4
    assert desk.fill() == 4
    assert desk.slots.free() == desk.room() == 0
    desk.report(0, 1)
    assert len(desk.slots.read()) == 1
    assert desk.slots.free() == desk.room() == 1
    desk.warm_up()
    assert desk.slots.free() == desk.room() == 0
    desk.report(1, 5)
    desk.slots.read()
    assert desk.slots.free() == desk.room() > 4  # it holds more, too, the shorter its tasks are


def test_who_has_ended_most_gets_most(desk: Desk) -> None:
    desk.warm_up()
    desk.report(0, 2)
    desk.report(1, 6)
    desk.slots.read()
    desk.fill()
    first, second = (len(seat.inside) for seat in desk.slots._seats)
    assert abs(first - second) <= 1
