"""Ends of one pilot agree with each other, however long messages take."""

from itertools import pairwise
from random import Random

from covey.core.state.pilot_clock import MOST_LATE, PilotClock


def test_delays_of_messages_do_not_show() -> None:
    random, clock = Random(1), PilotClock()
    clock.time_of(10.0, 1010.0005)  # the first syncs carry no ends
    times = []
    for number in range(1000):
        at = 11.0 + 0.01 * number
        arrived = 1000.0 + at + 0.0005 + random.random() * 0.1
        times.append((at, clock.time_of(at, arrived)))
        assert times[-1][1] <= arrived
    for (at, told), (later, then) in pairwise(times):
        assert abs((then - told) - (later - at)) <= 0.001


def test_a_sync_that_is_sent_again_much_later_keeps_its_time() -> None:
    clock = PilotClock()
    clock.time_of(10.0, 1010.0)
    assert abs(clock.time_of(11.0, 1041.0) - 1011.0) < 0.001
    assert abs(clock.time_of(41.5, 1041.5) - 1041.5) < 0.001


def test_a_clock_that_has_jumped_is_believed_after_some_syncs() -> None:
    clock = PilotClock()
    clock.time_of(10.0, 1010.0)
    told = [clock.time_of(11.0 + number, 5011.0 + number) for number in range(MOST_LATE + 2)]
    assert told[-1] == 5011.0 + MOST_LATE + 1
    back = clock.time_of(100.0, 600.0)
    assert back == 600.0


def test_who_says_nothing_is_dated_by_arrival() -> None:
    assert PilotClock().time_of(0.0, 5.0) == 5.0
