"""Amounts as people write them, and what is said of those that are none."""

import pytest

from covey.core.values.amounts import Amount, BadAmount, Seconds, Size, Whole, show

WHOLE, SECONDS, SIZE = Whole(1, 1000), Seconds(), Size("m", "1 TB")


@pytest.mark.parametrize(
    ("kind", "text", "amount"),
    [
        (WHOLE, "4", 4),
        (WHOLE, " 4.0 ", 4),
        (SECONDS, "90", 90.0),
        (SECONDS, "1h30m", 5400.0),
        (SIZE, "2 GB", 2048),
        (SIZE, "1.5gib", 1536),
        (SIZE, "1 kB", 1),
    ],
)
def test_text_is_taken_by_what_it_is_worth(kind: Amount, text: str, amount: float) -> None:
    assert kind.read_text(text) == amount


@pytest.mark.parametrize(
    ("kind", "value", "words"),
    [
        (WHOLE, True, "not true"),
        (WHOLE, 1.5, "not 1.5"),
        (WHOLE, 1001, "from 1 to 1,000, not 1,001"),
        (SECONDS, "soon", "expected a time"),
        (SECONDS, -1, "out of range"),
        (SIZE, 500, "'500 MB' or '500 GB'"),
        (SIZE, "500", "a size needs its unit"),
        (SIZE, "2 TB", "up to 1 TB"),
        (SIZE, "much", "such as '500 MB'"),
    ],
)
def test_what_is_no_amount_is_told(kind: Amount, value: object, words: str) -> None:
    with pytest.raises(BadAmount, match=words):
        kind.read(value)


def test_values_in_messages_are_short() -> None:
    values: list[object] = [True, {}, [], 3, "x"]
    assert list(map(show, values)) == ["true", "a table", "a list", "3", "'x'"]
    assert len(show("x" * 1000)) < 70
