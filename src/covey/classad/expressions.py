"""The expression object that callers use: it has the text, the tree and the code."""

from typing import Any, Optional

from covey.classad.ads import Ad
from covey.classad.evaluation import evaluate
from covey.classad.nodes import Node
from covey.classad.parser import parse_expression
from covey.classad.unparse import unparse
from covey.classad.values import Context, Value


class Expression:
    """A parsed expression; equal to another one with the same tree."""

    __slots__ = ("node",)

    def __init__(self, node: Node) -> None:
        self.node = node

    def evaluate(
        self,
        ad: Optional[Ad] = None,
        target: Optional[Ad] = None,
        context: Optional[Context] = None,
    ) -> Value:
        """Its value in `ad`, with `target` as the other side of a match. Never raises."""
        return evaluate(self.node, ad, target, context)

    def __str__(self) -> str:
        return unparse(self.node)

    def __repr__(self) -> str:
        return "Expression(%r)" % str(self)

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Expression) and self.node == other.node

    def __hash__(self) -> int:
        return hash(self.node)


def parse(text: str) -> Expression:
    """The expression in `text`. Raises SyntaxProblem."""
    return Expression(parse_expression(text))
