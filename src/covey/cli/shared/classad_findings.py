"""Mistakes in ClassAd text, found without evaluating it; and the layout of an ad."""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from covey.classad import (
    Ad,
    Context,
    Expression,
    SyntaxProblem,
    check,
    dependencies,
    parse,
    parse_ad,
    unparse,
)
from covey.classad.nodes import Node
from covey.classad.values import Value

INDENT = "    "
NARROW = 96  # a nested ad stays on one line if the line has at most this many columns
# A string without its closing quote matches too: the text is then read only once.
_STRING_OR_COMMENT = re.compile(r'"(?:\\.|[^"\\])*"?|\'(?:\\.|[^\'\\])*\'?|//|/\*', re.DOTALL)


class Finding(NamedTuple):
    line: int
    column: int
    message: str
    suggestions: tuple[str, ...] = ()

    def show(self, text: str) -> str:
        """The message for a person, the line of text, and a caret below the mistake."""
        near = " or ".join(self.suggestions[:2])
        hint = f"; did you mean {near}?" if near else ""
        message = f"line {self.line}, column {self.column}: {self.message}{hint}"
        line = text.split("\n")[self.line - 1]
        return f"{message}\n  {line}\n  {' ' * (self.column - 1)}^"


def findings(text: str, is_ad: bool, ads: Sequence[Ad]) -> list[Finding]:
    """All mistakes, in the order of the text. Names of attributes are checked against `ads`;
    without any ads they are not checked."""
    try:
        tree: Node = parse_ad(text) if is_ad else parse(text).node
    except SyntaxProblem as problem:
        return [_at(text, problem.position, f"expected {problem.expected}")]
    names = [name for ad in ads for name in _paths(ad)]
    return sorted(_at(text, *problem) for problem in check(tree, names or None))


def _at(text: str, position: int, message: str, near: Sequence[str] = ()) -> Finding:
    line = text.count("\n", 0, position) + 1
    column = position - (text.rfind("\n", 0, position) + 1) + 1
    return Finding(line, column, message, tuple(near))


def _paths(ad: Ad, prefix: str = "") -> Iterator[str]:
    """Every attribute, also of nested ads, as Outer.Inner."""
    for name, value in ad.items():
        yield prefix + name
        if isinstance(value, Ad):
            yield from _paths(value, f"{prefix}{name}.")


def asked_for(
    expression: Expression, ad: Ad, target: Ad | None, context: Callable[[], Context]
) -> list[tuple[str, Value]]:
    """Each attribute that the expression reads, with its value, sorted by name."""
    paths = sorted(dependencies(expression))
    return [(path, parse(path).evaluate(ad, target, context())) for path in paths]


# -- layout --------------------------------------------------------------------------------------


def has_comments(text: str) -> bool:
    return any(match.group()[0] == "/" for match in _STRING_OR_COMMENT.finditer(text))


def laid_out(text: str) -> str:
    """An ad with one attribute per line. Short ads inside it stay on one line."""
    return _layout(parse_ad(text), 0) + "\n"


def _layout(ad: Ad, depth: int) -> str:
    inner = INDENT * (depth + 1)
    lines = []
    for name, value in ad.items():
        shown = unparse(value)
        if isinstance(value, Ad) and len(inner) + len(name) + len(shown) + 4 > NARROW:
            shown = _layout(value, depth + 1)
        lines.append(f"{inner}{_spelled(name)} = {shown}")
    if not lines:
        return "[]"
    return "[\n" + ";\n".join(lines) + "\n" + INDENT * depth + "]"


def _spelled(name: str) -> str:
    """The attribute's name, in quotes if it is not a plain identifier."""
    return unparse(parse("'" + name.replace("\\", "\\\\").replace("'", "\\'") + "'"))
