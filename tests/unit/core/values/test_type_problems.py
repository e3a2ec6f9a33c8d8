"""Words for values of a wrong type or size."""

from typing import Annotated, Any

import msgspec
import pytest
from msgspec import Meta

from covey.core.values.type_problems import plain


@pytest.mark.parametrize(
    ("value", "kind", "words"),
    [
        ("many", float, "it must be a number, not text"),
        (1.5, int, "it must be a whole number, not a number"),
        ([], str | bool, "it must be true or false or text, not a list"),
        (-1, Annotated[float, Meta(ge=0)], "it must be a number, 0 or more"),
        (200, Annotated[int, Meta(le=100)], "it must be a whole number, 100 or less"),
        (1.0, Annotated[float, Meta(gt=1)], "it must be a number, more than 1"),
        (1e20, Annotated[float, Meta(lt=1e9)], "it must be a number, less than 1000000000"),
        ({"a": 3}, dict[str, str], "it must be text, not a whole number - at `$[...]`"),
        ("x", Annotated[str, Meta(min_length=2)], "Expected `str` of length >= 2"),
    ],
)
def test_words(value: object, kind: Any, words: str) -> None:
    with pytest.raises(msgspec.ValidationError) as error:
        msgspec.convert(value, kind)
    assert plain(error.value) == words
