"""Policies: several attributes of one ad, evaluated against ads that change all the time.

The fast path is plain Python on values whose types are known from their place: see `quick` in ads.
A value that is missing or of another type raises, and then the general path answers; so the two
always agree. Numbers in `quick` are small, and the operations limit how large a result can be: if
it may leave the range in which integers and reals agree, the code checks. The code has a limited
size and no loops, so it keeps the limits of an evaluation as well.

Literals are not in the code but in a table beside it. So policies that differ only in numbers and
names, as those of a thousand bags do, share one code, which stays in the processor's cache.
"""

from functools import lru_cache
from typing import Any, Callable, Dict, List, Sequence, Tuple

from covey.classad.ads import PLAIN, SMALL, Ad
from covey.classad.evaluation import (
    BINARY_NAMES,
    HELPERS,
    function_of,
    guarded,
    named,
    outermost,
)
from covey.classad.nodes import Call, Literal, Node, Operation, Reference
from covey.classad.values import UNDEFINED, Context, Value, folded

Written = Tuple[str, int]  # source text, and an upper bound of its value if that is a number
SAFE = 1 << 53  # below this, every integer is a real number, too
LARGEST = 500  # nodes in the code of one policy, including attributes that it refers to
DEEPEST = 30  # nesting that old compilers can handle
ODD = (KeyError, TypeError, ValueError, ArithmeticError)
COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")
CALCULATIONS = ("+", "-", "*", "/", "%")
LOGIC = {"&&": "and", "||": "or"}
FLAGS = (*COMPARISONS, *LOGIC, "!", "is", "isnt")
MARKS = {bool: "?", int: "#", float: "#", str: "$"}


class Meter:
    """The steps of all evaluations on the general path since somebody reset it. There is one for
    all policies: an object for each would cost as much as the fast path itself."""

    def __init__(self) -> None:
        self.used = 0


METER = Meter()


class Unfit(Exception):
    """There is no fast path for this expression."""


def checked(number: Any) -> Any:
    """The number itself; raises KeyError if it is not a number or too large."""
    if (number.__class__ is int or number.__class__ is float) and -SAFE < number < SAFE:
        return number
    raise KeyError(number)


SHARED: Dict[str, Any] = dict(
    HELPERS, __builtins__={}, ODD=ODD, checked=checked, none=None, context=Context()
)


@lru_cache(1000)
def code_of(source: str) -> Any:
    return compile(source, "<policy>", "exec")


@lru_cache(10000)
def shared(_: type, value: Any) -> Any:
    """Equal literals are one object, which stays in the cache: most policies have 0, 1 and 0.1."""
    return value


class Fast:
    """Source for the fast path of an ad's attributes. The wanted type is a mark, as in `quick`."""

    def __init__(self, ad: Ad, roles: Sequence[str]) -> None:
        self.ad, self.roles = ad, roles
        self.used: List[str] = []
        self.within: List[str] = []
        self.size = self.depth = 0
        self.constants: List[Any] = []

    def constant(self, value: Any) -> str:
        shareable = value.__class__ in (int, float, bytes, str) and value != 0  # 0.0 is not -0.0
        self.constants.append(shared(value.__class__, value) if shareable else value)
        return "k[%d]" % (len(self.constants) - 1)

    def text(self, node: Node, want: str) -> str:
        return self.write(node, want)[0]

    def write(self, node: Node, want: str) -> Written:
        self.size += 1
        self.depth += 1
        if self.size > LARGEST or self.depth > DEEPEST:
            raise Unfit
        if isinstance(node, Literal):
            written = self.literal(node.value, want)
        elif isinstance(node, Reference):
            written = self.reference(node, want)
        elif isinstance(node, Call):
            written = self.call(node, want), 0
        elif isinstance(node, Operation):
            written = self.operation(node, want)
        else:
            raise Unfit
        self.depth -= 1
        return written

    def literal(self, value: Value, want: str) -> Written:
        mark = MARKS.get(value.__class__)
        if mark is None or want not in ("=", mark, '"' if mark == "$" else mark):
            raise Unfit
        if mark == "#" and not -SAFE < value < SAFE:
            raise Unfit
        bound = abs(int(value)) + 1 if mark == "#" else 0
        return self.constant(folded(value) if want == "$" else value), bound

    def reference(self, node: Reference, want: str) -> Written:
        if node.absolute:
            raise Unfit
        if node.scope is not None and not self.is_own(node.scope):
            return "%s[%a]" % (self.place(node.scope), want + node.key), SMALL
        entry = self.ad.table.get(node.key)
        if entry.__class__ in PLAIN:
            return "own[%a]" % (want + node.key), SMALL
        if entry is None or node.key in self.within:
            raise Unfit
        self.within.append(node.key)
        written = self.write(entry, want)
        self.within.pop()
        return written

    def is_own(self, node: Node) -> bool:
        mine = isinstance(node, Reference) and node.scope is None and node.key in ("my", "self")
        return mine and node.key not in self.ad.table  # type: ignore[attr-defined]

    def place(self, node: Node) -> str:
        """The source for the `quick` of the ad that a scope refers to."""
        if not isinstance(node, Reference) or node.absolute:
            raise Unfit
        if node.scope is not None:
            return "%s[%a]" % (self.place(node.scope), "@" + node.key)
        if node.key in self.ad.table:
            return "own[%a]" % ("@" + node.key)
        if node.key not in self.roles:
            raise Unfit
        if node.key not in self.used:
            self.used.append(node.key)
        return "q%d" % self.roles.index(node.key)

    def mark(self, node: Node, depth: int = 0) -> str:
        """The mark of a node's probable type; "" if it is not known."""
        if isinstance(node, Literal):
            return MARKS.get(node.value.__class__, "")
        if isinstance(node, Operation):
            if node.op in ("()", "?:"):
                return self.mark(node.operands[-1], depth)
            return "#" if node.op in CALCULATIONS else "?" if node.op in FLAGS else ""
        if isinstance(node, Reference) and node.scope is None and depth < DEEPEST:
            entry = self.ad.get(node.key)
            is_node = isinstance(entry, Node)
            return self.mark(entry, depth + 1) if is_node else MARKS.get(entry.__class__, "")
        return ""

    def call(self, node: Call, want: str) -> str:
        function = function_of(node)
        if function is None or function.bind is None or want not in ("=", "?"):
            raise Unfit
        fixed = [each.value if isinstance(each, Literal) else None for each in node.arguments]
        bound = function.bind(fixed)
        if bound is None:
            raise Unfit
        free = [self.text(each, '"') for each in node.arguments if not isinstance(each, Literal)]
        return "%s(%s)" % (self.constant(bound), ", ".join(free))

    def operation(self, node: Operation, want: str) -> Written:
        op, nodes = node.op, node.operands
        if op == "()":
            return self.write(nodes[0], want)
        if len(nodes) == 3:
            first, second = self.write(nodes[1], want), self.write(nodes[2], want)
            texts = (first[0], self.text(nodes[0], "?"), second[0])
            return "(%s if %s else %s)" % texts, max(first[1], second[1])
        if op in CALCULATIONS and want in ("=", "#"):
            return self.calculation(op, nodes)
        if want not in ("=", "?"):
            raise Unfit
        if op == "!":
            return "(not %s)" % self.text(nodes[0], "?"), 0
        if op in LOGIC:
            sides = self.text(nodes[0], "?"), LOGIC[op], self.text(nodes[1], "?")
        elif op in COMPARISONS:
            mark = self.mark(nodes[0]) or self.mark(nodes[1]) or ("$" if op in "==!=" else "#")
            sides = self.text(nodes[0], mark), op, self.text(nodes[1], mark)
        elif op in ("is", "isnt"):
            sides = self.identity(op, nodes)
        else:
            raise Unfit
        return "(%s %s %s)" % sides, 0

    def identity(self, op: str, nodes: Sequence[Node]) -> Tuple[str, str, str]:
        if isinstance(nodes[1], Literal) and nodes[1].value is UNDEFINED:
            # A present value is never None, so the answer is right, or there is a KeyError.
            return self.text(nodes[0], "="), "==" if op == "is" else "!=", "none"
        mark = {"?": "?", "$": '"'}.get(self.mark(nodes[1]))
        if mark is None:
            raise Unfit  # 1 is not 1.0: numbers are left to the general path
        return self.text(nodes[0], mark), "==" if op == "is" else "!=", self.text(nodes[1], mark)

    def calculation(self, op: str, nodes: Sequence[Node]) -> Written:
        first = self.write(nodes[0], "#")
        if len(nodes) == 1:
            return "(%s%s)" % (op, first[0]), first[1]
        second = self.write(nodes[1], "#")
        if op in "/%":
            return "checked(%s(%s, %s, context))" % (BINARY_NAMES[op], first[0], second[0]), SAFE
        text = "(%s %s %s)" % (first[0], op, second[0])
        bound = first[1] * second[1] if op == "*" else first[1] + second[1]
        return (text, bound) if bound <= SAFE else ("checked" + text, SAFE)


class Policy:
    """Attributes `names` of `ad`, compiled for ads that stand beside it under the names `roles`.

    `policy.evaluate(host, job)` gives their values, for roles ("Host", "Job"); `policy.general`
    gives the same by the general path. Plain values in all ads may change between evaluations.
    Other changes are noticed, and the code is compiled again, unless the caller says that there
    will be none (`fixed`). `context` is for the general path; the caller sets it. Not thread-safe.
    """

    evaluate: Callable[..., Tuple[Value, ...]]
    general: Callable[..., Tuple[Value, ...]]

    def __init__(
        self,
        ad: Ad,
        names: Sequence[str],
        roles: Sequence[str] = ("Host",),
        fixed: bool = False,
    ) -> None:
        self.context = Context()
        self.fixed = fixed
        self.names = [name.lower() for name in names]
        self.roles = [role.lower() for role in roles]
        self.around = Ad((), ad.parent)
        self.own, self.ad = ad, ad.within(self.around) if roles else ad
        self.root = outermost(self.ad)
        self.compile()

    def compile(self) -> None:
        fast = Fast(self.own, self.roles)
        ads = "".join("a%d, " % place for place in range(len(self.roles)))
        texts = []
        for name in self.names:
            used, size, constants = list(fast.used), fast.size, list(fast.constants)
            try:
                texts.append(fast.text(Reference(None, name), "="))
            except Unfit:
                fast.used, fast.size, fast.within, fast.depth = used, size, [], 0
                fast.constants = constants
                texts.append("general(%snames=%s)[0]" % (ads, fast.constant([name])))
        lines = [
            "def general(%snames=names, around=around, values=values):" % ads,
            *[" around[%a] = a%d" % (role, place) for place, role in enumerate(self.roles)],
            " return values(names)",
            "def evaluate(%sk=k, ad=ad, shape=shape, own=own, general=general, again=again):" % ads,
            *([] if self.fixed else [" if ad.shape != shape: return again(%s)" % ads]),
            " try:",
            *["  q{0} = a{0}.quick".format(self.roles.index(role)) for role in fast.used],
            "  return (%s)" % "".join(text + ", " for text in texts),
            " except ODD: return general(%s)" % ads,
        ]
        made: Dict[str, Any] = {"k": tuple(fast.constants), "ad": self.own, "own": self.own.quick}
        self.shape = self.own.shape
        made.update(shape=self.shape, again=self.again, names=self.names)
        made.update(around=self.around.table, values=self.values)
        exec(code_of("\n".join(lines)), SHARED, made)  # noqa: S102 # only source that we wrote
        self.evaluate, self.general = made["evaluate"], made["general"]

    def again(self, *ads: Ad) -> Tuple[Value, ...]:
        """Called by code that was compiled for another shape, which somebody may still hold."""
        if self.shape != self.own.shape:
            self.compile()
        return self.evaluate(*ads)

    def values(self, names: Sequence[str]) -> Tuple[Value, ...]:
        own, context = self.ad, self.context
        context.start(self.root, None)
        values = []
        for name in names:
            value = own.table.get(name)
            if value.__class__ not in PLAIN:
                value = guarded(named(name) if value is None else value, own, context)
                METER.used += context.spent
            values.append(value)
        return tuple(values)
