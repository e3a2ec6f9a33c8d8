"""Threads, as many as there is work for and as the system gives.

The rule: that it gives none now is no failure. Threads count as processes, of which a user has only
so many, and tasks may take all of them for a while. Those that are there do the work meanwhile, and
it is tried again.
"""

import threading
from typing import Callable


def started(work: Callable[[], None], name: str) -> bool:
    """Whether it is done in another thread from now on."""
    try:
        threading.Thread(target=work, daemon=True, name=name).start()
    except RuntimeError:
        return False
    return True


class Crew:
    """At most so many that do the same for good. Of one thread alone."""

    def __init__(self, work: Callable[[], None], most: int, name: str) -> None:
        self._work = work
        self._most = most
        self._name = name
        self._count = self._wanted = 0

    def want(self, count: int) -> None:
        """Be so many, soon."""
        if count > self._wanted:
            self._wanted = min(count, self._most)
            self.fill()

    def fill(self) -> None:
        """Cheap, and to be called now and then: start those that could not be started before."""
        while self._count < self._wanted and started(self._work, self._name):
            self._count += 1
