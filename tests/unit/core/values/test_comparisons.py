"""Comparisons as people write them; tests/contract/test_results.py has what they find."""

import pytest

from covey.core.errors import InvalidQuery
from covey.core.values.columns import Column, ColumnKind
from covey.core.values.comparisons import MOST_COMPARISONS, understand
from covey.core.values.scalars import Reading

TABLE = [
    Column(name, ColumnKind.PARAMETER, name, place, Reading.VALUE)
    for place, name in enumerate(("alpha", "model"))
]


@pytest.mark.parametrize(
    ("where", "apart"),
    [
        ("alpha > 0 && alpha < 3", ("alpha > 0", "alpha < 3")),
        ("alpha>0&&model=m&&alpha!=2", ("alpha>0", "model=m", "alpha!=2")),
        ("model = 'm' && alpha in 0, 1.5", ("model = 'm'", "alpha in 0, 1.5")),
        ('alpha = 1 && model != "a && b"', ("alpha = 1", 'model != "a && b"')),
        ("model in 'a && b','m'&&alpha=1", ("model in 'a && b','m'", "alpha=1")),
        ("model = it's && alpha = 1", ("model = it's", "alpha = 1")),
    ],
)
def test_joined(where: str, apart: tuple[str, ...]) -> None:
    assert understand([where], TABLE) == understand(apart, TABLE)
    assert len(understand([where], TABLE)) == len(apart)


@pytest.mark.parametrize(
    "where", ["alpha = 1 && good", "alpha > 1 &&", "&& alpha > 1", "alpha > 1 && && alpha < 4"]
)
def test_what_is_joined_must_be_comparisons(where: str) -> None:
    with pytest.raises(InvalidQuery, match="is not a comparison"):
        understand([where], TABLE)


def test_joined_ones_are_counted() -> None:
    with pytest.raises(InvalidQuery, match="at most 100 comparisons"):
        understand([" && ".join(["alpha = 1"] * (MOST_COMPARISONS + 1))], TABLE)
