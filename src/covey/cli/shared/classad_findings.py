"""What can be said about ClassAd text without evaluating it, and how an ad is laid out."""

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
NARROW = 96  # an ad within an ad that fits in so many columns stays on its line
# A string that is not closed matches, too, so that it is read only once.
_STRING_OR_COMMENT = re.compile(r'"(?:\\.|[^"\\])*"?|\'(?:\\.|[^\'\\])*\'?|//|/\*', re.DOTALL)


class Finding(NamedTuple):
    line: int
    column: int
    message: str
    suggestions: tuple[str, ...] = ()

    def show(self, text: str) -> str:
        """For a person: where, what, and a caret below the place."""
        near = " or ".join(self.suggestions[:2])
        hint = f"; did you mean {near}?" if near else ""
        told = f"line {self.line}, column {self.column}: {self.message}{hint}"
        shown = text.split("\n")[self.line - 1]
        return f"{told}\n  {shown}\n  {' ' * (self.column - 1)}^"


def findings(text: str, is_ad: bool, known: Sequence[Ad]) -> list[Finding]:
    """In the order of the text. Names are looked at only where there are ads to have them."""
    try:
        tree: Node = parse_ad(text) if is_ad else parse(text).node
    except SyntaxProblem as problem:
        return [_at(text, problem.position, f"expected {problem.expected}")]
    names = [name for ad in known for name in _paths(ad)]
    return sorted(_at(text, *one) for one in check(tree, names or None))


def _at(text: str, position: int, message: str, near: Sequence[str] = ()) -> Finding:
    line = text.count("\n", 0, position) + 1
    column = position - (text.rfind("\n", 0, position) + 1) + 1
    return Finding(line, column, message, tuple(near))


def _paths(ad: Ad, before: str = "") -> Iterator[str]:
    """Every attribute, at any depth, as a reference from outside spells it."""
    for name, value in ad.items():
        yield before + name
        if isinstance(value, Ad):
            yield from _paths(value, f"{before}{name}.")


# -- what was asked for --------------------------------------------------------------------------


def asked_for(
    expression: Expression, ad: Ad, target: Ad | None, context: Callable[[], Context]
) -> list[tuple[str, Value]]:
    """Each attribute the expression looks at, and its value, in order of their names."""
    paths = sorted(dependencies(expression))
    return [(path, parse(path).evaluate(ad, target, context())) for path in paths]


# -- layout --------------------------------------------------------------------------------------


def has_comments(text: str) -> bool:
    return any(found.group()[0] == "/" for found in _STRING_OR_COMMENT.finditer(text))


def laid_out(text: str) -> str:
    """An ad with an attribute a line; ads within it, too, unless they are short."""
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
    """Quoted where it would not be a name."""
    return unparse(parse("'" + name.replace("\\", "\\\\").replace("'", "\\'") + "'"))
