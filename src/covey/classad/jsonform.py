"""Ads as JSON, in HTCondor's form: other expressions are strings `"\\/Expr(…)\\/"`."""

import json
import re
from typing import Any

from covey.classad.ads import Ad, as_node
from covey.classad.nodes import ListNode, Literal, Node
from covey.classad.parser import NESTING, parse_expression
from covey.classad.unparse import unparse
from covey.classad.values import UNDEFINED, ClassAdError

# An unclosed string matches, too: otherwise it would be read again from each quote inside it.
STRING = re.compile(r'"((?:[^"\\]|\\.)*)("?)', re.DOTALL)
MARK = "\\uf8ffExpr:"  # replaces the escaped slashes, which a JSON reader would not show


def to_json(thing: Any) -> str:
    """The JSON text of an ad or a value."""
    return written(as_node(thing))


def written(node: Node) -> str:
    if isinstance(node, Ad):
        pairs = ((json.dumps(name), written(as_node(value))) for name, value in node.items())
        return "{%s}" % ", ".join("%s: %s" % pair for pair in pairs)
    if isinstance(node, ListNode):
        return "[%s]" % ", ".join(written(item) for item in node.items)
    if isinstance(node, Literal):
        value = node.value
        if value.__class__ in (bool, int, str) or (value.__class__ is float and value - value == 0):
            return json.dumps(value)
        if value is UNDEFINED:
            return "null"
    return '"\\/Expr(%s)\\/"' % json.dumps(unparse(node))[1:-1]


def from_json(text: str) -> Ad:
    """The ad in a JSON text. Raises ClassAdError."""
    try:
        node = _node(json.loads(STRING.sub(_marked, text)), 0)
    except (RecursionError, ValueError) as error:
        if isinstance(error, ClassAdError):
            raise
        raise ClassAdError("not JSON: %s" % error) from None
    if not isinstance(node, Ad):
        raise ClassAdError("not a JSON object")
    return node


def _marked(match: Any) -> str:
    inside: str = match.group(1)
    if match.group(2) and inside.startswith("\\/Expr(") and inside.endswith(")\\/"):
        return '"%s%s"' % (MARK, inside[7:-3])
    whole: str = match.group()
    return whole


def _node(content: Any, depth: int) -> Node:
    if depth > NESTING // 5:
        raise ClassAdError("the JSON is nested too deeply")
    if isinstance(content, dict):
        ad = Ad()
        for name, value in content.items():
            ad.bind(name, _node(value, depth + 1))
        return ad
    if isinstance(content, list):
        return ListNode(tuple(_node(item, depth + 1) for item in content))
    if content is None:
        return Literal(UNDEFINED)
    if isinstance(content, str) and content.startswith("\uf8ffExpr:"):
        return parse_expression(content[6:])
    return as_node(content)
