"""What is wrong with a value, in words for people who do not know msgspec's names of types."""

import re

_KINDS = {
    "float": "a number",
    "int": "a whole number",
    "str": "text",
    "bool": "true or false",
    "array": "a list",
    "object": "a table",
    "null": "nothing",
}
_BOUNDS = {">=": "{} or more", "<=": "{} or less", ">": "more than {}", "<": "less than {}"}
_EXPECTED = re.compile(r"^Expected `([a-z |]+)`(?:, got `([a-z]+)`| (>=|<=|>|<) ([-+.0-9e]+))")


def plain(error: Exception) -> str:
    """The words of a `msgspec.ValidationError`; what has another form is left as it is."""
    text = str(error)
    found = _EXPECTED.match(text)
    if found is None:
        return text
    kinds, got, sign, bound = found.groups()
    wanted = " or ".join(_KINDS.get(kind, kind) for kind in kinds.split(" | "))
    if got is not None:
        words = f"it must be {wanted}, not {_KINDS.get(got, got)}"
    else:
        words = f"it must be {wanted}, {_BOUNDS[sign].format(bound.removesuffix('.0'))}"
    return words + text[found.end() :]
