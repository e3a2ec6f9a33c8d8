"""The engine under test, on both of its paths, in the judge's terms."""

import re
from functools import lru_cache
from typing import Any

from covey.classad import (
    ERROR,
    UNDEFINED,
    AbsTime,
    Context,
    Policy,
    RelTime,
    SyntaxProblem,
    parse,
    parse_ad,
)
from tests.classad_reference.judge import Texts
from tests.classad_reference.looking import look
from tests.classad_reference.shapes import Shape
from tests.classad_reference.trees import Question, Tree, render

QUESTION = "_question"  # an attribute that no question asks about,
WHOLE_AD = re.compile(r"\b(my|self|root|toplevel)\b", re.I)  # unless it asks for all of them


read = lru_cache(64)(parse)  # both paths are asked about the same
read_ad = lru_cache(64)(parse_ad)


class Ours:
    """`fast` asks a compiled policy, which falls back by itself; it knows no target."""

    def __init__(self, ad: str, target: str | None, now: float, fast: bool) -> None:
        self._ad = read_ad(ad)
        self._target = None if target is None else read_ad(target)
        self._now = now
        self._fast = fast and target is None
        self.reasons: list[str] = []

    def evaluate(self, text: str) -> Any:
        expression = read(text)
        if not self._fast or WHOLE_AD.search(text):
            context = Context(now=self._now)
            value = expression.evaluate(self._ad, self._target, context)
            self.reasons.append(context.reason)
            return value
        self._ad[QUESTION] = expression
        policy = Policy(self._ad, [QUESTION], ())
        policy.context = Context(now=self._now)
        (value,) = policy.evaluate()
        del self._ad[QUESTION]
        return value

    def scalar(self, text: str, value: Any) -> Shape | None:
        if value is UNDEFINED or value is ERROR:
            return [repr(value)]
        if isinstance(value, AbsTime):
            return ["abstime", value.seconds, value.offset]
        if isinstance(value, RelTime):
            return ["reltime", float(value.seconds).hex()]
        for python, kind in ((bool, "boolean"), (int, "integer"), (str, "string")):
            if isinstance(value, python):
                return [kind, value]
        return ["real", value.hex()] if isinstance(value, float) else None

    def names(self, value: Any) -> list[str] | None:
        return None if isinstance(value, list) else list(value)


def answer(texts: Texts, now: float, fast: bool = False) -> Shape:
    """What must never happen is a shape, too, so that it is found and shrunk like any other."""
    text, ad, target = texts
    try:
        engine = Ours(ad, target, now, fast)
        read(text)
    except SyntaxProblem:
        return ["unparsable"]
    except Exception as problem:
        return ["raised while parsing", f"{type(problem).__name__}: {problem}"]
    try:
        return look(engine, text)
    except Exception as problem:
        return ["raised", f"{type(problem).__name__}: {problem}"]


def reasons(texts: Texts) -> list[str]:
    """Why the evaluation, or one of something inside, was given up."""
    text, ad, target = texts
    try:
        engine = Ours(ad, target, 0.0, fast=False)
        look(engine, text)
    except Exception:
        return []
    return [one for one in engine.reasons if one]


def beside(question: Question, now: float) -> tuple[list[str], list[str]]:
    """What a policy says with the ads within the ad standing beside it, each in its own place and
    then in the next one's: on the fast path, and on the general one."""
    pairs = list(zip(question.ad.names, question.ad.children, strict=True))
    roles = {name.lower(): child for name, child in pairs if child.kind == "ad"}
    own = [pair for pair in pairs if pair[1].kind != "ad"]
    bag = parse_ad(render(Tree("ad", "", tuple(c for _, c in own), tuple(n for n, _ in own))))
    bag[QUESTION] = parse(question.texts()[0])
    policy = Policy(bag, [QUESTION, *(name.strip("'") for name, _ in own)], tuple(roles))
    policy.context = Context(now=now)
    ads = [parse_ad(render(child)) for child in roles.values()]
    fast: list[str] = []
    general: list[str] = []
    for _ in range(2):
        fast += map(repr, policy.evaluate(*ads))
        general += map(repr, policy.general(*ads))
        ads = ads[1:] + ads[:1]
    return fast, general
