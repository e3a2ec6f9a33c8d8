"""Patterns match what a shell's would, in bounded time; those that cannot be are refused."""

import contextlib
import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.pilot.files.output_patterns import MOST_CHARACTERS, InvalidPattern, Pattern


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("a.txt", "a.txt", True),
        ("a.txt", "a_txt", False),
        ("./a//b", "a/b", True),
        ("a", "a/b/c", True),
        ("a/", "a/b", True),
        ("a", "ab", False),
        ("*.csv", "x.csv", True),
        ("*.csv", "d/x.csv", False),
        ("*.csv", ".x.csv", False),
        (".*", ".x", True),
        ("d?/x", "d1/x", True),
        ("d?/x", "d/x", False),
        ("r-*", "r-1/deep/.file", True),
        ("**/x", "x", True),
        ("**/x", "a/b/x", True),
        ("**/x", "a/.b/x", False),
        ("a/**", "a/b/c", True),
        ("a/**", "b/c", False),
        ("a/**/z*", "a/b/z1", True),
        ("a/**/z*", "a/z1", True),
        ("[ab]1", "b1", True),
        ("[!ab]1", "b1", False),
        ("[!ab]1", "c1", True),
        ("[a-c]", "b", True),
        ("[*]x", "*x", True),
        ("[*]x", "ax", False),
        ("[[]x", "[x", True),
        ("[]]x", "]x", True),
        ("[x", "[x", True),
        ("a[\\]b", "a\\b", True),
        ("a+(b)", "a+(b)", True),
        ("x\n", "x", False),
        ("*", "x\ny", True),
        ("**", "a/.b/c", True),
        ("**/**", "a/b", True),
        ("**/**/x", "x", True),
        ("a**b", "a-b", True),
        ("a*b*c", "abc", True),
        ("a*b*c", "acb", False),
        ("*aa*aa*", "aaa", False),
        ("*aa*aa*", "xaaaay", True),
        ("a*a", "a", False),
        ("?*?", "ab", True),
        ("?*?", "a", False),
        ("[a-]x", "-x", True),
        ("[--0]x", ".x", False),  # a dot at the beginning is not for brackets, either
        ("a[!b]c", "a/c", False),
        ("[!]", "!", True),
        ("[^a]", "b", True),
        ("a[&&b][~~c][||d]", "a&~|", True),
    ],
)
def test_patterns(pattern: str, path: str, matches: bool) -> None:
    assert Pattern(pattern).match(path) == matches


@pytest.mark.parametrize("pattern", ["", "/", "/a", "..", "a/../b", "."])
def test_patterns_stay_in_the_directory(pattern: str) -> None:
    with pytest.raises(InvalidPattern, match=r"leads out|matches no file"):
        Pattern(pattern)


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("a[z-b]c", "'a[z-b]c' is not valid: [z-b]: the range z-b is backwards; write b-z"),
        ("x[[:digit:]]", "[[:digit:]] is not supported; write characters, as in [0-9]"),
        ("a\0b", "NUL"),
        ("x" * (MOST_CHARACTERS + 1), f"characters, more than {MOST_CHARACTERS}"),
    ],
)
def test_what_cannot_be(pattern: str, words: str) -> None:
    with pytest.raises(InvalidPattern, match=re.escape(words)):
        Pattern(pattern)


def expression(pattern: str) -> "re.Pattern[str]":
    """The same as a regular expression, which may take for ever: for short ones."""
    text = ""
    parts = pattern.split("/")
    for index, part in enumerate(parts):
        last = index == len(parts) - 1
        if part == "**":
            text += "(?s:.*)" if last else r"(?:(?!\.)[^/]+/)*"
            continue
        text += r"(?!\.)" if part[0] in "*?" else ""
        text += "".join({"*": "[^/]*", "?": "[^/]"}.get(each, re.escape(each)) for each in part)
        text += "" if last else "/"
    return re.compile("(?:" + text + r")(?:/(?s:.*))?\Z")


NAMES = st.text("ab.", min_size=1, max_size=5).filter(lambda name: name not in (".", ".."))
PARTS = st.text("ab.*?", min_size=1, max_size=5).filter(lambda name: name not in (".", ".."))


@given(st.lists(PARTS, min_size=1, max_size=4), st.lists(NAMES, min_size=1, max_size=5))
def test_it_is_what_going_back_would_find(parts: list[str], names: list[str]) -> None:
    pattern, path = "/".join(parts), "/".join(names)
    assert Pattern(pattern).match(path) == bool(expression(pattern).match(path))


@given(st.text("ab[]!^-*?./", max_size=12), NAMES)
def test_any_text_is_a_pattern_or_refused(text: str, name: str) -> None:
    with contextlib.suppress(InvalidPattern):
        Pattern(text).match(name)


LONG_NAME = "a" * 254 + "b"


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("*a" * 120 + "*c", LONG_NAME),  # each star may stop anywhere
        ("*?" * 120 + "*c", LONG_NAME),
        ("*[a-b]" * 120 + "*c", LONG_NAME),
        ("**/a/" * 200 + "c", "a/" * 500 + "b"),  # each span may stop anywhere
        ("**/*/" * 170 + "c", "a/" * 500 + "b"),
        ("**/*a*a*a*a*a/" * 60 + "c", (LONG_NAME + "/") * 16 + "b"),
        ("*" * 1024, LONG_NAME + "/b"),
        ("**/" * 341 + "c", "a/" * 2000 + "b"),
    ],
)
def test_no_pattern_takes_long(pattern: str, path: str) -> None:
    """With what goes back, most of these would outlast the sun."""
    ready = Pattern(pattern)
    begun = time.process_time()
    ready.match(path)
    assert time.process_time() - begun < 2.0


def test_time_grows_with_the_name_and_no_faster() -> None:
    """Counted, not timed: how many pieces of a pattern are compared."""
    ready = Pattern("**/*a*/" * 40 + "c")
    steps = []
    for count in (50, 100, 200):
        places, total = ready.start, 0
        for _ in range(count):
            places = ready.step(places, "aaaa")
            total += bin(places).count("1")
        steps.append(total)
    assert steps[1] <= 81 * 100
    assert steps[2] - steps[1] <= 81 * 100
