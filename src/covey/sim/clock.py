"""Virtual time: events happen in the order of (time, sequence).

Nothing in the simulator reads a real clock or uses unseeded randomness, so a seed determines a
world.
"""

import hashlib
from collections.abc import Callable
from heapq import heappop, heappush

START = 1000.0


class Timeline:
    """The events to come. Also the engine's Clock."""

    def __init__(self) -> None:
        self.time = START
        self._heap: list[tuple[float, int, Callable[[], object]]] = []
        self._sequence = 0

    def now(self) -> float:
        return self.time

    def at(self, time: float, do: Callable[[], object]) -> None:
        self._sequence += 1
        heappush(self._heap, (max(time, self.time), self._sequence, do))

    def after(self, delay: float, do: Callable[[], object]) -> None:
        self.at(self.time + delay, do)

    def every(self, seconds: float, do: Callable[[], None]) -> None:
        def again() -> None:
            self.after(seconds, again)
            do()

        self.after(seconds, again)

    def step(self) -> None:
        self.time, _, do = heappop(self._heap)
        do()


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
