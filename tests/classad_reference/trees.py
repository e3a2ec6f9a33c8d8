"""Expressions as the generator makes them: trees that can be written down, counted and cut.

They are not the engine's trees: what is tested must not help to write the test.
"""

from collections.abc import Iterator
from typing import NamedTuple


class Tree(NamedTuple):
    """`word` is the literal, the operator, or the name of the function or attribute; `names` are
    the attributes of an ad, one for each child."""

    kind: str
    word: str = ""
    children: tuple["Tree", ...] = ()
    names: tuple[str, ...] = ()


class Question(NamedTuple):
    """What is asked of both engines: an expression, the ad it stands in, and the other ad."""

    expression: Tree
    ad: Tree
    target: Tree | None = None

    def texts(self) -> tuple[str, str, str | None]:
        target = None if self.target is None else render(self.target)
        return render(self.expression), render(self.ad), target


def leaf(word: str) -> Tree:
    return Tree("leaf", word)


def render(tree: Tree) -> str:
    """No parentheses are added: those that are wanted are in the tree."""
    parts = [render(child) for child in tree.children]
    match tree.kind:
        case "leaf" | "name":
            return tree.word
        case "paren":
            return f"({parts[0]})"
        case "unary":
            return tree.word + parts[0]
        case "binary":
            return f"{parts[0]} {tree.word} {parts[1]}"
        case "ternary":
            return f"{parts[0]} ? {parts[1]} : {parts[2]}"
        case "call":
            return f"{tree.word}({', '.join(parts)})"
        case "list":
            return "{" + ", ".join(parts) + "}"
        case "ad":
            pairs = zip(tree.names, parts, strict=True)
            return "[" + "; ".join(f"{name} = {part}" for name, part in pairs) + "]"
        case "select":
            return f"{parts[0]}.{tree.word}"
        case "index":
            return f"{parts[0]}[{parts[1]}]"
        case _:
            raise AssertionError(tree.kind)


def walk(tree: Tree) -> Iterator[Tree]:
    yield tree
    for child in tree.children:
        yield from walk(child)


def all_parts(question: Question) -> Iterator[Tree]:
    for tree in (question.expression, question.ad, question.target):
        if tree is not None:
            yield from walk(tree)


def uses(question: Question) -> Iterator[str]:
    """The operators and functions in the expression, as they are counted."""
    for tree in walk(question.expression):
        match tree.kind:
            case "unary" | "binary":
                yield f"{tree.word} ({tree.kind})"
            case "ternary":
                yield "? :"
            case "select":
                yield ". (select)"
            case "index":
                yield "[ ] (subscript)"
            case "list" | "ad":
                yield tree.kind
            case "call":
                yield f"{tree.word.lower()}()"
            case _:
                pass


def size(question: Question) -> int:
    return sum(len(text) for text in question.texts() if text is not None)
