"""When something happened on a pilot's host, by the server's clock.

The rule: what one pilot reports agrees with itself. A pilot says how old each end is when it makes
a sync, and what its own clock (which never jumps) shows then. Messages take more or less time, and
one that gets lost is sent again much later. Going by the time of arrival, two tasks of one slot
would overlap by that much. So the difference between both clocks is remembered, as the fastest
messages show it.
"""

from msgspec import Struct

JUMP_SECONDS = 0.25  # two clocks that differ by more than before: a message is late, or one jumped
MOST_LATE = 3  # such messages in a row; a pilot has two under way at most
DRIFT = 5e-5  # seconds a second by which two clocks may run apart


class PilotClock(Struct, eq=False):
    ahead: float | None = None  # the server's clock minus the pilot's
    seen: float = 0.0  # the pilot's clock, the last time
    late: int = 0  # messages in a row that were late by far

    def time_of(self, clock: float, now: float) -> float:
        """The server's time when the pilot's clock showed `clock` (0: it did not say); never later
        than `now`, when the message arrived."""
        if not clock:
            return now
        ahead, known = now - clock, self.ahead
        passed, self.seen = max(0.0, clock - self.seen), clock
        if known is None or ahead <= known or self.late >= MOST_LATE:
            self.ahead, self.late = ahead, 0
            return now
        if ahead - known > JUMP_SECONDS:
            self.late += 1
        else:
            self.ahead, self.late = min(known + DRIFT * passed, ahead), 0
        return clock + (self.ahead or 0.0)
