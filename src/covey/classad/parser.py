"""Parses tokens into a tree. Operators have the precedence of the reference, and a tree has a
limited depth, so that no function that walks it can run out of stack."""

from typing import Any, Callable, Dict, List, Tuple

from covey.classad.ads import Ad
from covey.classad.lexer import Token, tokens
from covey.classad.nodes import Call, ListNode, Literal, Node, Operation, Reference
from covey.classad.times import parse_absolute, parse_relative
from covey.classad.values import RelTime, SyntaxProblem

NESTING = 400  # nested calls of the parser: about eighty nested brackets
DEPTH = 200  # of the tree; also the longest chain of operators
DEEP = "an expression that is nested less deeply"
LEVELS = ("||", "&&", "|", "^", "&", "== != is isnt", "< <= > >=", "<< >> >>>", "+ -", "* / %")
FOREIGN = {"and": "&&", "or": "||", "not": "!", "=": "=="}
BINDING = {op: level for level, ops in enumerate(LEVELS) for op in ops.split()}


def parse_expression(text: str) -> Node:
    """The tree of `text`, which must be one expression."""
    parser = Parser(text)
    node = parser.expression()
    parser.take("end", "an operator or the end")
    return node


def parse_ad(text: str) -> Ad:
    """The ad in `text`, in brackets."""
    parser = Parser(text)
    parser.take("[", "[")
    ad = parser.ad(0)
    parser.take("end", "the end")
    return ad


def _span(text: str) -> Any:
    seconds = parse_relative(text)
    return None if seconds is None else RelTime(seconds)


TIMES: Dict[str, Callable[[str], Any]] = {
    "abstime": lambda text: parse_absolute(text, 0),
    "reltime": _span,
}


class Parser:
    """One pass over the tokens of a text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens: List[Token] = tokens(text)
        self.at = self.nesting = 0

    def fail(self, expected: str) -> SyntaxProblem:
        return SyntaxProblem(self.text, self.tokens[self.at][2], expected + self.hint())

    def hint(self) -> str:
        """A hint for words and signs of other languages."""
        here = self.tokens[self.at]
        before = self.tokens[self.at - 1] if self.at else here
        for kind, value, _ in (here, before):
            word = value.lower() if kind == "name" else kind
            meant = FOREIGN.get(word)
            if meant and (word != "not" or kind == "name"):
                return ": write %s for %s" % (meant, word)
        return ""

    def take(self, kind: str, expected: str) -> Token:
        if not self.skip(kind):
            raise self.fail(expected)
        return self.tokens[self.at - 1]

    def skip(self, kind: str) -> bool:
        """Takes the next token if it is of this kind; returns whether it was."""
        matches = self.tokens[self.at][0] == kind
        self.at += matches
        return matches

    def deeper(self, calls: int) -> None:
        self.nesting += calls
        if self.nesting > NESTING:
            raise self.fail(DEEP)

    def operation(self, op: str, operands: Tuple[Node, ...], position: int) -> Node:
        node = Operation(op, operands, position)
        if node.depth > DEPTH:
            raise SyntaxProblem(self.text, position, DEEP)
        return node

    def expression(self) -> Node:
        self.deeper(5)
        node = self.binary(0)
        position = self.tokens[self.at][2]
        if self.skip("?"):
            yes = self.expression()
            self.take(":", ": and the value if the condition is false")
            node = self.operation("?:", (node, yes, self.expression()), position)
        self.nesting -= 5
        return node

    def binary(self, least: int) -> Node:
        node = self.unary()
        while True:
            op, _, position = self.tokens[self.at]
            level = BINDING.get(op, -1)
            if level < least:
                return node
            self.at += 1
            self.deeper(1)
            node = self.operation(op, (node, self.binary(level + 1)), position)
            self.nesting -= 1

    def unary(self) -> Node:
        first = self.at
        while self.tokens[self.at][0] in ("-", "+", "!", "~"):
            self.at += 1
        signs = self.tokens[first : self.at]
        node = self.postfix()
        for op, _, position in reversed(signs):
            node = self.operation(op, (node,), position)
        return node

    def postfix(self) -> Node:
        node = self.primary()
        while True:
            position = self.tokens[self.at][2]
            if self.skip("."):
                name = self.take("name", "the name of an attribute")
                node = Reference(node, name[1], False, name[2])
                if node.depth > DEPTH:
                    raise self.fail(DEEP)
            elif self.skip("["):
                node = self.operation("[]", (node, self.expression()), position)
                self.take("]", "]")
            elif self.skip("?:"):
                self.deeper(1)
                node = self.operation("?:", (node, self.postfix()), position)
                self.nesting -= 1
            else:
                return node

    def primary(self) -> Node:
        kind, value, position = self.tokens[self.at]
        self.at += 1
        if kind == "value":
            return Literal(value, position)
        if kind == "name":
            called = self.skip("(")
            return self.call(value, position) if called else Reference(None, value, False, position)
        if kind == ".":
            name = self.take("name", "the name of an attribute")
            return Reference(None, name[1], True, position)
        if kind == "(":
            node = self.expression()
            self.take(")", "an operator or )")
            return self.operation("()", (node,), position)
        if kind == "{":
            return ListNode(self.items("}"), position)
        if kind == "[":
            return self.ad(position)
        self.at -= 1
        raise self.fail("an expression")

    def call(self, name: str, position: int) -> Node:
        arguments = self.items(")")
        first = arguments[0] if len(arguments) == 1 else None
        if name.lower() in TIMES and isinstance(first, Literal) and isinstance(first.value, str):
            time = TIMES[name.lower()](first.value)
            if time is None:
                raise SyntaxProblem(self.text, first.position, "a time")
            return Literal(time, position)
        return Call(name, arguments, position)

    def items(self, closing: str) -> Tuple[Node, ...]:
        if self.skip(closing):
            return ()
        nodes = [self.expression()]
        while not self.skip(closing):
            self.take(",", "an operator, a comma or " + closing)
            nodes.append(self.expression())
        return tuple(nodes)

    def ad(self, position: int) -> Ad:
        ad = Ad()
        ad.position = position
        self.deeper(1)
        while not self.skip("]"):
            if self.skip(";"):
                if self.tokens[self.at][0] == "]" and not len(ad):
                    raise self.fail("the name of an attribute")
                continue
            name = self.take("name", "the name of an attribute or ]")[1]
            self.take("=", "=")
            ad.bind(name, self.expression())
            if self.tokens[self.at][0] not in (";", "]"):
                raise self.fail("an operator, ; or ]")
        self.nesting -= 1
        return ad
