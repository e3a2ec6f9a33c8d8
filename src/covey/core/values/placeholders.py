"""Texts with {NAME}s in them, filled in with a task's values.

Only names of parameters, `{task}` and `{bag}` are replaced; other braces mean themselves. The
pilot fills in commands by the same rule (`covey.pilot.slots.order_template`).
"""

import re
from collections.abc import Callable, Sequence
from typing import TypeAlias

from covey.core.values.space import Scalar

_WORD = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")

# A task's values, its number and its bag's.
Fill: TypeAlias = Callable[[Sequence[Scalar], int, int], str]


def names_of(text: str) -> list[str]:
    """The names in braces, each once."""
    return list(dict.fromkeys(_WORD.findall(text)))


def filler(text: str, names: Sequence[str]) -> Fill:
    place = {name: index for index, name in enumerate(names)}

    def fill(values: Sequence[Scalar], task: int, bag: int) -> str:
        def value(match: "re.Match[str]") -> str:
            name = match.group(1)
            if name in place:
                return str(values[place[name]])
            return {"task": str(task), "bag": str(bag)}.get(name, match.group())

        return _WORD.sub(value, text)

    return fill
