"""How alike two orders are."""

import pytest

from bench.ranks import share_in_order, tau


def test_tau_of_the_same_order_of_the_reverse_and_of_one_that_is_nearly_it() -> None:
    assert tau([1.0, 2.0, 3.0, 4.0]) == 1.0
    assert tau([4.0, 3.0, 2.0, 1.0]) == -1.0
    assert tau([2.0, 1.0, 3.0, 4.0]) == pytest.approx(4 / 6)


def test_a_tie_is_for_neither_and_not_in_order() -> None:
    assert tau([1.0, 1.0, 2.0]) == pytest.approx(2 / 3)
    assert share_in_order([1.0, 1.0, 2.0]) == pytest.approx(2 / 3)
