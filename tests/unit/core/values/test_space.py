"""Parameter spaces: every point is computed, none is listed."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.core.errors import InvalidBag
from covey.core.values.space import (
    ONE_TASK,
    Axis,
    Product,
    Range,
    Space,
    Values,
    Zip,
    check,
    indexer,
    names,
    size,
)


def ints(name: str, start: int, count: int, step: int = 1) -> Axis:
    return Axis(name, Range(str(start), str(step), count))


def points(space: Space) -> list[list[object]]:
    point = indexer(space)
    return [list(point(index)) for index in range(size(space))]


def test_product_is_nested_loops() -> None:
    space = Product((ints("a", 1, 2), Axis("b", Values(("x", "y", "z")))))
    assert points(space) == [[1, "x"], [1, "y"], [1, "z"], [2, "x"], [2, "y"], [2, "z"]]
    assert names(space) == ["a", "b"]


def test_zip_goes_side_by_side() -> None:
    space = Zip((ints("a", 1, 3), Axis("b", Values((0.5, 0.25, 0.125)))))
    assert points(space) == [[1, 0.5], [2, 0.25], [3, 0.125]]


def test_decimal_steps_are_exact() -> None:
    space = Axis("x", Range("0", "0.1", 11))
    assert [values[0] for values in points(space)][3] == 0.3
    assert [values[0] for values in points(space)][10] == 1.0


def test_no_parameters_is_one_task() -> None:
    assert size(ONE_TASK) == 1
    assert points(ONE_TASK) == [[]]


def test_ten_million_points_cost_nothing() -> None:
    space = Product((ints("a", 0, 10_000), ints("b", 0, 1_000)))
    assert size(space) == 10_000_000
    assert indexer(space)(9_999_999) == [9_999, 999]


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4))
def test_product_agrees_with_itertools(sizes: list[int]) -> None:
    space = Product(tuple(ints(f"p{i}", 0, count) for i, count in enumerate(sizes)))
    expected = [list(point) for point in product(*(range(count) for count in sizes))]
    assert points(space) == expected


@pytest.mark.parametrize(
    ("space", "words"),
    [
        (Product((ints("a", 1, 2), ints("a", 1, 2))), "given twice"),
        (ints("a b", 1, 2), "variable name"),
        (Axis("a", Values(())), "describe no task"),
        (Zip((ints("a", 1, 2), ints("b", 1, 3))), "equal lengths: a has 2, b has 3"),
        (Axis("a", Range("one", "1", 3)), "not a number: in a range write"),
        (Axis("a", Range("0", "nan", 3)), "not a number: in a range write"),
        (Axis("a", Range("0", "1", -3)), "has 0 to"),
        (Product((ints("a", 0, 10**6), ints("b", 0, 10**6))), "a bag can have at most"),
    ],
)
def test_what_cannot_be_run_is_refused_with_words(space: Space, words: str) -> None:
    with pytest.raises(InvalidBag, match=words):
        check(space)
