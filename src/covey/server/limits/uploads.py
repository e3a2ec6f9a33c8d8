"""How much each owner may upload at once: turns, and unfinished files.

An upload has a turn only while its bytes come: when it is silent or slow for TURN_SECONDS, its turn
goes to the next, and it gets another when more bytes have come. The server keeps the pieces of an
unfinished file for UNFINISHED_SECONDS after the last one; until then the file counts against its
owner's share.
"""

import time
from collections.abc import Callable

from covey.server.limits.shares import (
    FILE_THREADS,
    UNFINISHED_UPLOADS,
    UPLOAD_REQUESTS,
    UPLOADS,
    Shares,
    Turns,
    Who,
    Workers,
)

TURN_SECONDS = 5.0
UNFINISHED_SECONDS = 3600.0


class Uploads:
    """One object for all uploads, of people and of pilots."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.threads = Workers(FILE_THREADS, "files")
        self.turns = Turns(UPLOADS)
        self.requests = Shares(UPLOAD_REQUESTS)
        self.unfinished = Shares(UNFINISHED_UPLOADS)
        self._clock = clock
        self._begun: dict[tuple[Who, str], float] = {}  # when a piece last came; the oldest first

    def begin(self, who: Who, digest: str) -> None:
        """A piece of this file is about to come. Raises HttpProblem if the owner has too many
        unfinished files."""
        now, file = self._clock(), (who, digest)
        if file in self._begun:
            del self._begun[file]
        elif not self.unfinished.take(who):
            self._forget_old(now)
            self.unfinished.demand(who)
        self._begun[file] = now

    def end(self, who: Who, digest: str) -> None:
        """The file is complete, or nothing of it is kept."""
        if self._begun.pop((who, digest), None) is not None:
            self.unfinished.give(who)

    def _forget_old(self, now: float) -> None:
        """Forget uploads of an age at which `retention` removes their pieces."""
        while self._begun:
            (who, digest), touched = next(iter(self._begun.items()))
            if touched + UNFINISHED_SECONDS > now:
                return
            self.end(who, digest)
