"""Receipts say what was given to whom, and nobody but the server can write one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.core.protocol import receipts
from covey.core.record.attempts import Attempt
from covey.core.record.model import AttemptId, BagId, PilotId, TaskNumber

KEY = receipts.derived_key("a master secret")
PILOT = "0123456789abcdef"


def attempt(sequence: int, bag: int, task: int, epoch: int = 3) -> Attempt:
    return Attempt(AttemptId(epoch, sequence), BagId(bag), TaskNumber(task), PilotId(1), 0.0)


ROWS = st.lists(st.tuples(st.integers(1, 30), st.integers(1, 3), st.integers(0, 30)), max_size=20)


@given(ROWS)
def test_what_is_written_is_read(rows: list[tuple[int, int, int]]) -> None:
    rows = list({row[0]: row for row in rows}.values())
    text = receipts.write(KEY, PILOT, [attempt(*row) for row in rows])
    expected = {(3, sequence): (bag, task) for sequence, bag, task in rows}
    assert receipts.read(KEY, PILOT, [text]) == expected


def test_neighbours_take_no_room() -> None:
    text = receipts.write(KEY, PILOT, [attempt(10 + n, 2, 500 + n) for n in range(1000)])
    assert text.startswith("3|10.2.500.1000|")
    assert len(receipts.read(KEY, PILOT, [text])) == 1000


def test_a_receipt_that_is_shown_again_costs_nothing() -> None:
    """A pilot may show as many as it likes: what they list is not counted out for each of them."""
    text = receipts.write(KEY, PILOT, [attempt(10 + n, 2, 500 + n) for n in range(1000)])
    found = receipts.read(KEY, PILOT, [text] * 100_000)
    assert sum(len(runs) for runs in found._runs.values()) == 1
    assert found.get((3, 10)) == (2, 500)
    assert found.get((3, 1009)) == (2, 1499)
    assert found.get((3, 9)) is found.get((3, 1010)) is found.get((2, 10)) is None


def test_no_attempts_no_receipt() -> None:
    assert receipts.write(KEY, PILOT, []) == ""


TRUE = receipts.write(KEY, PILOT, [attempt(5, 2, 7)])
LISTED, _, SEAL = TRUE.rpartition("|")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "|",
        "||",
        LISTED,
        SEAL,
        f"|{SEAL}",
        f"3|5.2.8.1|{SEAL}",  # another task
        f"3|5.2.7.2|{SEAL}",  # one more
        f"2|5.2.7.1|{SEAL}",  # an older epoch
        f"{LISTED},6.2.8.1|{SEAL}",
        f"{LISTED}|{SEAL[:-1]}",
        f"{LISTED}|{SEAL.upper()}",
        f"{LISTED}|{'0' * 32}",
        f"{LISTED}|{'é' * 32}",
        f"{LISTED}|\ud800{'0' * 31}",
        f"\ud800|{SEAL}",
        f"\n{TRUE}",
    ],
)
def test_what_was_changed_says_nothing(text: str) -> None:
    assert receipts.read(KEY, PILOT, [text]) == {}
    assert receipts.read(KEY, PILOT, [text, TRUE]) == {(3, 5): (2, 7)}


@pytest.mark.parametrize("other", ["", PILOT[:-1], PILOT + "\n", "\n" + PILOT, "0" * 16])
def test_a_receipt_is_one_pilots(other: str) -> None:
    assert receipts.read(KEY, other, [TRUE]) == {}


@pytest.mark.parametrize("other", [b"", receipts.derived_key("another master secret")])
def test_a_receipt_is_one_servers(other: bytes) -> None:
    assert receipts.read(other, PILOT, [TRUE]) == {}
