"""Virtual time: events happen in the order of (time, sequence).

Nothing in a simulated world reads a real clock or uses unseeded randomness, so a seed determines
the world.
"""

from collections.abc import Callable
from heapq import heappop, heappush

START = 1000.0


class Timeline:
    """The events to come. Also the engine's Clock."""

    def __init__(self, time: float = START) -> None:
        self.time = time
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

    def run_to(self, time: float) -> None:
        """Do what is to be done up to this time."""
        while self._heap and self._heap[0][0] <= time:
            self.step()
        self.time = time

    def step(self) -> None:
        self.time, _, do = heappop(self._heap)
        do()
