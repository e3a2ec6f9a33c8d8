"""Never more than fits."""

import pytest

from covey.pilot.slots.capacity import Ask, Capacity


def test_light_tasks_are_not_counted() -> None:
    room = Capacity(2, 1000, 1000)
    for number in range(20):
        ask = Ask(1, 500, 500)
        assert room.admits(ask)
        room.take(str(number), ask)


def test_a_heavy_task_waits_until_it_fits_beside_all_that_is_inside() -> None:
    room = Capacity(2, 1000)
    for number in range(4):
        room.take(str(number), Ask())
    heavy = Ask(1, 600)
    assert not room.admits(heavy)
    for number in range(3):
        room.give(str(number))
    assert room.admits(heavy)
    room.take("heavy", heavy)
    assert not room.admits(Ask())
    room.give("3")
    assert room.admits(Ask())
    assert not room.admits(heavy)
    room.give("heavy")
    assert room.admits(heavy)


def test_devices_and_processors_are_given_to_one_only() -> None:
    room = Capacity(4, 0, 0, ["0", "1", "7"], [2, 3, 4, 5])
    first = room.take("a", Ask(1, gpus=2))
    second = room.take("b", Ask(2, gpus=1, pin=True))
    assert (first.gpus, first.processors) == (["0", "1"], [])
    assert (second.gpus, second.processors) == (["7"], [2, 3])
    assert not room.admits(Ask(1, gpus=1))
    assert room.take("c", Ask(1, pin=True)).processors == [4]
    room.give("a")
    room.give("a")
    assert room.take("d", Ask(1, gpus=1)).gpus == ["0"]


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (Ask(3), "it needs 3 cores, this pilot has 2"),
        (Ask(1, 2000), "it needs 2000 MB of memory, this pilot has 1000"),
        (Ask(1, 0, 600), "it needs 600 MB of disk, this pilot has 500"),
        (Ask(1, gpus=2), "it needs 2 GPUs, this pilot has 1"),
        (Ask(2, pin=True), "it needs 2 processors of its own, this pilot has 1"),
        (Ask(2, 1000, 500, 1), ""),
    ],
)
def test_what_never_fits_is_said(ask: Ask, words: str) -> None:
    assert Capacity(2, 1000, 500, ["0"], [0]).never(ask) == words


def test_what_is_not_known_is_not_counted() -> None:
    room = Capacity(1)
    assert room.never(Ask(1, 10**9, 10**9)) == ""
    assert room.admits(Ask(1, 10**9, 10**9))
