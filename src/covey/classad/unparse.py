"""Writes a tree or a value as text, such that parsing it gives the same tree again.

`unparse(x)` is for people; `unparse(x, True)` is the text that the reference makes, which some
functions show to expressions (like the reference's, it does not always keep a real number exactly).
"""

import re
from typing import Any, Tuple

from covey.classad.ads import Ad, as_node
from covey.classad.lexer import ESCAPES, SIGNS, WORDS
from covey.classad.nodes import Call, ListNode, Literal, Node, Operation, Reference
from covey.classad.parser import BINDING
from covey.classad.times import format_absolute, format_relative
from covey.classad.values import AbsTime, RelTime, Special, Value

Written = Tuple[str, int]  # a text, and its precedence: 1 to 10 for binary operators, then
UNARY, DEFAULT, SELECT, ALONE = 11, 12, 13, 14
BARE = re.compile(r"[A-Za-z_][A-Za-z_0-9]*\Z")
SHORT = {ord(char): "\\" + name.decode() for name, char in ESCAPES.items()}


def unparse(thing: Any, reference: bool = False) -> str:
    """The text of a node, an ad, an expression or a value."""
    return Unparser(reference).text(as_node(thing), 0)


class Unparser:
    """One style of writing."""

    def __init__(self, reference: bool) -> None:
        self.reference = reference
        self.inside = " %s " if reference else "%s"

    def text(self, node: Node, least: int) -> str:
        """The text of the node, in parentheses if its precedence is lower than `least`."""
        text, level = self.write(node)
        return text if level >= least else "(%s)" % text

    def write(self, node: Node) -> Written:
        if isinstance(node, Literal):
            return self.value(node.value), ALONE
        if isinstance(node, Reference):
            return self.refer(node)
        if isinstance(node, Call):
            name = node.name if self.reference else self.name(node.name)
            return "%s(%s)" % (name, self.joined(node.arguments)), ALONE
        if isinstance(node, ListNode):
            return "{%s}" % (self.inside % self.joined(node.items)), ALONE
        if isinstance(node, Ad):
            return "[%s]" % (self.inside % self.attributes(node)), ALONE
        assert isinstance(node, Operation)
        return self.operation(node)

    def value(self, value: Value) -> str:
        kind = value.__class__
        if kind is str:
            return '"%s"' % self.escaped(value, '"')
        if kind is float:
            return self.real(value)
        if kind is AbsTime:
            year, rest = format_absolute(value).split("-", 1)
            return 'absTime("%s-%s")' % (year if self.reference else year.zfill(4), rest)
        if kind is RelTime:
            return 'relTime("%s")' % format_relative(value.seconds)
        return value.name if kind is Special else str(value).lower()

    def real(self, value: float) -> str:
        if value != value:
            return 'real("NaN")'
        if value - value != 0:
            sign = "-" if value < 0 else ""
            return 'real("%sINF")' % sign if self.reference else sign + "1e999"
        if self.reference:
            return "%.15E" % value if value else "%.1f" % value
        return repr(value)

    def escaped(self, text: str, quote: str) -> str:
        short = dict(SHORT)
        short.update({ord("\\"): "\\\\", ord(quote): "\\" + quote})
        return "".join(
            char
            if char.isprintable() and (char < "\x7f" or not self.reference)
            else "".join("\\%03o" % byte for byte in char.encode("utf-8", "surrogateescape"))
            for char in text.translate(short)
        )

    def name(self, name: str) -> str:
        key = name.lower()
        quoted = key in WORDS or key in SIGNS or (key == "parent" and self.reference)
        if BARE.match(name) and not quoted:
            return name
        return "'%s'" % self.escaped(name, "'")

    def joined(self, nodes: Tuple[Node, ...]) -> str:
        return ("," if self.reference else ", ").join([self.text(node, 0) for node in nodes])

    def attributes(self, ad: Ad) -> str:
        pairs = ad.items()
        if self.reference:
            pairs.sort(key=lambda pair: (len(pair[0]), pair[0].lower()))
        texts = ((self.name(name), self.text(as_node(value), 0)) for name, value in pairs)
        return "; ".join("%s = %s" % pair for pair in texts)

    def refer(self, node: Reference) -> Written:
        if node.scope is None:
            return "." * node.absolute + self.name(node.name), ALONE
        scope = self.text(node.scope, SELECT)
        apart = " " if scope[-1].isdigit() and isinstance(node.scope, Literal) else ""
        return scope + apart + "." + (node.name if self.reference else self.name(node.name)), SELECT

    def operation(self, node: Operation) -> Written:
        op, nodes = node.op, node.operands
        if op == "()":
            return "(%s)" % self.text(nodes[0], 0), ALONE
        if op == "[]":
            return "%s[%s]" % (self.text(nodes[0], SELECT), self.text(nodes[1], 0)), SELECT
        if len(nodes) == 1:
            operand = self.text(nodes[0], UNARY)
            apart = op == "-" and operand[0] in ".0123456789" and not self.reference
            return " " * self.reference + op + " " * apart + operand, UNARY
        if len(nodes) == 3:
            texts = self.text(nodes[0], 1), self.text(nodes[1], 0), self.text(nodes[2], 0)
            return "%s ? %s : %s" % texts, 0
        level = DEFAULT if op == "?:" else BINDING[op] + 1
        least = (SELECT, DEFAULT) if op == "?:" else (level, level + 1)
        return "%s %s %s" % (
            self.text(nodes[0], least[0]),
            op,
            self.text(nodes[1], least[1]),
        ), level
