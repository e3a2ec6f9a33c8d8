"""Questions that once differed and nothing explained: now the same, or explained by a deviation.

An explanation holds for the right answer alone: had ours said something else, nobody would vouch
for it.
"""

from collections.abc import Iterator

import pytest

from tests.classad_reference import deviations
from tests.classad_reference.deviations import explanation
from tests.classad_reference.shapes import show
from tests.classad_reference.trees import Question, Tree, leaf

pytest.importorskip("classad2")
from tests.classad_reference.fuzz import Fuzzer
from tests.classad_reference.judge import Judge

Attributes = dict[str, str]

SAME: list[tuple[str, Attributes]] = [
    ('unresolved(Name, "")', {"Name": "a"}),
    ("unresolved('odd name', \"\")", {"'odd name'": "c"}),
    ('unresolved(Tail, "")', {"Tail": "eRRORrATE"}),
    ('unresolved(Tail, "^|b*$|\\\\b")', {"Tail": "a"}),
    ('unresolved(Tail, "|a")', {"Tail": "bab"}),
    ("countMatches(Tail, {[Tail = true]})", {"Tail": "[]"}),
    ('stringListAvg("0x""rg")', {}),
    ('{stringListSum("-0X"), stringListSum("0x.8"), stringListMax("infin"), real("0xz")}', {}),
]
JUST_SO = "A condition stands in the ad that is looked at"
PICKED = "Picking from a list is picking from each"
EXPLAINED: list[tuple[str, Attributes, Attributes | None, str]] = [
    ("currentTime//", {}, None, "CurrentTime is now"),
    ('string({relTime(""), 0XF})', {}, None, "Numbers may be hexadecimal"),
    ('toUpper(([a = relTime("1d")]))', {}, {"a": "5M"}, "Numbers have suffixes"),
    (
        'join(([a = (-6); Hosts = 2G]["Name"]), ".;a@", '
        '[ErrorRate = relTime("1d"); a = c; Name = 5; a = (-0)])',
        {},
        None,
        "Numbers have suffixes",
    ),
    ('relTime("") <= 1', {"Tail": "5M"}, None, "A span is a span and Numbers have suffixes"),
    ("avg({[Hosts = relTime(1)]}.Hosts)", {}, None, PICKED),
    ("max(x.Hosts)", {"x": "{[Hosts = relTime(1)], []}"}, None, PICKED),
    (
        "{[Hosts = timezoneOffset()], []}.Hosts",
        {"Hosts": "[Tail = TARGET.b]"},
        {"b": "1"},
        PICKED,
    ),
    ("{[d = 1; Name = {countMatches(d, {[]})}]}.Name", {}, None, PICKED),
    ('strcat({relTime("")}, relTime(""))', {}, None, "A span is a span"),
    ('"%" < unparse(Job)', {"Job": "[]"}, None, "`unparse` writes one line"),
    ("stricmp(unparse(Job), 1)", {"Job": "{}"}, None, "`unparse` writes one line"),
    ("strcmp(1, unparse(a))", {"a": "{}"}, None, "`unparse` writes one line"),
    ("unparse(hOST)", {"Host": "[a = unparse()]"}, None, "`unparse` writes one line"),
    (
        "size(unparse(a))",
        {"a": '"[\\n]" ? f({}, [], {{-1, [b = 2], -a, -1.5, ~1}, [b = {[]}; c = 1]})[{[]}] : -{}'},
        None,
        "`unparse` writes one line",
    ),
    ("[c = {~1}; d = unparse(c)]", {}, None, "`unparse` writes one line"),
    ('eval("size(unparse(a))")', {"a": "{}"}, None, "`unparse` writes one line"),
    ("countMatches({1, Hosts}[1], {[Hosts = 1]})", {}, None, JUST_SO),
    ("countMatches(x, {[Hosts = 1]})", {"x": "{1, Hosts}[1]"}, None, JUST_SO),
    ("countMatches([].Name == 1, {[Name = 1]})", {}, None, JUST_SO),
    ("countMatches(Tail, c)", {"c": "1"}, {}, JUST_SO),
    ("countMatches(Tail, c)", {"c": "{[Tail = 1]}"}, {}, JUST_SO),
    ("evalInEachContext(TARGET.a, c)", {"c": "{[b = 1]}"}, {"a": "b", "b": "3"}, JUST_SO),
    ('eval("countMatches(Tail, c)")', {"c": "1"}, {}, JUST_SO),
]


@pytest.fixture(scope="module")
def fuzzer() -> Iterator[Fuzzer]:
    with Judge() as judge:
        yield Fuzzer(judge)


def asked(text: str, ad: Attributes, target: Attributes | None = None) -> Question:
    trees = [
        Tree("ad", "", tuple(map(leaf, one.values())), tuple(one)) for one in (ad, target or {})
    ]
    return Question(leaf(text), trees[0], None if target is None else trees[1])


@pytest.mark.parametrize(("text", "ad"), SAME)
def test_both_say_the_same(fuzzer: Fuzzer, text: str, ad: Attributes) -> None:
    found = fuzzer.difference(asked(text, ad))
    assert found is None, str(found)


def test_a_pattern_is_refused(fuzzer: Fuzzer) -> None:
    """This is told by the pattern alone, and by no other that is like it."""
    for pattern, name in (("(/*|b)+0,}", "Patterns take linear time"), ("(/+|b)+0,}", None)):
        question = asked(f'regexpMember("{pattern}", {{}})', {})
        assert explanation(question, ["error"], ["boolean", False], fuzzer._ask) == name


@pytest.mark.parametrize(("text", "ad", "target", "name"), EXPLAINED)
def test_it_is_explained(
    fuzzer: Fuzzer,
    text: str,
    ad: Attributes,
    target: Attributes | None,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = fuzzer.difference(asked(text, ad, target))
    assert found is not None, "there is no such difference any more"
    assert explanation(*found, fuzzer._ask) == name, str(found)
    wrong = ["string", "x"]
    monkeypatch.setattr(deviations, "answer", lambda texts, now: wrong)
    told = explanation(found.question, wrong, found.theirs, fuzzer._ask)
    assert told is None, f"{told} would explain {show(wrong)}"
