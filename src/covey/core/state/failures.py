"""Failures of a bag's tasks that have no result yet, and where they happened (`retry_hosts`).

The rule: all of this is forgotten when a task is done, or starts afresh.
"""

from msgspec import Struct, field
from pyroaring import BitMap

from covey.core.record.attempts import Raised
from covey.core.record.model import BagSpec

MOST_HOSTS = 32  # that are remembered for a task


class FailedOn(Struct, eq=False):
    """Where a task that waits or runs has failed, and when it last did."""

    hosts: tuple[str, ...] = ()
    at: float = 0.0


class Trouble(Struct, frozen=True):
    """Why a host could not make an attempt of a bag. The next attempt may be possible."""

    words: str
    host: str
    at: float
    ends: int  # successes of the bag at that time: after the next one this trouble is over


class TaskFailures(Struct, eq=False):
    """Dictionaries are by task, unless a comment says otherwise."""

    tries: dict[int, int] = field(default_factory=dict)  # failures of the task's own
    overtimes: dict[int, int] = field(default_factory=dict)  # … at the time limit
    short: dict[int, int] = field(default_factory=dict)  # … at the memory limit
    losses: dict[int, int] = field(default_factory=dict)  # failures of the infrastructure
    failed_on: dict[int, FailedOn] = field(default_factory=dict)  # by task
    avoided: dict[str, BitMap] = field(default_factory=dict)  # by host: tasks that failed there
    last_tries: BitMap = field(default_factory=BitMap)  # tasks whose next failure counts
    # Whether another host could run a class of tasks (`retry_hosts`), and when that was computed:
    elsewhere: dict[tuple[int, tuple[str, ...], bool], bool] = field(default_factory=dict)
    elsewhere_at: float = -1.0
    raised: list[Raised] = field(default_factory=list)  # tasks that got more memory or time
    streak: int = 0  # own failures of the bag since its last success
    trouble: Trouble | None = None  # the latest

    @property
    def grown(self) -> bool:
        """Whether some tasks have more time than their class."""
        return bool(self.overtimes or self.raised)

    def spent(self, task: int, spec: BagSpec) -> bool:
        """Whether the task has failed as often as it may."""
        tries, overtimes = self.tries.get(task, 0), self.overtimes.get(task, 0)
        return tries > spec.retries or overtimes > spec.overtimes

    def note_host(self, task: int, host: str, now: float, *, last_try: bool) -> None:
        """The task has failed on this host. `last_try`: its next failure counts."""
        failed = self.failed_on.get(task)
        if failed is None:
            failed = self.failed_on[task] = FailedOn()
        failed.at = now
        if host not in failed.hosts and len(failed.hosts) < MOST_HOSTS:
            failed.hosts = (*failed.hosts, host)
            self.avoided.setdefault(host, BitMap()).add(task)
        if last_try:
            self.last_tries.add(task)

    def forget_hosts(self, task: int) -> None:
        failed = self.failed_on.pop(task, None)
        if failed is None:
            return
        self.last_tries.discard(task)
        for host in failed.hosts:
            tasks = self.avoided[host]
            tasks.discard(task)
            if not tasks:
                del self.avoided[host]

    def forget(self, task: int) -> None:
        """The task is done, or starts afresh."""
        if self.failed_on:
            self.forget_hosts(task)
        if self.tries or self.overtimes or self.losses:
            for counts in (self.tries, self.overtimes, self.short, self.losses):
                counts.pop(task, None)

    def check(self) -> None:
        for counts in (self.tries, self.overtimes, self.short, self.losses):
            assert all(count > 0 for count in counts.values())
        places = {(host, task) for task, on in self.failed_on.items() for host in on.hosts}
        avoided = {(host, task) for host, tasks in self.avoided.items() for task in tasks}
        assert places == avoided, "a host is avoided where the task has not failed"
        assert all(self.avoided.values()), "a host is avoided by no task"
        assert all(task in self.failed_on for task in self.last_tries)
