"""How a value is looked into, the same for both engines.

The reference's lists hold expressions and not values. So what is inside a list or an ad is found by
asking again, for `(expression)[0]` or `(expression).name`.
"""

from typing import Any, Protocol

from tests.classad_reference.shapes import Shape

DEEPEST = 3
LONGEST = 12


class Engine(Protocol):
    def evaluate(self, text: str) -> Any: ...

    def scalar(self, text: str, value: Any) -> Shape | None:
        """None for a list or an ad."""

    def names(self, value: Any) -> list[str] | None:
        """The attributes of an ad; None for a list."""


def look(engine: Engine, text: str, depth: int = 0) -> Shape:
    value = engine.evaluate(text)
    found = engine.scalar(text, value)
    if found is not None:
        return found
    names = engine.names(value)
    if names is None:
        if depth == DEEPEST:
            return ["list", len(value)]
        places = range(min(len(value), LONGEST))
        return ["list", len(value), [look(engine, f"({text}\n)[{n}]", depth + 1) for n in places]]
    if depth == DEEPEST:
        return ["classad", sorted(name.lower() for name in names)]
    pairs = []
    for name in sorted(names, key=str.lower):
        pairs.append([name.lower(), look(engine, f"({text}\n).{_quoted(name)}", depth + 1)])
    return ["classad", pairs]


def _quoted(name: str) -> str:
    return "'" + name.replace("\\", "\\\\").replace("'", "\\'") + "'"
