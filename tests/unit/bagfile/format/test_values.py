"""The grammar of a parameter's values."""

from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.bagfile.format.values import LONGEST_LIST, parse_values
from covey.core.errors import InvalidBag
from covey.core.values import space
from covey.core.values.scalars import scalar
from covey.core.values.space import Axis, Range, Scalar, Values


def listed(text: str) -> list[Scalar]:
    axis = Axis("x", parse_values(text))
    point = space.indexer(axis)
    return [point(index)[0] for index in range(space.size(axis))]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1..5", [1, 2, 3, 4, 5]),
        ("1..10..2", [1, 3, 5, 7, 9]),
        ("1..9..2", [1, 3, 5, 7, 9]),
        ("5..1", [5, 4, 3, 2, 1]),
        ("10..1..4", [10, 6, 2]),
        ("10..1..-4", [10, 6, 2]),
        ("-2..2", [-2, -1, 0, 1, 2]),
        ("+1..+2", [1, 2]),
        ("3..3", [3]),
        ("0..1..0.25", [0.0, 0.25, 0.5, 0.75, 1.0]),
        ("0..0.3..0.1", [0.0, 0.1, 0.2, 0.3]),
        ("0..1..0.3", [0.0, 0.3, 0.6, 0.9]),
        ("1e-2..3e-2..1e-2", [0.01, 0.02, 0.03]),
        ("0.5..2.5", [0.5, 1.5, 2.5]),
        ("08..11", ["08", "09", "10", "11"]),
        ("01..03..2", ["01", "03"]),
        ("a,b,c", ["a", "b", "c"]),
        ("a", ["a"]),
        ("7", [7]),
        ("1,2.5,x,1e3,007,1.50", [1, 2.5, "x", "1e3", "007", "1.50"]),
        ("1..3,10,20..21", [1, 2, 3, 10, 20, 21]),
        (r"a\,b,c", ["a,b", "c"]),
        ("'a,b',\"c,d\"", ["a,b", "c,d"]),
        ("''", [""]),
        ("'1..3'", ["1..3"]),
        (" a , b ", ["a", "b"]),
        ("' a '", [" a "]),
        ("it's", ["it's"]),
        (r"\@x", ["@x"]),
        ("../data", ["../data"]),
        ("a=b", ["a=b"]),
        ("nan,inf", ["nan", "inf"]),
        (str(2**70), [str(2**70)]),
    ],
)
def test_meaning(text: str, expected: list[Scalar]) -> None:
    assert listed(text) == expected
    assert [type(value) for value in listed(text)] == [type(value) for value in expected]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "empty"),
        ("a,,b", "empty"),
        ("a,", "empty"),
        ("1..", "not a range"),
        ("1..x", "not a range"),
        ("1..2..3..4", "not a range"),
        ("1..5..0", "zero"),
        ("1..5..-1", "leads away"),
        ("'abc", "never closed"),
        ("1..99999999999", "than a bag can hold"),
        ("1..200000,x", "may have at most 100,000"),
        ("000001..200000", "may have at most 100,000"),
        ("01..10..0.5", "whole step"),
        ("@/no/such/file", "No such file"),
    ],
)
def test_refusals_say_why(text: str, told: str) -> None:
    with pytest.raises(InvalidBag, match=told):
        parse_values(text)


def test_a_range_costs_nothing() -> None:
    assert parse_values("1..1000000000") == Range("1", "1", 1_000_000_000)


@given(st.integers(-1000, 1000), st.integers(-1000, 1000), st.integers(1, 50))
def test_whole_ranges_include_both_ends(first: int, last: int, step: int) -> None:
    stop, stride = (last + 1, step) if last >= first else (last - 1, -step)
    assert listed(f"{first}..{last}..{step}") == list(range(first, stop, stride))


@given(st.integers(-500, 500), st.integers(0, 200), st.integers(1, 99))
def test_decimal_ranges_are_exact(first: int, count: int, step: int) -> None:
    start, stride = Decimal(first) / 100, Decimal(step) / 100
    end = start + count * stride
    found = listed(f"{start:f}..{end:f}..{stride:f}")
    assert len(found) == count + 1 if end != start else len(found) == 1
    assert [float(value) for value in found] == [
        float(start + index * stride) for index in range(len(found))
    ]


@given(st.lists(st.text(min_size=1), min_size=1))
def test_escaped_text_comes_back(texts: list[str]) -> None:
    written = ",".join("".join("\\" + char for char in text) for text in texts)
    assert parse_values(written) == Values(tuple(texts))


@given(st.lists(st.text(st.characters(exclude_characters='"\\')), min_size=1))
def test_quoted_text_comes_back(texts: list[str]) -> None:
    written = ",".join(f'"{text}"' for text in texts)
    assert parse_values(written) == Values(tuple(texts))


@given(st.text())
def test_scalars_never_change(text: str) -> None:
    assert str(scalar(text)) == text


@given(st.text())
def test_nothing_but_invalid_bag_is_raised(text: str) -> None:
    try:
        parse_values(text)
    except InvalidBag:
        pass


def test_a_file_gives_its_lines(tmp_path: Path) -> None:
    file = tmp_path / "files.txt"
    file.write_text("a b,c\n\n1..3\r\n5\n")
    assert parse_values(f"@{file}") == Values(("a b,c", "1..3", 5))


def test_a_long_file_is_refused_with_a_hint(tmp_path: Path) -> None:
    file = tmp_path / "files.txt"
    file.write_text("x\n" * (LONGEST_LIST + 1))
    with pytest.raises(InvalidBag, match="--lines FILE"):
        parse_values(f"@{file}")


@pytest.mark.parametrize("content", [b"", b"\n\n", b"\xff\n"])
def test_a_useless_file_is_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "files.txt"
    file.write_bytes(content)
    with pytest.raises(InvalidBag, match=r"files\.txt"):
        parse_values(f"@{file}")


def test_a_file_is_looked_for_in_its_directory(tmp_path: Path) -> None:
    (tmp_path / "v.txt").write_text("a\n")
    assert parse_values("@v.txt", str(tmp_path)) == Values(("a",))
