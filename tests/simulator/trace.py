"""The trace of a world: two runs of one seed must leave the same."""

import hashlib
from collections.abc import Callable

from covey.lab.clock import START, Timeline


class Trace:
    """Everything that happened, as one digest; also as lines, if somebody wants to read them."""

    def __init__(self, clock: Timeline, show: Callable[[str], None] | None = None) -> None:
        self._clock = clock
        self._show = show
        self._hash = hashlib.blake2b(digest_size=8)
        self.count = 0

    def add(self, text: str) -> None:
        line = f"{self._clock.time - START:10.4f} {text}"
        self._hash.update(line.encode())
        self.count += 1
        if self._show is not None:
            self._show(line)

    def digest(self) -> str:
        return self._hash.hexdigest()
