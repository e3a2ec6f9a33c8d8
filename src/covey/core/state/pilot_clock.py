"""When something happened on a pilot's host, by the server's clock.

The rule: the times that one pilot reports agree with each other. A pilot says how old each end is
when it makes a sync, and what its own monotonic clock shows then. Messages are delayed, and a lost
message is sent again much later. If the time of arrival counted, two tasks of one slot would
overlap by the delay. So the difference between both clocks is remembered, as the fastest messages
show it.
"""

from msgspec import Struct

JUMP_SECONDS = 0.25  # if the difference grows by more, a message is late or a clock has jumped
MOST_LATE = 3  # late messages in a row; a pilot has at most two under way
DRIFT = 5e-5  # seconds a second by which two clocks may run apart


class PilotClock(Struct, eq=False):
    ahead: float | None = None  # the server's clock minus the pilot's
    seen: float = 0.0  # the pilot's clock, the last time
    late: int = 0  # messages in a row that were late

    def time_of(self, clock: float, now: float) -> float:
        """The server's time when the pilot's clock showed `clock` (0: unknown); never later than
        `now`, when the message arrived."""
        if not clock:
            return now
        ahead, before = now - clock, self.ahead
        passed, self.seen = max(0.0, clock - self.seen), clock
        if before is None or ahead <= before or self.late >= MOST_LATE:
            self.ahead, self.late = ahead, 0
            return now
        if ahead - before > JUMP_SECONDS:
            self.late += 1
        else:
            self.ahead, self.late = min(before + DRIFT * passed, ahead), 0
        return clock + (self.ahead or 0.0)
