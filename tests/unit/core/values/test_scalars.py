"""Text is a number only if nothing is lost by that."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.core.values.scalars import by_value, is_text_column, scalar


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


@pytest.mark.parametrize(
    ("text", "value"),
    [("0.10", 0.1), ("1e-3", 0.001), ("+5", 5), (".5", 0.5), ("5.", 5.0), ("1E5", 1e5), ("-0", 0)],
)
def test_what_a_spelling_is_worth(text: str, value: float) -> None:
    found = by_value(text)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize("text", ["", "007", "1e9999", "nan", "inf", "1_000", "0x10", "9" * 500])
def test_what_is_worth_no_number(text: str) -> None:
    assert by_value(text) == text


@pytest.mark.parametrize(
    "text", ["007", "-01", "2024-05-01", "12:30", "1.2.3", "10GB", "3a7f", "1 000"]
)
def test_what_only_looks_like_a_number_makes_its_column_text(text: str) -> None:
    assert is_text_column([1, text])


def test_words_do_not_make_a_column_text() -> None:
    assert not is_text_column([1, "0.10", "default", "", "nan", "-x"])
