"""Patterns of outputs that cannot be are refused when a bag is submitted."""

import re

import pytest

from covey.core.bags import bag_check
from covey.core.errors import InvalidBag
from covey.core.record.model import BagSpec
from covey.core.values.space import Axis, Values
from covey.pilot.files.output_patterns import MOST_PATTERNS

SPACE = Axis("n", Values(("1", "2")))


@pytest.mark.parametrize(
    ("patterns", "words"),
    [
        (("a[b-a]",), "[b-a]: the range b-a is backwards"),
        (("ok", "x/../y"), "leads out"),
        (("x[{other}-{other}]",), "backwards"),  # no parameter: these braces mean themselves
        (("x",) * (MOST_PATTERNS + 1), "1,001 patterns of outputs; at most 1,000 are"),
    ],
)
def test_wrong_patterns(patterns: tuple[str, ...], words: str) -> None:
    for name in ("outputs", "optional_outputs"):
        spec = BagSpec(argv=("x",), space=SPACE, **{name: patterns})  # type: ignore[arg-type]
        with pytest.raises(InvalidBag, match=re.escape(words)):
            bag_check.check_spec(spec)


@pytest.mark.parametrize(
    "pattern",
    ["{n}", "out-{n}/*.csv", "x[{n}-{task}]", "x[a-{n}]", "x[{n}-b]", "{bag}/**", "{other}"],
)
def test_values_may_be_anywhere_in_a_pattern(pattern: str) -> None:
    bag_check.check_spec(BagSpec(argv=("x",), space=SPACE, outputs=(pattern,)))
