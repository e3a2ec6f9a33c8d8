"""20,000 random questions to both engines, other ones every day: the same type, the same value.

`make fuzz` asks a million.
"""

import os
import random

import pytest

from tests.classad_reference.deviations import DEVIATIONS, explanation
from tests.classad_reference.generator import BINARY, UNARY, Generator
from tests.classad_reference.shapes import same
from tests.classad_reference.shrinking import shrink
from tests.classad_reference.signatures import SIGNATURES
from tests.classad_reference.trees import Question, Tree, leaf, render, uses

COUNT = int(os.environ.get("FUZZ_EXAMPLES", "20000"))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_both_engines_say_the_same() -> None:
    pytest.importorskip("classad2")
    from tests.classad_reference.fuzz import SEED, report, run

    fuzzer = run(COUNT, SEED)
    told = report(fuzzer, SEED)
    print(told)
    assert not fuzzer.differences, told
    assert fuzzer.asked == COUNT
    if COUNT >= 20_000:
        everything = {f"{name.lower()}()" for name in SIGNATURES}
        everything |= {f"{operator} (binary)" for operator in BINARY}
        everything |= {f"{operator} (unary)" for operator in UNARY}
        everything |= {"? :", ". (select)", "[ ] (subscript)", "list", "ad"}
        assert everything <= set(fuzzer.used)
        assert min(fuzzer.used[name] for name in everything) >= 50


def test_a_dead_reference_is_replaced() -> None:
    pytest.importorskip("classad2")
    from tests.classad_reference.judge import Judge

    with Judge() as judge:
        assert judge.answers([("1 + 1", "[]", None)])[0] is not None
        worker = judge._worker
        assert worker is not None
        worker.kill()
        worker.wait()
        two = judge.answers([("1 + 1", "[]", None), ("a", "[a = {b}; b = 3]", None)])
    assert [answer and answer[0] for answer in two] == [
        ["integer", 2],
        ["list", 1, [["integer", 3]]],
    ]
    assert judge.deaths == {}


def test_every_function_is_asked_for() -> None:
    from covey.classad.functions import FUNCTIONS

    assert {name.lower() for name in SIGNATURES} == set(FUNCTIONS)


def test_a_seed_asks_the_same_again() -> None:
    one, other = (Generator(random.Random(7)) for _ in range(2))
    assert [one.question() for _ in range(50)] == [other.question() for _ in range(50)]


def test_a_difference_is_made_small() -> None:
    generator = Generator(random.Random(3))
    bad = Tree("call", "quantize", (leaf("7"), leaf("2")))
    whole = Tree("binary", "+", (generator.expression(3), Tree("paren", "", (bad,))))
    asked = Question(whole, generator.flat_ad(2), generator.flat_ad(1))
    small = shrink(asked, lambda question: "quantize()" in set(uses(question)))
    assert render(small.expression) == "quantize()"
    assert small.ad == Tree("ad")
    assert small.target is None


def test_types_and_signs_count() -> None:
    nan, zero = ["real", "nan"], ["real", (0.0).hex()]
    assert same(nan, nan)
    assert not same(zero, ["real", (-0.0).hex()])
    assert not same(["integer", 0], zero)
    assert not same(["integer", 1], ["boolean", True])
    close = ["real", (1 + 1e-15).hex()], ["real", (1.0).hex()]
    assert not same(*close)
    assert same(*close, inexact=True)


def test_deviations_are_narrow() -> None:
    """None explains a plain wrong number."""
    asked = Question(leaf("1"), Tree("ad"))
    assert explanation(asked, ["integer", 1], ["integer", 2], lambda _: None) is None
    rooted = Question(leaf(".a"), Tree("ad"), Tree("ad"))
    assert explanation(rooted, ["integer", 1], ["undefined"], lambda _: None) is not None
    assert explanation(rooted, ["raised", "KeyError"], ["undefined"], lambda _: None) is None
    assert len({deviation.name for deviation in DEVIATIONS}) == len(DEVIATIONS)
