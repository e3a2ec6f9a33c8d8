"""Whoever is watched is heard, in whole characters and not too loudly."""

from covey.pilot.protocol.held_attempts import Holding
from covey.pilot.protocol.live_output import INTERVAL_SECONDS, RATE_BYTES, Follower
from covey.pilot.protocol.messages import Body, Followed, Piece, Task


class Desk:
    def __init__(self) -> None:
        self.printed: dict[tuple[str, int], bytes] = {}
        self.follower = Follower(self.read)
        self.holding: dict[str, Holding] = {}
        self.now = 10.0

    def read(self, key: str, stream: int, start: int, most: int) -> bytes:
        return self.printed.get((key, stream), b"")[start : start + most]

    def add(self, task: int, bag: int = 1, started: bool = True) -> str:
        key = f"1.{task}"
        self.holding[key] = Holding(1, Body(bag, ["x"], []), Task(task, bag, task, []), 0.0, 1)
        self.holding[key].started = started
        return key

    def pieces(self, *followed: Followed) -> list[Piece]:
        self.now += INTERVAL_SECONDS
        return self.follower.pieces(self.now, followed, self.holding)


def test_only_what_is_new_of_those_who_are_followed() -> None:
    desk = Desk()
    one, other = desk.add(1), desk.add(2)
    desk.add(3, started=False)
    desk.printed = {(one, 1): b"a\n", (one, 2): b"oh\n", (other, 1): b"b\n", ("1.3", 1): b"c"}
    watch = Followed(1, 1)
    assert desk.pieces(watch) == [
        Piece(1, 1, 1, 1, 1, 0, "a\n"),
        Piece(1, 1, 1, 1, 2, 0, "oh\n"),
    ]
    assert desk.pieces(watch) == []
    desk.printed[one, 1] += b"more\n"
    assert desk.pieces(watch) == [Piece(1, 1, 1, 1, 1, 2, "more\n")]
    assert [piece.task for piece in desk.pieces(Followed(1, -1))] == [2]
    assert desk.pieces() == []


def test_it_waits_for_its_time_and_for_the_last_answer() -> None:
    desk = Desk()
    key = desk.add(1)
    desk.printed[key, 1] = b"a"
    watch = [Followed(1, -1)]
    assert desk.pieces(*watch)
    desk.printed[key, 1] = b"ab"
    assert desk.follower.pieces(desk.now + 0.01, watch, desk.holding) == []
    desk.follower.waiting = True
    assert desk.pieces(*watch) == []
    assert desk.follower.wake_at(desk.now, watch) > desk.now + 0.5
    desk.follower.waiting = False
    assert desk.pieces(*watch)
    assert desk.follower.wake_at(desk.now, watch) == desk.now + INTERVAL_SECONDS


def test_no_character_is_cut_in_two() -> None:
    desk = Desk()
    key = desk.add(1)
    text = "aä€𝄞"
    heard = ""
    for end in range(1, len(text.encode()) + 1):
        desk.printed[key, 1] = text.encode()[:end]
        heard += "".join(piece.text for piece in desk.pieces(Followed(1, 1)))
    assert heard == text


def test_what_is_no_text_passes_too() -> None:
    desk = Desk()
    key = desk.add(1)
    desk.printed[key, 1] = b"\x80\x80\x80\x80\x80x"
    (piece,) = desk.pieces(Followed(1, 1))
    assert piece.text == "\ufffd" * 5 + "x"


def test_what_was_given_up_is_passed_over() -> None:
    desk = Desk()
    key = desk.add(1)
    desk.printed[key, 1] = b"head\n" + bytes(1_000_000) + b"tail\n"
    watch = Followed(1, 1)
    heard = [desk.pieces(watch) for _ in range(3)]
    assert [(piece.start, piece.text) for pieces in heard for piece in pieces] == [
        (0, "head\n"),
        (1_000_005, "tail\n"),
    ]


def test_much_is_sent_bit_by_bit() -> None:
    desk = Desk()
    for task in (1, 2):
        desk.printed[desk.add(task), 1] = b"x" * (1 << 20)
    sent = 0
    for _ in range(4):
        sent += sum(len(piece.text) for piece in desk.pieces(Followed(1, -1)))
    assert sent == RATE_BYTES
