"""Functions that decide which of their arguments are evaluated, and where."""

from typing import Any, Callable, Tuple

from covey.classad.ads import Ad, as_node
from covey.classad.functions.convert import odd, text_of, written
from covey.classad.functions.patterns import search
from covey.classad.functions.table import FUNCTIONS, Function
from covey.classad.nodes import Node, Reference
from covey.classad.parser import parse_expression
from covey.classad.unparse import unparse
from covey.classad.values import ERROR, UNDEFINED, Context, SyntaxProblem, Value

Nodes = Tuple[Node, ...]
Evaluate = Callable[..., Value]
_SELF = Reference(None, "self")


def _if(context: Context, nodes: Nodes, evaluate: Evaluate) -> Value:
    condition = evaluate(nodes[0])
    if condition.__class__ in (bool, int, float):
        return evaluate(nodes[1] if condition else nodes[2])
    return odd(condition)


def _eval(context: Context, nodes: Nodes, evaluate: Evaluate) -> Value:
    text = text_of(context, evaluate(nodes[0]))
    if text.__class__ is not str:
        return ERROR
    context.spend(8 * len(text))
    try:
        return evaluate(parse_expression(text))
    except SyntaxProblem as problem:
        context.reason = str(problem)
        return ERROR


def _bound(node: Node, evaluate: Evaluate) -> Any:
    """The node that a name is bound to, in its ad or one around it; None if there is none."""
    ad = evaluate(node.scope or _SELF) if isinstance(node, Reference) else None
    while isinstance(node, Reference) and isinstance(ad, Ad):
        if node.name in ad:
            return as_node(ad[node.name])
        ad = ad.parent
    return None


def _unparse(context: Context, nodes: Nodes, evaluate: Evaluate) -> Value:
    """The text of an attribute of this ad, unevaluated."""
    if not isinstance(nodes[0], Reference):
        return ERROR
    ad, name = evaluate(_SELF), unparse(nodes[0], True)
    return written(context, ad[name]) if isinstance(ad, Ad) and name in ad else ""


def _unresolved(context: Context, nodes: Nodes, evaluate: Evaluate) -> Value:
    """The names that an attribute needs from outside, or whether one of them matches a pattern."""
    from covey.classad.depends import dependencies

    bound = _bound(nodes[0], evaluate)
    if bound is None:
        if not isinstance(nodes[0], Reference):
            return ERROR
        within = evaluate(nodes[0].scope or _SELF)
        return UNDEFINED if not isinstance(within, list) else False if nodes[1:] else ""
    context.spend(10 * bound.size)
    names = sorted(dependencies(bound, evaluate(_SELF)))
    names = [name.replace("target.", "", 1) for name in names]
    if not nodes[1:]:
        return ",".join(names)
    pattern = evaluate(nodes[1])
    return search(context, pattern, names, "i", False) if pattern.__class__ is str else ERROR


def _each(context: Context, nodes: Nodes, evaluate: Evaluate) -> Value:
    """The values of the first argument in each ad of the second argument, a list."""
    expression, within = _bound(nodes[0], evaluate), evaluate(nodes[1])
    expression = nodes[0] if expression is None else expression  # an empty ad counts, too
    if not isinstance(within, list):
        return odd(within)
    context.spend(len(within))
    return [evaluate(expression, ad) if isinstance(ad, Ad) else odd(ad) for ad in within]


def _count(context: Context, nodes: Nodes, evaluate: Evaluate) -> Value:
    results = _each(context, nodes, evaluate)
    if not isinstance(results, list):
        return 0 if results is UNDEFINED else ERROR
    return sum(1 for result in results if result.__class__ in (bool, int, float) and result)


def _lazy(name: str, call: Callable[..., Value], *counts: int, pure: bool = False) -> None:
    FUNCTIONS[name.lower()] = Function(name, call, counts[0], counts[-1], True, pure)


_lazy("ifThenElse", _if, 3, pure=True)
_lazy("eval", _eval, 1)
_lazy("debug", lambda context, nodes, evaluate: evaluate(nodes[0]), 1, pure=True)
_lazy("unparse", _unparse, 1)
_lazy("unresolved", _unresolved, 1, 2)
_lazy("evalInEachContext", _each, 2)
_lazy("countMatches", _count, 2)
