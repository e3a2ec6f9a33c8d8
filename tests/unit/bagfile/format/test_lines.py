"""Where keys stand, in files that are hard to read."""

import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.bagfile.format.lines import KeyPath, find_lines

TRICKY = '''\
# [not] = a key
name = "a # b" # c = 1
"odd key" = 1
'x.y' . z = """
[fake]
also = 'fake' \\"""
"""
[a.b] # [c]
  list = [ # one
    1, "]", [
      { k = 1 }, # two
      { k = "}", m.n = 2 }],
    \'\'\'
[x]
    \'\'\',
  ]
date = 1979-05-27 07:32:00
[[t]]
x = 1
[[t]]
y = {a = "\\u00e9,", "\\u00e9" = [1,
2]}
[t.inner]
z = \'\'\'\'quoted\'\'\'\'
[[t.deep]]
q = 1
[[t.deep]]
q = 2
[top]
'''


def test_a_tricky_file() -> None:
    lines = find_lines(TRICKY)
    expected: dict[KeyPath, int] = {
        ("name",): 2,
        ("odd key",): 3,
        ("x.y", "z"): 4,
        ("a",): 8,
        ("a", "b"): 8,
        ("a", "b", "list"): 9,
        ("a", "b", "list", 0): 10,
        ("a", "b", "list", 1): 10,
        ("a", "b", "list", 2, 0, "k"): 11,
        ("a", "b", "list", 2, 1, "k"): 12,
        ("a", "b", "list", 2, 1, "m", "n"): 12,
        ("a", "b", "list", 3): 13,
        ("a", "b", "date"): 17,
        ("t",): 18,
        ("t", 0, "x"): 19,
        ("t", 1): 20,
        ("t", 1, "y", "a"): 21,
        ("t", 1, "y", "é", 1): 22,
        ("t", 1, "inner", "z"): 24,
        ("t", 1, "deep", 0, "q"): 26,
        ("t", 1, "deep", 1, "q"): 28,
        ("top",): 29,
    }
    assert {path: lines.get(path) for path in expected} == expected
    assert ("fake",) not in lines
    assert set(lines) == set(paths(tomllib.loads(TRICKY)))


def paths(value: Any, here: KeyPath = ()) -> list[KeyPath]:
    """Every path in a tree."""
    found: list[KeyPath] = [here] if here else []
    if isinstance(value, dict):
        for name, inner in value.items():
            found += paths(inner, (*here, name))
    if isinstance(value, list):
        for index, inner in enumerate(value):
            found += paths(inner, (*here, index))
    return found


def test_windows_lines() -> None:
    assert find_lines("a = 1\r\nb = [\r\n2,\r\n]\r\n")[("b", 0)] == 3


PIECES = [
    "a = 1", "b = 'x # y'", 'c = """', '"""', "[t]", "[[u]]", "[t.v]", "[u.w]",
    "d.e = {f = [1, 2]}",
    "g = [", "]", "1,", "{h = 1},", "# z", "", '"i j" = "\\\\\\""', "'k' = '\\'", "l = '''", "'''",
    "m = {", "}", "n = 1.5e3", "o = inf", "[t.'p q'.r]",
]  # fmt: skip


@given(st.lists(st.sampled_from(PIECES), max_size=12))
def test_whatever_tomllib_reads_has_its_lines(pieces: list[str]) -> None:
    text = "\n".join(pieces)
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return
    lines = find_lines(text)
    assert set(paths(tree)) == set(lines)
    assert all(1 <= line <= len(pieces) for line in lines.values())


@pytest.mark.parametrize("text", ["", "# only", "\n\n"])
def test_nothing(text: str) -> None:
    assert find_lines(text) == {}
