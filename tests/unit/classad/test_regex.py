"""Our engine finds what backtracking engines find, without their bad days."""

import re
import time
import warnings

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from covey.classad import ERROR, Ad, Context, parse
from covey.classad.regex import Pattern, Unsupported, compiled
from covey.classad.values import TooMuch

Piece = tuple[str, bool]  # a pattern, and whether it can match nothing

FULL = ["a", "b", "c", ".", "[ab]", "[^a]", r"\w", r"\d", r"\s", "ab"]
EMPTY = [r"\b", r"\B", "^", "$", ""]
REPEATS = ["*", "+", "?", "*?", "+?", "??", "{1,}", "{1,2}", "{2}", "{0,3}", "{2,}", "{0,2}?"]


def joined(parts: tuple[Piece, Piece]) -> Piece:
    return parts[0][0] + parts[1][0], parts[0][1] and parts[1][1]


def either(parts: tuple[Piece, Piece]) -> Piece:
    return f"({parts[0][0]}|{parts[1][0]})", parts[0][1] or parts[1][1]


def repeated(parts: tuple[Piece, int]) -> Piece:
    """What can match nothing is not repeated without end."""
    (text, empty), number = parts
    repeats = ["?", "??"] if empty else REPEATS
    repeat = repeats[number % len(repeats)]
    return f"(?:{text}){repeat}", empty or repeat[0] in "*?" or repeat[:2] == "{0"


pieces = st.recursive(
    st.sampled_from([(text, False) for text in FULL] + [(text, True) for text in EMPTY]),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(joined),
        st.tuples(inner, inner).map(either),
        inner.map(lambda piece: (f"({piece[0]})", piece[1])),
        st.tuples(inner, st.integers(0, 11)).map(repeated),
    ),
    max_leaves=8,
)
patterns = pieces.map(lambda piece: piece[0])
subjects = st.text(alphabet="abc1 \n", max_size=10)


def spans(pattern: str, subject: str, engine: str = "ours") -> list[int] | None:
    found = Pattern(pattern)
    if engine == "ours":
        return found.simulate(Context(), subject)
    return found.match(Context(), subject)


def expected(pattern: str, subject: str) -> list[int] | None:
    found = re.search(pattern, subject, re.ASCII)
    if found is None:
        return None
    return [place for number in range(found.re.groups + 1) for place in found.span(number)]


@settings(max_examples=500, deadline=None)
@given(patterns, subjects)
@example("(a|b+)*?c", "abbc")
@example("((a)|b)*", "ab")
def test_matches_and_groups_are_those_of_a_backtracking_engine(pattern: str, subject: str) -> None:
    assume(subject or r"\B" not in pattern)  # which Python says nothing has none of
    assert spans(pattern, subject) == expected(pattern, subject)
    assert spans(pattern, subject, "any") == expected(pattern, subject)


def test_a_bounded_repeat_goes_on_after_nothing_as_in_pcre() -> None:
    assert spans(r"(?:((^|.))){0,2}\b", " a") == [0, 1, 0, 1, 0, 1]


@pytest.mark.parametrize(
    ("options", "pattern", "subject", "found"),
    [
        ("", "A", "a", False),
        ("", r"\B", "", True),
        ("i", "A[b-d]", "aC", True),
        ("i", "[^a]", "A", False),
        ("", "^b$", "a\nb\nc", False),
        ("m", "^b$", "a\nb\nc", True),
        ("m", "^$", "a\n", False),
        ("", "a$", "a\n", True),
        ("", "a.b", "a\nb", False),
        ("s", "a.b", "a\nb", True),
        ("x", "a b # comment", "ab", True),
        ("", "(?i)linux", "LINUX", True),
        ("", "(?i:a)B", "AB", True),
        ("", "(?i:a)B", "Ab", False),
        ("", r"\w", "é", False),
        ("", r"[]a\]-]", "-", True),
        ("", "é.", "éa", True),
    ],
)
def test_options_and_classes(options: str, pattern: str, subject: str, found: bool) -> None:
    compiled_pattern = Pattern(pattern, options)
    assert (compiled_pattern.match(Context(), subject) is not None) is found
    assert (compiled_pattern.simulate(Context(), subject) is not None) is found


@pytest.mark.parametrize(
    "pattern",
    [
        *(r"(a)\1", "(?=a)", "(?!a)", "(?<=a)b", "(?>a)", "a*+", "a++", "(?(1)a|b)", r"\Qa\E"),
        *(
            "[[:alpha:]]",
            r"\h",
            r"\v",
            r"\K",
            r"\Z",
            r"\x{41}",
            r"\101",
            "(?<n>a)",
            "a{,2}",
            "a(?i)b",
        ),
        *("(a", "a)", "[a", "a**", "*a", "^*", r"\b+", "a{2}{3}", "[z-a]", "\\", r"\q", "a{3,2}"),
        *(
            "a" * 501,
            "(a{1,99}){1,99}",
            "[a-\uffff]",
            r"[a\D]",
            "(?P=n)",
            r"\N{DASH}",
            "(?a)b",
            "(a)" * 31,
        ),
    ],
)
def test_what_cannot_be_had_in_linear_time_or_is_no_pattern_is_refused(pattern: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(Unsupported):
            Pattern(pattern)


LONG = "a" * 5000


@pytest.mark.parametrize(
    ("pattern", "subject"),
    [
        ("(a*)*b", LONG),
        ("(a|aa)+$", LONG + "b"),
        ("(a|a)*b", LONG),
        (".*.*.*.*x", LONG),
        ("(x+x+)+y", "x" * 200),
        ("^(([a-z])+.)+[A-Z]([a-z])+$", "a" * 500),
        ("(?:a?){30}a{30}", "a" * 30),
        ("((a{1,9}){1,9}){1,9}b", "a" * 200),
        ("a*b", LONG),
        ("(?:" * 40 + "a" + ")*" * 40, "a" * 100),
    ],
)
@pytest.mark.parametrize("call", ["regexp(p, s)", "regexps(p, s, t)", 'replaceAll(p, s, "bb")'])
def test_bad_patterns_have_an_end(pattern: str, subject: str, call: str) -> None:
    """Ten milliseconds are the limit on a quiet machine; a busy one gets some more."""
    ad, expression = Ad({"p": pattern, "s": subject, "t": r"<\0>"}), parse(call)
    best = 1.0
    for _ in range(5):
        compiled.cache_clear()
        begun = time.process_time()
        expression.evaluate(ad)
        best = min(best, time.process_time() - begun)
    assert best < 0.02


def test_the_cost_is_the_same_when_the_pattern_is_known() -> None:
    expression = parse('regexp("(a|b)*c", "ababababab")')
    costs = []
    for _ in range(3):
        context = Context()
        expression.evaluate(None, None, context)
        costs.append(context.spent)
    assert len(set(costs)) == 1


def test_what_is_too_long_is_an_error_with_a_reason() -> None:
    context = Context()
    assert parse('regexp("(a|b)*c", s)').evaluate(None, None, context) is not ERROR
    with pytest.raises(TooMuch):
        Pattern("(a|aa)*c").match(Context(), "a" * 50_000)
    assert parse(r'regexp("(a)\\1", "aa")').evaluate(None, None, context) is ERROR
    assert "pattern" in context.reason
