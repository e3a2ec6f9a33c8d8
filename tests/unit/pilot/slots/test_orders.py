"""Whole values cross a line, however the bytes are cut."""

import socket

from covey.pilot.slots.orders import Order, Outcome, ValueSocket


def lines() -> tuple[ValueSocket, ValueSocket]:
    ours, theirs = socket.socketpair()
    return ValueSocket(ours), ValueSocket(theirs)


def test_values_arrive_whole_and_in_order() -> None:
    ours, theirs = lines()
    values = [tuple(Order("1.2", 3, ["a", "\udcff"], {"A": "é"}, 1.5)), None, [b"\0", -1], "x"]
    for value in values:
        ours.send(value)
    assert theirs.receive() == values
    assert theirs.receive() == []
    assert not theirs.closed


def test_half_a_value_waits_for_the_rest() -> None:
    ours, theirs = lines()
    ours.send("small")
    ours.send(b"x" * 3_000_000)
    assert ours.unsent
    found = theirs.receive()
    assert found == ["small"]
    assert theirs.unread
    while len(found) < 2:
        ours.flush()
        found += theirs.receive()
    assert found[1] == b"x" * 3_000_000
    assert not theirs.unread
    assert not ours.unsent


def test_what_was_sent_before_the_end_is_still_read() -> None:
    ours, theirs = lines()
    ours.send("last words")
    ours.close()
    found = theirs.receive() + theirs.receive()
    assert found == ["last words"]
    assert theirs.closed
    theirs.send("nobody hears")
    assert theirs.flush()


def test_an_outcome_needs_only_a_key_and_a_kind() -> None:
    outcome = Outcome("k", "returned")
    assert outcome[2:15] == (-1, 0, 0.0, 0.0, 0, 0.0, b"", b"", 0, 0, "", "", "")
    assert outcome[15:] == ([], ())


def test_what_is_left_for_later_goes_with_the_next() -> None:
    ours, theirs = lines()
    shared = ["same"]
    for number in range(3):
        ours.send((number, shared), later=True)
    assert theirs.receive() == []
    ours.send("now")
    assert theirs.receive() == [(0, shared), (1, shared), (2, shared), "now"]
    ours.send("last", later=True)
    assert ours.flush()
    assert theirs.receive() == ["last"]
