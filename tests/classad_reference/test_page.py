"""docs/classad.md is true: its examples, its table of functions, its list of differences."""

import re

import pytest

from tests.classad_reference import ours, page
from tests.classad_reference.deviations import DEVIATIONS
from tests.classad_reference.shapes import same, show


@pytest.mark.parametrize(("expression", "worth"), page.examples())
def test_an_example_is_true(expression: str, worth: str) -> None:
    found, told = (ours.answer((text, "[]", None), 0.0) for text in (expression, worth))
    assert same(found, told), f"{expression} is {show(found)}"


def test_the_python_is_true() -> None:
    """What stands behind `#` begins with what the line shows."""
    names: dict[str, object] = {}
    for line in page.python():
        code, _, told = line.partition("  #")
        if told and "=" not in code.split("(")[0]:
            shown = repr(eval(code, names))  # noqa: S307
            assert told.strip().startswith(shown), f"{line}: {shown}"
        else:
            exec(code, names)  # noqa: S102


def test_there_are_examples() -> None:
    assert len(page.examples()) > 40


def test_every_function_is_described() -> None:
    from covey.classad.functions import FUNCTIONS

    assert set(page.functions()) == set(FUNCTIONS)


def test_the_limits_are_those() -> None:
    from covey.classad import Context
    from covey.classad.parser import DEPTH

    told = dict(re.findall(r"^\| ([^|]+) \| ([\d,]+)", page.section("Limits"), re.M))
    context = Context()
    assert [int(number.replace(",", "")) for number in told.values()] == [
        context.steps,
        context.work,
        context.depth,
        context.length,
        context.size,
        DEPTH,
    ]


def test_every_deviation_is_listed() -> None:
    assert page.deviations() == {one.name: one.reason for one in DEVIATIONS}
