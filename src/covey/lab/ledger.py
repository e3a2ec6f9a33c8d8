"""The costs of a bag, counted from the ends that core records."""

from covey.core.record.model import EndRecord, Verdict
from covey.lab.census import Census
from covey.pilot.protocol.messages import CANCELLED, LOST, OK

TAIL_SHARE = 0.1  # the tail is the time of the last tenth, unless the world says otherwise


class Account:
    """The account of one bag in one run. Attempts are counted by how they ended."""

    def __init__(self, name: str, tasks: int, created: float, tail: float = TAIL_SHARE) -> None:
        self._before_tail = (1.0 - tail) * tasks  # results
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
        self.other_seconds = 0.0  # work that did not
        self.waits = 0.0  # from the submission to the start of what led to a result: their sum …
        self.longest_wait = 0.0  # … and the longest
        self.most_done_at = 0.0
        self.over_at = 0.0
        self.stopped = ""  # why the bag did not finish
        self.census: Census | None = None  # of the whole world

    def sent(self, *, replica: bool, repeat: bool) -> None:
        self.attempts += 1
        self.replicas += replica
        self.repeats += repeat and not replica

    def ended(self, record: EndRecord) -> None:
        seconds = max(0.0, record.ended - record.started)
        if record.verdict is Verdict.COUNTS and record.end.outcome == OK:
            self.done += 1
            self.work_seconds += seconds
            wait = record.started - self.created
            self.waits += wait
            self.longest_wait = max(self.longest_wait, wait)
            if self.done >= self._before_tail and not self.most_done_at:
                self.most_done_at = record.delivered
            return
        self.other_seconds += seconds
        if record.end.outcome == OK:
            self.discarded += 1
        elif record.end.outcome == CANCELLED:
            self.cancelled += 1
        elif record.end.outcome == LOST:
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
