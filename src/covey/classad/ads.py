"""Ads: attribute names, which ignore case, and their values.

A table keeps plain values as they are and everything else as nodes. Beside it, `quick` keeps values
that compiled code may use without a check of their type: the first character of a key says what the
value certainly is (`#` a small number, `?` a boolean, `"` a string, `$` a string folded for
comparison, `@` the `quick` of an ad inside, `=` any plain value). Other values are missing there.
"""

from typing import Any, Dict, Iterator, List, Mapping, Optional, Tuple

from covey.classad.nodes import ListNode, Literal, Node
from covey.classad.values import (
    AbsTime,
    ClassAdError,
    Context,
    RelTime,
    Special,
    Value,
    folded,
    wrapped,
)

PLAIN = frozenset([bool, int, float, str, Special, AbsTime, RelTime])
SMALL = 1 << 43  # sums and products of such numbers stay exact for a while, whole or real


class Ad(Node):
    """Attributes by name. Names that are not here are looked up in `parent`, the ad around it."""

    def __init__(self, attributes: Any = (), parent: Optional["Ad"] = None) -> None:
        self.table: Dict[str, Any] = {}
        self.spelled: Dict[str, str] = {}
        self.quick: Dict[str, Any] = {}
        self.shape = 0  # changes with everything except one plain value for another
        self.parent = parent
        mapping = isinstance(attributes, (Mapping, Ad))
        for name, value in attributes.items() if mapping else attributes:
            self[name] = value

    def __setitem__(self, name: str, value: Any) -> None:
        self.bind(name, as_node(value))

    def bind(self, name: str, node: Node) -> None:
        """Add `name = node`, as in a text."""
        key = name.lower()
        value = node.value if isinstance(node, Literal) else node
        if isinstance(value, Ad) and value.parent is None:
            outer: Optional[Ad] = self
            while outer is not None:
                if outer is value:
                    raise ClassAdError("an ad cannot contain itself")
                outer = outer.parent
            value.parent = self
        if value.__class__ not in PLAIN or self.table.get(key).__class__ not in PLAIN:
            self.shape += 1
        self.spelled.setdefault(key, name)
        self.table[key] = value
        self._index(key, value)

    def _index(self, key: str, value: Any) -> None:
        quick, kind = self.quick, value.__class__
        if "=" + key in quick or "@" + key in quick:
            for mark in '=#?"$@':
                quick.pop(mark + key, None)
        if kind is Ad:
            quick["@" + key] = value.quick
        elif kind is str:
            quick["=" + key] = quick['"' + key] = value
            quick["$" + key] = folded(value)
        elif kind is bool:
            quick["=" + key] = quick["?" + key] = value
        elif kind is int or kind is float:
            quick["=" + key] = value
            if -SMALL < value < SMALL:
                quick["#" + key] = value

    def __delitem__(self, name: str) -> None:
        key = name.lower()
        del self.table[key], self.spelled[key]
        self._index(key, None)
        self.shape += 1

    def __getitem__(self, name: str) -> Any:
        return self.table[name.lower()]

    def get(self, name: str, default: Any = None) -> Any:
        return self.table.get(name.lower(), default)

    def __contains__(self, name: str) -> bool:
        return name.lower() in self.table

    def __iter__(self) -> Iterator[str]:
        return iter(self.spelled.values())

    def __len__(self) -> int:
        return len(self.table)

    def items(self) -> List[Tuple[str, Any]]:
        """Names as they were first spelled, in order, with their values or nodes."""
        return [(name, self.table[key]) for key, name in self.spelled.items()]

    def within(self, parent: Optional["Ad"]) -> "Ad":
        """This ad as it is seen inside `parent`: the same attributes at another place."""
        if self.parent is parent:
            return self
        view: Ad = Ad.__new__(Ad)
        view.table, view.spelled, view.quick = self.table, self.spelled, self.quick
        view.shape, view.position, view.parent = self.shape, self.position, parent
        return view

    def evaluate(
        self, name: str, target: Optional["Ad"] = None, context: Optional[Context] = None
    ) -> Value:
        """The value of an attribute; UNDEFINED if there is none. Never raises."""
        from covey.classad.evaluation import evaluate_attribute

        return evaluate_attribute(self, name, target, context)

    @property
    def children(self) -> Tuple[Node, ...]:  # type: ignore[override]
        return tuple(as_node(value) for value in self.table.values())

    @property
    def depth(self) -> int:  # type: ignore[override]
        return 1 + max([node.depth for node in self.children] + [0])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Ad) or self.table.keys() != other.table.keys():
            return False
        return all(as_node(self.table[key]) == as_node(other.table[key]) for key in self.table)

    def __hash__(self) -> int:
        return hash(frozenset(self.table))


def as_node(value: Any) -> Node:
    """The node for a Python value; nodes and objects with a `node` give that node."""
    if isinstance(value, Node):
        return value
    if value.__class__ in PLAIN:
        return Literal(wrapped(value) if value.__class__ is int else value)
    if hasattr(value, "node"):
        return as_node(value.node)
    if isinstance(value, Mapping):
        return Ad(value)
    if isinstance(value, (list, tuple)):
        return ListNode(tuple(as_node(item) for item in getattr(value, "nodes", value)))
    for kind in (int, float, str):
        if isinstance(value, kind):
            return as_node(kind(value))  # of a class derived from one of these
    raise TypeError("%r is not a ClassAd value" % (value,))
