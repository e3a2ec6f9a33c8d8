"""The Python form of ClassAd values, and the limits of one evaluation.

`bool`, `int` (within 64 bits), `float`, `str`, `list` and `Ad` stand for themselves; undefined,
error and times have classes of their own. A bool is not an int here, as it is in Python: test it
first.
"""

from typing import Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Set

Value = Any  # one of the above: checkers cannot keep bool and int apart


class Special:
    """UNDEFINED and ERROR. They are neither true nor false: a test that forgets them raises."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name

    def __bool__(self) -> bool:
        raise TypeError("%s is neither true nor false" % self.name)

    def __reduce__(self) -> str:
        return self.name.upper()


UNDEFINED = Special("undefined")
ERROR = Special("error")


class AbsTime(NamedTuple):
    """A moment: seconds since 1970, and how far east of Greenwich (in seconds) to show it."""

    seconds: int
    offset: int = 0


class RelTime(NamedTuple):
    """A span of time."""

    seconds: float


class ClassAdError(ValueError):
    """The root of all exceptions that this package raises on purpose."""


class SyntaxProblem(ClassAdError):
    """The text is not an expression: where the problem is, and what was expected there."""

    def __init__(self, text: str, position: int, expected: str) -> None:
        self.text, self.position, self.expected = text, position, expected
        start = text.rfind("\n", 0, position) + 1
        left = max(start, position - 60)
        shown = text[left : left + 78].split("\n", 1)[0]
        place = (text.count("\n", 0, position) + 1, position - start + 1, expected)
        caret = " " * (position - left) + "^"
        super().__init__("line %d, column %d: expected %s\n  " % place + shown + "\n  " + caret)


class TooMuch(ClassAdError):
    """A limit is reached. Evaluation turns this into ERROR; callers never see it."""


def wrapped(number: int) -> int:
    """`number` as 64-bit arithmetic leaves it."""
    return ((number + (1 << 63)) & ((1 << 64) - 1)) - (1 << 63)


def folded(text: str) -> bytes:
    """A key that ignores the case of ASCII letters, for comparing and for sorting."""
    return text.encode("utf-8", "surrogateescape").lower()


def halfway() -> float:
    """The random number if the caller gave no generator: always the same."""
    return 0.5


class Context:
    """What an evaluation may use. `now`, `random` and `zone` come only from the caller."""

    def __init__(
        self,
        now: float = 0.0,
        random: Callable[[], float] = halfway,
        zone: int = 0,
        steps: int = 10000,
        depth: int = 200,
        length: int = 100000,
        size: int = 10000,
        work: int = 1000,
    ) -> None:
        self.now, self.random, self.zone = now, random, zone
        self.steps, self.depth, self.length, self.size = steps, depth, length, size
        self.work = work
        self.no = False  # for this and the next, see `yes` in operators
        self.kept: Value = UNDEFINED
        self.busy: Set[Any] = set()  # attributes being evaluated, to notice a cycle
        self.made: Dict[Any, Any] = {}  # what this evaluation has compiled
        self.start(None, None)

    def start(self, root: Any, pair: Any) -> None:
        """Prepares for one evaluation: all limits count from here."""
        self.spent, self.left, self.reason = 0, self.depth, ""
        self.root, self.pair = root, pair  # the outermost ad; the two ads of a match
        self.making = 0
        if self.made:
            self.made = {}
        if self.busy:
            self.busy = set()

    def once(self, key: Any, what: Any, work: int) -> None:
        """Counts the cost of something that is compiled once, code or a pattern. It is counted in
        each evaluation that needs it, even if it exists already: the result of an expression must
        not depend on earlier evaluations."""
        self.made[key] = what  # kept, so that no other object can get its `id`
        self.making += work
        if self.making > self.work:
            self.refuse()

    def spend(self, steps: int) -> None:
        """Counts work; beyond the limit the evaluation ends."""
        self.spent += steps
        if self.spent > self.steps:
            self.refuse()

    def enter(self, steps: int) -> None:
        """Goes one level deeper, for so many steps; the caller adds 1 to `left` afterwards."""
        self.left -= 1
        self.spent += steps
        if self.left < 0 or self.spent > self.steps:
            self.refuse()

    def refuse(self) -> None:
        """Ends the evaluation because of the exceeded limit: steps, compiling, or else depth."""
        if self.spent > self.steps:
            self.stop("more than %d steps" % self.steps)
        if self.making > self.work:
            self.stop("more than %d operations and names, with all it refers to" % self.work)
        self.stop("more than %d levels deep" % self.depth)

    def stop(self, reason: str) -> None:
        """Ends the evaluation with ERROR as its result, and keeps the `reason`."""
        self.reason = reason
        raise TooMuch(reason)


class Items(List[Value]):
    """The value of `{ … }`: each element is evaluated when it is needed, as in the reference.

    The list itself has the nodes, so its length costs nothing and it can be shown as written."""

    def __init__(self, nodes: Iterable[Any], evaluate: Callable[[Any], Value]) -> None:
        super().__init__(nodes)
        self.evaluate = evaluate

    @property
    def nodes(self) -> List[Any]:
        return list(super().__iter__())

    def __iter__(self) -> Iterator[Value]:
        return map(self.evaluate, super().__iter__())

    def __getitem__(self, place: Any) -> Value:
        nodes = super().__getitem__(place)
        return [*map(self.evaluate, nodes)] if isinstance(place, slice) else self.evaluate(nodes)


KINDS = {bool: "boolean", int: "integer", float: "real", str: "string", AbsTime: "abstime"}
KINDS[RelTime] = "reltime"


def kind(value: Value) -> str:
    """The name of the value's type."""
    if isinstance(value, list):
        return "list"
    return value.name if value.__class__ is Special else KINDS.get(value.__class__, "classad")
