"""Counts of refused requests and the reasons: since the server started, and of the last ten minutes
by owner.

`/metrics` shows the counts since the start, without owners. `covey doctor` shows the recent ones
with owners, so that people notice strangers who try to get in, and programs that ask too much.
"""

import time
from collections import Counter, deque
from collections.abc import Callable

from covey.wire import Refused

RECENT_SECONDS = 600.0
STEP_SECONDS = 60.0
MOST_OWNERS = 1000  # in one step
STRANGERS = ""  # the owner of requests that showed no valid credential

# By the status of the answer; every other refusal is "invalid".
KINDS = {
    401: "unauthorized",
    403: "unauthorized",
    413: "too-large",
    429: "over-share",
    503: "unavailable",
}
INVALID, CONNECTION = "invalid", "connection"  # the second: a connection ended without a request
ALL_KINDS = (*dict.fromkeys(KINDS.values()), INVALID, CONNECTION)


class Refusals:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.counts = dict.fromkeys(ALL_KINDS, 0)
        self._steps: deque[tuple[float, Counter[tuple[str, str]]]] = deque()

    def answered(self, status: int, owner: str) -> None:
        """A request was answered with this status, which is 400 or above."""
        self.note(KINDS.get(status, INVALID), owner)

    def note(self, kind: str, owner: str = STRANGERS) -> None:
        self.counts[kind] += 1
        now = self._clock()
        if not self._steps or now - self._steps[-1][0] > STEP_SECONDS:
            self._forget(now)
            self._steps.append((now, Counter()))
        step = self._steps[-1][1]
        if len(step) < MOST_OWNERS or (owner, kind) in step:
            step[owner, kind] += 1

    def recent(self) -> list[Refused]:
        """The refusals of the last ten minutes, the highest counts first."""
        self._forget(self._clock())
        sums: Counter[tuple[str, str]] = Counter()
        for _, step in self._steps:
            sums.update(step)
        return [
            Refused(owner=owner, kind=kind, count=count)
            for (owner, kind), count in sums.most_common()
        ]

    def _forget(self, now: float) -> None:
        while self._steps and now - self._steps[0][0] > RECENT_SECONDS:
            self._steps.popleft()
