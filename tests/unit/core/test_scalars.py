"""Text is a number only if nothing is lost by that."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.core.scalars import scalar


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1),
        ("-7", -7),
        ("0.5", 0.5),
        ("-0.25", -0.25),
        ("1e-07", 1e-07),
        (str(2**63 - 1), 2**63 - 1),
    ],
)
def test_numbers(text: str, value: float) -> None:
    found = scalar(text)
    assert (found, type(found)) == (value, type(value))


TEXTS = ["", " 1", "1 ", "01", "0.10", "+1", "-0", "-", "1e5", ".5", "1_000", "nan", "inf", "-inf"]


@pytest.mark.parametrize("text", [*TEXTS, "٣", "1e999", str(2**63), "9" * 5000, "9" * 400])
def test_what_stays_text(text: str) -> None:
    assert scalar(text) == text
    assert isinstance(scalar(text), str)


@given(st.text() | st.integers().map(str) | st.floats().map(str))
def test_nothing_is_lost(text: str) -> None:
    assert str(scalar(text)) == text
