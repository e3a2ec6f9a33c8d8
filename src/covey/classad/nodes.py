"""The tree that a text is parsed into. A node never changes. It knows its position in the text, how
many nodes it has, how deep it is and what compiling it costs. Nodes with the same content are
equal."""

from typing import Any, Callable, Optional, Tuple

from covey.classad.values import Value


class Node:
    """`says` is the content of a node besides its `children`; `code` is its compiled code, or
    None."""

    position = 0
    size = depth = levels = work = 1
    says: Any = ()
    children: Tuple["Node", ...] = ()
    code: Optional[Callable[[Any, Any], Value]] = None

    def measure(self, says: Any, children: Tuple["Node", ...], position: int) -> None:
        self.says, self.children, self.position = says, children, position
        if children:
            self.size = 1 + sum(node.size for node in children)
            self.work = 1 + sum(node.work for node in children)
            self.depth = 1 + max(node.depth for node in children)
            self.levels = 1 + self.depth // 36

    def __getstate__(self) -> Any:
        return {name: value for name, value in self.__dict__.items() if name != "code"}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Node) or self.__class__ is not other.__class__:
            return False
        return bool(self.says == other.says and self.children == other.children)

    def __hash__(self) -> int:
        return hash(self.says)

    def __repr__(self) -> str:
        return "%s(%r, %r)" % (self.__class__.__name__, self.says, self.children)


class Literal(Node):
    """A constant value."""

    def __init__(self, value: Value, position: int = 0) -> None:
        self.value, self.position = value, position
        self.says = (value.__class__, repr(value))  # 1 is not 1.0, and 0.0 is not -0.0


class Reference(Node):
    """`name`, `.name` (absolute) or `scope.name`."""

    def __init__(
        self, scope: Optional[Node], name: str, absolute: bool = False, position: int = 0
    ) -> None:
        self.scope, self.name, self.absolute, self.key = scope, name, absolute, name.lower()
        self.measure((self.key, absolute), () if scope is None else (scope,), position)


class Operation(Node):
    """An operator and its operands: `()` stands for parentheses, `[]` for a subscript, `?:` with
    three operands for a choice and with two for a default, `is` and `isnt` for `=?=` and `=!=`."""

    def __init__(self, op: str, operands: Tuple[Node, ...], position: int = 0) -> None:
        self.op, self.operands = op, operands
        self.measure(op, operands, position)


class Call(Node):
    """A function call: the name as it was written, and the arguments."""

    def __init__(self, name: str, arguments: Tuple[Node, ...], position: int = 0) -> None:
        self.name, self.arguments, self.key = name, arguments, name.lower()
        self.measure(self.key, arguments, position)
        self.size += 2  # a call costs more than most nodes


class ListNode(Node):
    """`{ … }`"""

    def __init__(self, items: Tuple[Node, ...], position: int = 0) -> None:
        self.items = items
        self.measure((), items, position)
        self.work = 1  # each item is compiled when it is needed
