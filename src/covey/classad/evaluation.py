"""Evaluation: an expression is compiled to Python once, and its code takes an ad and a context.

User text never gets into the source: names and strings go through `ascii` or a table of constants.
Every operation is a call of its function in `operators`. A part of a deep expression becomes a
function of its own, so that Python's compiler never meets deep nesting.
"""

from functools import lru_cache, partial
from types import CodeType
from typing import Any, Callable, Dict, List, Optional, Tuple

from covey.classad.ads import PLAIN, Ad
from covey.classad.functions import FUNCTIONS
from covey.classad.nodes import Call, ListNode, Literal, Node, Operation, Reference
from covey.classad.operators import BINARY, UNARY, both, defined, either, no, odd, yes
from covey.classad.values import ERROR, UNDEFINED, Context, Items, TooMuch, Value

Code = Callable[[Optional[Ad], Context], Value]
Written = Tuple[str, int]  # an expression, and how deeply it nests
NESTED = 12  # most nested calls in one generated function
MAKING = 3  # cost of compiling an expression besides its operations and names
INLINE = frozenset([bool, int, str])
SPECIAL_NAMES = frozenset(
    ["my", "self", "parent", "root", "toplevel", "currenttime", "target", "other"]
)


def find(ad: Optional[Ad], name: str, context: Context) -> Value:
    """The value of a name as seen from `ad`: in that ad, or else in the ads around it."""
    while ad is not None:
        entry = ad.table.get(name)
        if entry.__class__ in PLAIN:
            return entry
        if entry is None:
            ad = ad.parent
        elif entry.__class__ is Ad:
            return entry if entry.parent is ad else entry.within(ad)
        else:
            mark = (id(ad.table), name)
            if mark in context.busy:
                return UNDEFINED  # the attribute depends on itself
            context.busy.add(mark)
            value = run(entry, ad, context)
            context.busy.discard(mark)
            return value
    return UNDEFINED


def find_special(ad: Optional[Ad], name: str, context: Context) -> Value:
    """As `find`, for names that have a meaning even if no attribute has this name."""
    if ad is None or name in ad.table:
        return find(ad, name, context)
    if name == "currenttime":
        return int(context.now)
    if name == "parent":
        return UNDEFINED if ad.parent is None else ad.parent
    if name == "root" or name == "toplevel":
        return context.root
    if name == "self" or (name == "my" and context.pair is None):
        return ad
    value = find(ad, name, context)
    if value is UNDEFINED and context.pair is not None:
        left, right = context.pair
        mine = outermost(ad)
        return mine if name == "my" else right if mine.table is left.table else left
    return value


def look(node: Reference, ad: Optional[Ad], context: Context) -> Value:
    """The value of a name without a scope."""
    start = context.root if node.absolute else ad
    return (find_special if node.key in SPECIAL_NAMES else find)(start, node.key, context)


def outermost(ad: Ad) -> Ad:
    while ad.parent is not None:
        ad = ad.parent
    return ad


def run(node: Node, ad: Optional[Ad], context: Context, more: int = 0) -> Value:
    """The value of an expression, within the limits of the context. A level stands for at most five
    frames of Python's stack; an expression that must be compiled first needs room for that, too."""
    levels = node.levels + more
    context.left -= levels
    context.spent += node.size
    if context.left < node.depth or context.spent > context.steps:
        context.refuse()
    if id(node) not in context.made:
        context.once(id(node), node, MAKING + node.work)
    value = (node.code or compiled(node))(ad, context)
    context.left += levels
    return value


def pick(scope: Value, name: str, context: Context) -> Value:
    """`scope.name`: from an ad, or from each ad of a list."""
    if scope.__class__ is Ad:
        value = scope.table.get(name)
        if value.__class__ in PLAIN:
            return value
        return (find_special if name in SPECIAL_NAMES else find)(scope, name, context)
    if isinstance(scope, list):
        context.enter(len(scope))
        values = [pick(each, name, context) for each in scope]
        context.left += 1
        return Items(values, itself)
    return UNDEFINED if scope is UNDEFINED else ERROR


def select(ad: Optional[Ad], scope: str, name: str, context: Context) -> Value:
    """`scope.name` in one step, for the usual case: a plain value in an ad close by."""
    here = ad
    while here is not None:
        entry = here.table.get(scope)
        if entry.__class__ is Ad:
            value = entry.table.get(name)
            if value.__class__ in PLAIN:
                return value
            break
        here = here.parent if entry is None else None
    return pick(find(ad, scope, context), name, context)


def itself(value: Value) -> Value:
    return value


def subscript(whole: Value, place: Value, context: Context) -> Value:
    if whole.__class__ is Ad and place.__class__ is str:
        return find(whole, place.lower(), context) if place in whole else UNDEFINED
    if isinstance(whole, list) and place.__class__ is int:
        place = ((place + (1 << 31)) & 0xFFFFFFFF) - (1 << 31)  # a C int
        return whole[place] if 0 <= place < len(whole) else ERROR
    return odd(whole, place)


def lazy_list(nodes: Tuple[Node, ...], ad: Optional[Ad], context: Context) -> Items:
    def evaluate(node: Node) -> Value:
        if isinstance(node, (Literal, Ad)):  # not worth compiling
            context.spend(1)
            return node.value if isinstance(node, Literal) else node.within(ad)
        return run(node, ad, context, 1)

    return Items(nodes, evaluate)


def lazy_call(call: Any, nodes: Tuple[Node, ...], ad: Optional[Ad], context: Context) -> Value:
    def evaluate(node: Node, within: Optional[Ad] = None) -> Value:
        return run(node, ad if within is None else within, context, 1)

    return call(context, nodes, evaluate)


def call_bound(quick: Any, call: Any, fixed: List[Value], free: Value, context: Context) -> Value:
    """A call with one argument that is not a literal, if the function has a fast path for it."""
    if free.__class__ is str:
        try:
            return quick(free, context)
        except (KeyError, TypeError, ValueError):
            pass  # not for these values
    return call(context, [free if value is None else value for value in fixed])


BINARY_NAMES = {op: "b%d" % number for number, op in enumerate(BINARY)}
UNARY_NAMES = {op: "u%d" % number for number, op in enumerate(UNARY)}
CALLS: List[Any] = [find, find_special, pick, subscript, lazy_list, lazy_call, call_bound, select]
CALLS += [yes, no, both, either, defined]
HELPERS: Dict[str, Any] = {call.__name__: call for call in CALLS}
HELPERS.update({name: BINARY[op] for op, name in BINARY_NAMES.items()})
HELPERS.update({name: UNARY[op] for op, name in UNARY_NAMES.items()})
PATTERNS = {
    ("()", 1): "{0}",
    ("[]", 2): "subscript({0}, {1}, s)",
    ("&&", 2): "(False if no({0}, s) else both(s.kept, {1}))",
    ("||", 2): "(True if yes({0}, s) else either(s.kept, {1}))",
    ("?:", 2): "(s.kept if defined({0}, s) else {1})",
    ("?:", 3): "({1} if yes({0}, s) else {2} if s.no else s.kept)",
}


def function_of(node: Call) -> Any:
    """The function that is called; None if there is none that takes so many arguments."""
    function: Any = FUNCTIONS.get(node.key)
    count = len(node.arguments)
    if function is None or count < function.least:
        return None
    return function if function.most is None or count <= function.most else None


def needed(code: Any, names: Dict[str, Any]) -> Dict[str, Any]:
    """The names that the code uses. A thousand policies with a small table each stay in the
    processor's cache; with all helpers in each table they do not, and take three times as long."""
    used = {name: names[name] for name in code.co_names if name in names}
    for part in code.co_consts:
        if isinstance(part, CodeType):
            used.update(needed(part, names))
    used["__builtins__"] = {}
    return used


class Writer:
    """Writes the source for one expression, with the constants that it needs."""

    def __init__(self) -> None:
        self.names: Dict[str, Any] = dict(HELPERS)

    def constant(self, value: Any) -> str:
        name = "k%d" % len(self.names)
        self.names[name] = value
        return name

    def compiled(self, source: str) -> Any:
        code = compile("lambda ad, s: " + source, "<classad>", "eval")
        return eval(code, needed(code, self.names))  # noqa: S307 # only source that we wrote

    def literal(self, value: Value) -> str:
        if value.__class__ in INLINE or (value.__class__ is float and abs(value) < 1e300):
            return "(%a)" % (value,)
        return self.constant(value)

    def write(self, node: Node) -> Written:
        """A Python expression for the value of the node."""
        if isinstance(node, Literal):
            return self.literal(node.value), 0
        if isinstance(node, Ad):
            return "%s.within(ad)" % self.constant(node), 1
        if isinstance(node, ListNode):
            return "lazy_list(%s, ad, s)" % self.constant(node.items), 1
        if isinstance(node, Reference):
            text, depth = self.reference(node)
        elif isinstance(node, Call):
            text, depth = self.call(node)
        else:
            assert isinstance(node, Operation)
            text, depth = self.operation(node)
        if depth < NESTED:
            return text, depth
        return "%s(ad, s)" % self.constant(self.compiled(text)), 1

    def reference(self, node: Reference) -> Written:
        if node.scope is not None:
            scope, depth = self.write(node.scope)
            if scope.startswith("find(ad, ") and node.key not in SPECIAL_NAMES:
                return "select(%s, %a, s)" % (scope[5:-4], node.key), 1
            return "pick(%s, %a, s)" % (scope, node.key), depth + 1
        call = "find_special" if node.key in SPECIAL_NAMES else "find"
        return "%s(%s, %a, s)" % (call, "s.root" if node.absolute else "ad", node.key), 1

    def call(self, node: Call) -> Written:
        function = function_of(node)
        if function is None:
            return self.constant(ERROR), 0
        call = self.constant(function.call)
        if function.lazy:
            return "lazy_call(%s, %s, ad, s)" % (call, self.constant(node.arguments)), 1
        texts, depth = self.several(node.arguments)
        fixed = [each.value if isinstance(each, Literal) else None for each in node.arguments]
        bound = function.bind(fixed) if function.bind and fixed.count(None) == 1 else None
        if bound is not None:
            free = texts[fixed.index(None)]
            return "call_bound(%s, %s, %s, %s, s)" % (
                self.constant(bound), call, self.constant(fixed), free), depth  # fmt: skip
        return "%s(s, [%s])" % (call, ", ".join(texts)), depth

    def several(self, nodes: Tuple[Node, ...]) -> Tuple[Tuple[str, ...], int]:
        written = [self.write(node) for node in nodes]
        return tuple(text for text, _ in written), 1 + max([depth for _, depth in written] + [0])

    def operation(self, node: Operation) -> Written:
        first = node.operands[0]
        if len(node.operands) == 3 and isinstance(first, Operation) and first.op == "!":
            swapped = (*first.operands, *node.operands[:0:-1])  # saves the negation
            return self.operation(Operation("?:", swapped))
        texts, depth = self.several(node.operands)
        if (node.op, len(texts)) in PATTERNS:
            return PATTERNS[node.op, len(texts)].format(*texts), depth
        name = BINARY_NAMES[node.op] if len(texts) == 2 else UNARY_NAMES[node.op]
        return "%s(%s, s)" % (name, ", ".join(texts)), depth


def compiled(node: Node) -> Code:
    """The code of an expression, made when it is first needed."""
    if node.code is None and isinstance(node, ListNode):
        node.code = partial(lazy_list, node.items)  # needs no generated source
    if node.code is None and isinstance(node, Reference) and node.scope is None:
        node.code = partial(look, node)
    if node.code is None:
        writer = Writer()
        node.code = writer.compiled(writer.write(node)[0])
    return node.code


def settled(value: Value, context: Context) -> Value:
    """The value with all elements of lists evaluated."""
    if isinstance(value, list):
        context.enter(len(value))
        value = [settled(item, context) for item in value]
        context.left += 1
    return value


def guarded(node: Node, ad: Optional[Ad], context: Context) -> Value:
    """The value of an expression; ERROR, with `context.reason`, if a limit is exceeded."""
    try:
        context.spent, context.making = node.size, MAKING + node.work
        if context.made:
            context.made = {}
        if node.size > context.steps or context.making > context.work:
            context.refuse()
        value = (node.code or compiled(node))(ad, context)
        return settled(value, context) if isinstance(value, list) else value
    except (TooMuch, RecursionError) as error:
        spent = context.spent
        context.start(context.root, context.pair)
        # Callers count what evaluations cost. Work that was refused was not done.
        context.spent = min(spent, context.steps)
        context.reason = str(error)
        return ERROR


def evaluate(
    node: Node,
    ad: Optional[Ad] = None,
    target: Optional[Ad] = None,
    context: Optional[Context] = None,
) -> Value:
    """The value of an expression in an ad, with `target` as the other side of a match."""
    context = context or Context()
    root = None if ad is None else outermost(ad)
    context.start(root, None if target is None or root is None else (root, target))
    return guarded(node, ad, context)


def evaluate_attribute(
    ad: Ad, name: str, target: Optional[Ad] = None, context: Optional[Context] = None
) -> Value:
    entry = ad.get(name)
    if entry.__class__ in PLAIN:
        return entry
    return evaluate(named(name) if entry is None else entry, ad, target, context)


@lru_cache(1000)
def named(name: str) -> Node:
    """A reference to a name that the ad itself does not have; cached, because it is compiled."""
    return Reference(None, name)
