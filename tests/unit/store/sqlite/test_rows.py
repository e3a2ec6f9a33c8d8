"""What is packed comes out again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.pilot.protocol import messages
from covey.store.sqlite import rows


@given(st.text(max_size=2000))
def test_texts_come_back(text: str) -> None:
    assert rows.unpack(rows.pack(text)) == text


def test_only_long_texts_are_packed() -> None:
    assert rows.pack("") is None
    assert rows.pack("x" * rows.PACK_ABOVE) == "x" * rows.PACK_ABOVE
    packed = rows.pack("x" * 10_000)
    assert isinstance(packed, bytes)
    assert len(packed) < 100


@pytest.mark.parametrize(
    ("stdout", "line"),
    [
        ("", ""),
        ("\n \n", ""),
        ("one", "one"),
        ("one\ntwo\n\n", "two"),
        ("one\r\ntwo\r\n", "two"),
        (" 10%\r 99%", " 99%"),
        ("x" * 500, "x" * rows.LAST_LINE),
    ],
)
def test_last_line(stdout: str, line: str) -> None:
    assert rows.last_line(stdout) == line


def test_codes_never_change() -> None:
    first = ("ok", "failed", "timeout", "cancelled", "returned", "host", "lost")
    known = (*first, "memory", "output", "setup")
    assert rows.OUTCOMES[: len(known)] == known
    assert {*messages.PILOT_OUTCOMES, messages.LOST} == set(rows.OUTCOMES)
