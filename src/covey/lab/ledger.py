"""The costs of a bag, counted from the ends that core records."""

from covey.core.record.model import EndRecord, Verdict
from covey.pilot.protocol.messages import CANCELLED, LOST, OK

TAIL_SHARE = 0.9  # the tail is the time of the last tenth


class Account:
    """The account of one bag in one run. Attempts are counted by how they ended."""

    def __init__(self, name: str, tasks: int, created: float) -> None:
        self.name = name
        self.tasks = tasks
        self.created = created
        self.attempts = 0
        self.replicas = 0  # sent while another attempt was still expected
        self.repeats = 0  # sent because another attempt was past its deadline
        self.done = 0
        self.failures = 0
        self.lost = 0
        self.discarded = 0  # successful, but too late
        self.cancelled = 0
        self.given_up = 0
        self.work_seconds = 0.0  # work that led to a result
        self.most_done_at = 0.0
        self.over_at = 0.0
        self.stopped = ""  # why the bag did not finish

    def sent(self, *, replica: bool, repeat: bool) -> None:
        self.attempts += 1
        self.replicas += replica
        self.repeats += repeat and not replica

    def ended(self, end: EndRecord) -> None:
        seconds = max(0.0, end.ended - end.started)
        if end.verdict is Verdict.COUNTS and end.outcome == OK:
            self.done += 1
            self.work_seconds += seconds
            if self.done >= TAIL_SHARE * self.tasks and not self.most_done_at:
                self.most_done_at = end.delivered
            return
        if end.outcome == OK:
            self.discarded += 1
        elif end.outcome == CANCELLED:
            self.cancelled += 1
        elif end.outcome == LOST:
            self.lost += 1
        else:
            self.failures += 1

    def finish(self, at: float, given_up: int) -> None:
        self.over_at = at
        self.given_up = given_up

    @property
    def turnaround(self) -> float:
        return self.over_at - self.created

    @property
    def tail(self) -> float:
        return self.over_at - (self.most_done_at or self.created)

    def percent(self, count: int) -> float:
        """In percent of the number of tasks, as in GridBot's tables."""
        return 100.0 * count / self.tasks
