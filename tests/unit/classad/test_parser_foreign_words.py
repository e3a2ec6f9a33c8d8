"""Words and signs of other languages are told what they are called here."""

import pytest

from covey.classad import SyntaxProblem, parse


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("Host.Memory > 3 and Host.NumCpus > 1", "write && for and"),
        ("a OR b", "write || for or"),
        ("not a", "write ! for not"),
        ("(a and b)", "write && for and"),
        ("a = 3", "write == for ="),
    ],
)
def test_the_parser_says_what_to_write(text: str, hint: str) -> None:
    with pytest.raises(SyntaxProblem, match="expected") as caught:
        parse(text)
    assert hint in str(caught.value)


def test_other_mistakes_have_no_such_hint() -> None:
    with pytest.raises(SyntaxProblem) as caught:
        parse("a b")
    assert "write" not in str(caught.value)


def test_these_words_may_be_names() -> None:
    assert parse("Host.and > not").node
