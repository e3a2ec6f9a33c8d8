"""Threads: as many as there is work for, and as the system allows.

The rule: it is not a failure if the system starts no thread now. Threads count as processes, whose
number is limited for each user, and tasks may use all of them for a while. Meanwhile the existing
threads do the work, and starting is tried again.
"""

import threading
from typing import Callable


def started(work: Callable[[], None], name: str) -> bool:
    """Whether a thread could be started for this work."""
    try:
        threading.Thread(target=work, daemon=True, name=name).start()
    except RuntimeError:
        return False
    return True


class ThreadPool:
    """Up to ``most`` threads that do the same work until the process ends. Not thread-safe."""

    def __init__(self, work: Callable[[], None], most: int, name: str) -> None:
        self._work = work
        self._most = most
        self._name = name
        self._count = self._wanted = 0

    def want(self, count: int) -> None:
        """Let there be so many threads, as soon as possible."""
        if count > self._wanted:
            self._wanted = min(count, self._most)
            self.fill()

    def fill(self) -> None:
        """Start threads that could not be started before. Cheap: call it now and then."""
        while self._count < self._wanted and started(self._work, self._name):
            self._count += 1
