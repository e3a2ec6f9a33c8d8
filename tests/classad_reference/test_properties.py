"""What holds for every expression, without a reference to say so."""

import os
import random
import re
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from covey.classad import (
    Ad,
    Context,
    Policy,
    SyntaxProblem,
    dependencies,
    from_json,
    parse,
    parse_ad,
    partial,
    to_json,
    unparse,
)
from tests.classad_reference.generator import Generator
from tests.classad_reference.ours import answer, beside
from tests.classad_reference.shapes import same, show
from tests.classad_reference.trees import Question, Tree, render

NOW = 1_800_000_000.0
MANY = settings(max_examples=int(os.environ.get("PROPERTY_EXAMPLES", "300")))


def question(seed: int) -> Question:
    """The first of this seed that can be read."""
    generator = Generator(random.Random(seed))
    while True:
        made = generator.question()
        if answer(made.texts(), NOW) != ["unparsable"]:
            return made


QUESTIONS = st.integers(0, 2**48).map(question)


def value(text: str, ad: str, target: str | None = None) -> Any:
    return answer((text, ad, target), NOW)


@MANY
@given(QUESTIONS)
def test_what_is_written_down_is_read_again(made: Question) -> None:
    text, ad, _ = made.texts()
    read = parse(text)
    assert parse(unparse(read)) == read
    assert unparse(parse(unparse(read))) == unparse(read)
    assert parse_ad(unparse(parse_ad(ad))) == parse_ad(ad)


@MANY
@given(QUESTIONS)
def test_both_paths_agree(made: Question) -> None:
    general, fast = (answer(made.texts(), NOW, fast=fast) for fast in (False, True))
    assert same(general, fast), f"{made.texts()}: {show(general)}, fast {show(fast)}"


@MANY
@given(QUESTIONS, st.data())
def test_a_part_first_and_the_rest_later_is_the_same(made: Question, data: st.DataObject) -> None:
    text, whole, target = made.texts()
    names = sorted(set(made.ad.names))
    known = data.draw(st.sets(st.sampled_from(names)) if names else st.just(set()))
    first = [
        (name, child)
        for name, child in zip(made.ad.names, made.ad.children, strict=True)
        if name in known
    ]
    part = Tree("ad", "", tuple(child for _, child in first), tuple(name for name, _ in first))
    left = unparse(partial(parse(text), parse_ad(render(part))))
    assert same(value(left, whole, target), value(text, whole, target)), (
        f"{text} in {whole}: {left}"
    )


@MANY
@given(QUESTIONS)
def test_what_it_does_not_depend_on_does_not_matter(made: Question) -> None:
    """All that it does not reach can be taken away, or put there, unless it looks at whole ads."""
    text, ad, target = made.texts()
    if LOOKS_AROUND.search(f"{text} {ad} {target}"):
        return
    whole = parse_ad(ad)
    reached: set[str] = set()
    coming = names_in(parse(text))
    while coming:
        reached |= coming
        known = [whole[name] for name in coming if name in whole]
        coming = {name for one in known for name in names_in(one)} - reached
    changed = parse_ad(ad)
    for name in [*whole, "a", "b", "Name"]:
        if name.lower() not in reached:
            changed[name] = "something else"
    assert same(value(text, unparse(changed), target), value(text, ad, target)), sorted(reached)


LOOKS_AROUND = re.compile(r"\b(eval|unparse|unresolved|self|my|parent|root|toplevel)\b", re.I)


def names_in(thing: Any) -> set[str]:
    """Each may be found further out, if not where the path leads."""
    return {name for path in dependencies(thing) for name in path.split(".")}


@MANY
@given(QUESTIONS)
def test_json_keeps_everything(made: Question) -> None:
    ad = parse_ad(render(made.ad))
    again = from_json(to_json(ad))
    assert isinstance(again, Ad)
    for name in ad:
        assert same(value(name, unparse(again)), value(name, render(made.ad))), name


@MANY
@given(QUESTIONS)
def test_what_was_asked_before_makes_no_difference(made: Question) -> None:
    """Though by then it is compiled: with little to compile allowed, so that it matters."""
    text, ad, target = made.texts()
    other = None if target is None else parse_ad(target)
    read, around = parse(text), parse_ad(ad)
    heard = []
    for _ in range(2):
        context = Context(now=NOW, work=12)
        found = read.evaluate(around, other, context)
        heard.append((repr(found), context.reason, context.making))
    assert heard[0] == heard[1]


@MANY
@given(QUESTIONS)
def test_no_expression_takes_more_than_its_steps(made: Question) -> None:
    text, ad, target = made.texts()
    context = Context(now=NOW, steps=200)
    other = None if target is None else parse_ad(target)
    parse(text).evaluate(parse_ad(ad), other, context)
    assert context.spent <= 200 + 100


HEAVY = [
    "[a0 = 1; " + "; ".join(f"a{n + 1} = a{n} + a{n}" for n in range(40)) + "]",
    "[a0 = {1,2,3,4,5,6,7,8}; " + "; ".join(f"a{n + 1} = {{a{n}, a{n}}}" for n in range(40)) + "]",
    '[a0 = "x"; ' + "; ".join(f"a{n + 1} = strcat(a{n}, a{n})" for n in range(40)) + "]",
    "[" + "; ".join(f"a{n} = a{n + 1}" for n in range(40)) + "; a40 = a0]",
    "[a40 = " + "(" * 50 + "1" + ")" * 50 + "]",
    "[a40 = " + "+".join("1" for _ in range(190)) + "]",
    '[a40 = regexp("(a*)*b", "' + "a" * 5000 + '")]',
    '[a40 = regexp("(a|aa)+$", "' + "a" * 5000 + 'b")]',
    '[a40 = regexp("(.*.*.*.*)x", "' + "a" * 5000 + '")]',
    '[a40 = eval("eval(\\"a40\\")")]',
    '[a40 = regexps("a?", "' + "a" * 2000 + '", "\\\\0\\\\0\\\\0\\\\0", "g")]',
]


@pytest.mark.parametrize("text", HEAVY, ids=range(len(HEAVY)))
def test_nothing_takes_long(text: str) -> None:
    """10 ms is the rule; a busy machine gets thrice that."""
    ad = parse_ad(text)
    taken = []
    for _ in range(3):
        began = time.process_time()
        ad.evaluate("a40", None, Context(now=NOW))
        taken.append(time.process_time() - began)
    assert min(taken) < 0.03


CHAINED = [
    "a{}",
    "ifThenElse(true, a{}, 0)",
    "{{a{}}}[0]",
    "[x = a{}].x",
    "member(1, {{a{}}})",
    'eval("a{}")',
    "evalInEachContext(a{}, {{[]}})[0]",
    "1 + (" * 60 + "a{}" + ")" * 60,
]


@pytest.mark.parametrize("link", CHAINED)
def test_its_own_depth_decides_and_not_the_stack_of_python(link: str) -> None:
    ad = parse_ad("[" + "; ".join(f"a{n} = {link.format(n + 1)}" for n in range(300)) + "]")

    def evaluate(frames: int) -> str:
        if frames:
            return evaluate(frames - 1)
        context = Context(steps=10**7, work=10**7)
        ad.evaluate("a0", None, context)
        return context.reason

    assert evaluate(150) == evaluate(0) == "more than 200 levels deep"


SOURCES = QUESTIONS.map(lambda made: made.texts()[0])
LETTERS = st.sampled_from(list("()[]{}.,;:?!=<>&|^~+-*/%\"'\\ abcE019_\n\0é"))


def refused(read: Callable[[str], Any], text: str) -> SyntaxProblem | None:
    """Any other exception is let through, and fails the test."""
    try:
        read(text)
    except SyntaxProblem as problem:
        return problem
    return None


@MANY
@given(st.one_of(st.text(), st.text(LETTERS), st.binary().map(lambda raw: raw.decode("latin-1"))))
def test_any_text_is_read_or_refused(text: str) -> None:
    for read in (parse, parse_ad):
        problem = refused(read, text)
        if problem is not None:
            assert 0 <= problem.position <= len(text)
            assert problem.expected
            assert "^" in str(problem)


@MANY
@given(SOURCES, st.integers(0, 1000), st.sampled_from(["cut", "add", "twice"]), LETTERS)
def test_a_broken_expression_is_read_or_refused(text: str, at: int, how: str, new: str) -> None:
    at %= len(text) + 1
    end = at + (at % 7) + 1
    middle = {"cut": "", "add": new + text[at:end], "twice": text[at:end] * 2}[how]
    refused(parse, text[:at] + middle + text[end:])


def test_the_fast_path_is_taken() -> None:
    """For what policies are made of: the general path is never asked."""
    bag = parse_ad("[Tail = true; Good = !Tail || Host.ErrorRate < 0.1; Rank = Host.NumCpus * 10]")
    policy = Policy(bag, ("Good", "Rank"), ("Host",))
    policy.context = Context(steps=0)
    assert policy.evaluate(parse_ad("[ErrorRate = 0.05; NumCpus = 2]")) == (True, 20)


@MANY
@given(QUESTIONS)
def test_a_policy_agrees_with_its_general_path(made: Question) -> None:
    fast, general = beside(made, NOW)
    assert fast == general, made.texts()


def test_work_that_was_refused_does_not_count() -> None:
    """To make a pattern ready costs many steps; with too few left, nothing is made."""
    context = Context(now=NOW, steps=200)
    parse('isInteger(!replace("[a", "hello world", "\\\\2"))').evaluate(
        parse_ad("[]"), None, context
    )
    assert context.spent <= 200
