"""TOML that is right is read; what is wrong is told with the line."""

import pytest

from covey.core.values.toml_text import BadToml, parse


def test_a_table_is_read() -> None:
    assert parse('a = 1\n[b]\nc = "d"\n', "x.toml") == {"a": 1, "b": {"c": "d"}}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a = 1\nb = word\n", r"^x.toml:2: this is not TOML: invalid value; text needs quotes"),
        ("a = 1\na = 2\n", r"^x.toml:2: this is not TOML"),
        ("a = [1,", r"^x.toml:1: this is not TOML"),
        ("x" + ".x" * 300 + " = 1", "^x.toml:1: a key has at most 200 parts"),
        ("a = " + "[" * 5000, "^x.toml: it is nested too deeply"),
        ("a = " + "1" * 5000, "^x.toml: "),
    ],
)
def test_what_is_wrong_is_told(text: str, words: str) -> None:
    with pytest.raises(BadToml, match=words):
        parse(text, "x.toml")
