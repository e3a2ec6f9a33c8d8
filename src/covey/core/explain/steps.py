"""Long answers, in steps.

A function that looks at thousands of pilots yields between them. Whoever asks decides when the next
step is taken, and may handle events in between. So the state may change between two steps: pilots
that have gone meanwhile are left out.
"""

from collections.abc import Generator
from typing import TypeAlias, TypeVar

T = TypeVar("T")
Steps: TypeAlias = Generator[None, None, T]


def finish(steps: Steps[T]) -> T:
    """The answer, in one go."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: T = end.value
            return found
