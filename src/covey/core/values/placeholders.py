"""Texts with {NAME}s in them, filled in with a task's values, as pilots fill in commands."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from covey.core.values.space import Scalar
from covey.pilot.protocol.placeholders import PLACEHOLDER, parse, places_of, render

# A task's values, its number and its bag's.
Fill: TypeAlias = Callable[[Sequence[Scalar], int, int], str]


def names_of(*texts: str) -> list[str]:
    """The names in braces, each once."""
    return list(dict.fromkeys(name for text in texts for name in PLACEHOLDER.findall(text)))


def fill(text: str, values: Mapping[str, object]) -> str:
    """The text with these values; other names in braces stay."""
    return PLACEHOLDER.sub(
        lambda match: str(values[match[1]]) if match[1] in values else match[0], text
    )


def filler(text: str, names: Sequence[str]) -> Fill:
    parts = parse(text, places_of(names))
    return lambda values, task, bag: render(parts, [*values, task, bag])
