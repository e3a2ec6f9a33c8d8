"""The rings behind live output: bounded in every way, and gone when nobody looks."""

import pytest

from covey.pilot.protocol.messages import Piece
from covey.server.limits import tails
from covey.server.limits.tails import KEEP_SECONDS, PIECE_BYTES, Tails


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def piece(text: str, bag: int = 1, task: int = 0) -> Piece:
    return Piece(bag, task, 1, 1, 1, 0, text)


def kept(found: Tails, bag: int = 1) -> list[str]:
    return [one.text for one in found.read(bag, -1, 0).pieces]


def test_numbers_grow_and_name_what_was_seen() -> None:
    found = Tails(Clock(), first=500)
    found.follow(1)
    found.feed([piece("a"), piece("b", task=1)])
    seen = found.read(1, 1, 0)
    assert (seen.next, [one.text for one in seen.pieces]) == (502, ["b"])
    assert found.read(1, -1, 501).pieces == [piece("b", task=1)]
    assert found.read(1, -1, 502).next == 502
    assert found.read(1, -1, 10**9).pieces, "a later server's numbers may be lower"
    assert found.read(2, -1, 7).next == 7


def test_a_bag_keeps_so_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tails, "MOST_OF_A_BAG", 3 * (PIECE_BYTES + 10))
    found = Tails(Clock(), 0)
    found.follow(1)
    found.feed(piece(f"number {n:03}") for n in range(10))
    assert kept(found) == ["number 007", "number 008", "number 009"]
    found.feed([piece("x" * 10_000)])
    assert kept(found) == [], "too large by itself"


def test_letters_count_as_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tails, "MOST_OF_A_BAG", PIECE_BYTES + 10)
    found = Tails(Clock(), 0)
    found.follow(1)
    found.feed([piece("é" * 5)])
    assert len(kept(found)) == 1
    found.feed([piece("é" * 6)])
    assert kept(found) == []


def test_all_together_keep_so_much_the_least_followed_giving_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tails, "MOST_IN_ALL", 3 * (PIECE_BYTES + 1))
    found = Tails(Clock(), 0)
    for bag in (1, 2, 3):
        found.follow(bag)
    found.feed(piece("x", bag=bag) for bag in (1, 2, 3))
    found.follow(1)
    found.feed([piece("y", bag=3)])
    assert [kept(found, bag) for bag in (1, 2, 3)] == [["x"], [], ["x", "y"]]


def test_rings_vanish_after_their_last_follower() -> None:
    clock = Clock()
    found = Tails(clock, 0)
    found.follow(1)
    found.follow(2)
    found.feed([piece("a"), piece("b", bag=2)])
    clock.now += KEEP_SECONDS - 1
    found.follow(1)
    clock.now += 2
    assert found.followed()
    assert (kept(found, 1), kept(found, 2)) == (["a"], [])
    found.feed([piece("c", bag=2)])
    assert kept(found, 2) == []
    clock.now += KEEP_SECONDS
    assert not found.followed()
    found.feed([piece("d")])
    assert kept(found) == []
    assert found._size == 0


def test_news_are_told_once() -> None:
    found = Tails(Clock(), 0)
    first, other = found.follow(1), found.follow(2)
    found.feed([piece("a")])
    assert first.is_set()
    assert not other.is_set()
    assert not found.follow(1).is_set()


def test_whoever_follows_most_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """One who follows many bags does not take the output of another's away."""
    monkeypatch.setattr(tails, "MOST_IN_ALL", 4 * (PIECE_BYTES + 1))
    found = Tails(Clock(), 0)
    found.follow(1, "alice")
    found.feed([piece("x", bag=1)])
    for bag in range(2, 10):
        found.follow(bag, "mallory")
        found.feed([piece("y", bag=bag)])
    assert kept(found, 1) == ["x"]
    assert [bag for bag in range(2, 10) if kept(found, bag)] == [7, 8, 9]
