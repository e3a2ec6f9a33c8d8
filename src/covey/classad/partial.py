"""Partial evaluation: attributes that are known are inserted, and the rest stays an expression.

Whatever values the open names get later, the result has the value that the whole would have had.
Lists stay as they are unless they disappear, because expressions can see how they were written."""

from typing import Any, Optional

from covey.classad.ads import Ad, as_node
from covey.classad.depends import needs
from covey.classad.evaluation import evaluate
from covey.classad.expressions import Expression
from covey.classad.functions import FUNCTIONS
from covey.classad.nodes import Call, Literal, Node, Operation
from covey.classad.operators import truth
from covey.classad.values import UNDEFINED, Context, Special

WRITABLE = frozenset([bool, int, float, str, Special])  # that can be literals


def partial(thing: Any, ad: Optional[Ad] = None) -> Expression:
    """The rest of an expression when the attributes of `ad` are known."""
    return Expression(reduced(as_node(thing), Ad() if ad is None else ad))


def reduced(node: Node, ad: Ad) -> Node:
    if isinstance(node, Literal):
        return node
    open_names, calls = needs(node, ad)
    if not open_names and all(steady(name) for name in calls):
        context = Context()
        value = evaluate(node, ad, None, context)
        if value.__class__ in WRITABLE and not context.reason:
            return Literal(value, node.position)
    if isinstance(node, Operation):
        return operation(node, ad)
    if isinstance(node, Call) and steady(node.key):
        arguments = tuple(reduced(argument, ad) for argument in node.arguments)
        return Call(node.name, arguments, node.position)
    return node


def steady(name: str) -> bool:
    """Whether a function's result depends only on the values of its arguments."""
    function = FUNCTIONS.get(name)
    return function is None or (function.pure and not function.lazy)


def operation(node: Operation, ad: Ad) -> Node:
    """An operation with open names; its value may be known nevertheless."""
    first, rest = reduced(node.operands[0], ad), node.operands[1:]
    if isinstance(first, Literal):
        decided = truth(first.value)
        if node.op == "?:" and len(rest) == 1:
            return reduced(rest[0], ad) if first.value is UNDEFINED else first
        if node.op == "?:":
            if isinstance(decided, Special):
                return Literal(decided, node.position)
            return reduced(rest[0] if decided else rest[1], ad)
        if (node.op == "&&" and decided is False) or (node.op == "||" and decided is True):
            return Literal(decided, node.position)
    operands = (first,) + tuple(reduced(operand, ad) for operand in rest)
    return Operation(node.op, operands, node.position)
