"""Sites, their jobs and hosts, and where pilots are wanted (`overlay`, `host_history`)."""

import math
from collections import deque
from typing import NamedTuple

from msgspec import Struct, field

from covey.core.broker.worth import BrokerDecision
from covey.core.record.broker_rules import GivenWeights
from covey.core.record.capacity import SiteCapacity
from covey.core.record.histories import History, SiteHistory
from covey.core.record.model import (
    BagId,
    JobId,
    JobOutcome,
    JobRecord,
    PilotId,
    SiteRecord,
    SiteSpec,
)
from covey.core.sites.measures import SiteMeasures
from covey.core.state.match_records import Preference

MOST_WAITS = 60
MOST_SPANS = 30
MOST_OUTCOMES = 60
MOST_WEIGHTS = 288  # times at which weights of sites are remembered


class HostShown(Struct, frozen=True):
    """The memory and disk of a site's host when a pilot last enrolled there, and the number of
    pilots that enrolled."""

    at: float
    memory_mb: int
    disk_mb: int
    pilots: int


class Host(Struct, eq=False):
    """A machine that is or was there: its pilots and its history."""

    name: str
    history: History
    fresh: History = field(default_factory=History)  # not yet added to its site's history
    pilots: dict[PilotId, None] = field(default_factory=dict)
    saved: float = 0.0  # when its history was last written


class Job(Struct, eq=False):
    """A site job that is not over."""

    record: JobRecord
    since: float  # when it was asked for, or began to wait again
    pilot: PilotId | None = None  # the job's pilot; it may have left
    voice: str = ""  # key of the pilot that synced last, since the job was known to wait
    succeeded: bool = False  # this pilot replaced another; the site has not reported the reason
    running: bool = False
    suspended: bool = False  # by its site, while it runs
    started: float = 0.0  # when it began to run, as far as we know
    useful: bool = False  # its pilot has delivered something, or that is not known
    asked: bool = False  # its site has been asked to start it: it is durable
    cancelled: float = 0.0  # when its site was last asked to cancel it
    vanished: str = ""  # why it has gone from its site's list, although its pilot was heard
    holder: str = ""  # key of the last pilot that used its secret; empty: any pilot may use it
    holder_left: float = 0.0  # when that pilot left
    refused_key: str = ""  # key of the last other pilot that showed the secret
    left_at: float = 0.0  # when its pilot left; 0: it has not


class Wait(NamedTuple):
    """A job that has started, or was given up while it waited (`started` is false: it would have
    waited for longer)."""

    owner: str
    since: float
    seconds: float
    started: bool
    jobs: int = 1  # how many are alike


class Measured(NamedTuple):
    """An answer, and what it was computed from."""

    changed: int
    at: float
    measures: SiteMeasures


class JobSamples(Struct, eq=False):
    """What the jobs of one site have shown lately: how long they waited, lived, and how they ended.
    Each sample belongs to the owner whom its job was for; the oldest come first, and give way.
    `changed` grows with each sample: answers that were computed from them hold as long as it stays
    (`core.sites.site_measures`)."""

    waits: deque[Wait] = field(default_factory=lambda: deque(maxlen=MOST_WAITS))
    overheads: deque[tuple[str, float]] = field(default_factory=lambda: deque(maxlen=MOST_SPANS))
    lifetimes: deque[tuple[str, float]] = field(default_factory=lambda: deque(maxlen=MOST_SPANS))
    outcomes: deque[tuple[str, JobOutcome]] = field(
        default_factory=lambda: deque(maxlen=MOST_OUTCOMES)
    )
    history: SiteHistory = field(default_factory=SiteHistory)  # without bags that are not over
    speed: tuple[float, float] = (0.0, 0.0)  # its logarithm, with them; from how many tasks
    unsaved: bool = False  # whether any of this has changed since it was written
    saved: float = 0.0  # when that was
    told_speed: float | None = None  # as answers have it
    told_filling: float | None = None
    capacity: SiteCapacity = field(default_factory=SiteCapacity)
    capacity_at: float = 0.0  # when that was told; 0: it was not
    newest: float = 0.0  # when the newest sample was taken
    changed: int = 0
    answers: dict[str, Measured] = field(default_factory=dict)  # by owner; "": everybody's

    def add_wait(self, wait: Wait, at: float) -> None:
        self.waits.append(wait)
        self._changed(at)

    def add_overhead(self, owner: str, seconds: float, at: float) -> None:
        self.overheads.append((owner, seconds))
        self._changed(at)

    def add_lifetime(self, owner: str, seconds: float, at: float) -> None:
        self.lifetimes.append((owner, seconds))
        self._changed(at)

    def add_outcome(self, owner: str, outcome: JobOutcome, at: float) -> None:
        self.outcomes.append((owner, outcome))
        self._changed(at)

    def tell(self, speed: float | None, filling: float | None, change: float, at: float) -> None:
        """Answers have these figures from now on, unless they have almost the same."""
        if _differs(self.told_speed, speed, change) or _differs(self.told_filling, filling, change):
            self.told_speed, self.told_filling = speed, filling
            self._changed(at)

    def set_capacity(self, capacity: SiteCapacity, at: float) -> None:
        self.capacity, self.capacity_at = capacity, at
        self.changed += 1

    def _changed(self, at: float) -> None:
        self.changed += 1
        self.newest = max(self.newest, at)

    def check(self) -> None:
        assert all(wait.seconds >= 0.0 for wait in self.waits), "a job waited for less than nothing"
        assert all(seconds >= 0.0 for _, seconds in (*self.overheads, *self.lifetimes))


def _differs(one: float | None, other: float | None, change: float) -> bool:
    if one is None or other is None:
        return one is not other
    return abs(one - other) > change * max(abs(one), abs(other))


class Site(Struct, eq=False):
    """`ramp`: how many jobs may wait there now. `failures`: jobs that failed in a row, since any of
    its pilots delivered something. After failures the site gets no jobs before `rests_until`."""

    record: SiteRecord
    ramp: int
    jobs: dict[JobId, None] = field(default_factory=dict)
    failures: int = 0
    problem: str = ""  # of the last failure
    failed_at: float = 0.0  # time of the last failure
    rests_until: float = 0.0
    unanswered: str = ""  # why its commands fail
    crowded: str = ""  # why it may not be used: owners would share an account there, without walls
    surplus_since: float = math.inf
    preference: Preference | None = None
    samples: JobSamples = field(default_factory=JobSamples)
    shown: dict[str, HostShown] = field(default_factory=dict)  # by host, the latest last


class SitePlan(Struct, eq=False):
    """Which sites are for which tasks, and when pilots were asked for."""

    guarded: dict[str, SiteSpec] = field(default_factory=dict)  # sites that are not for every task
    reserves: tuple[str, ...] = ()  # sites only for tasks that failed elsewhere
    defined: int = 0  # grows when sites come, go or change
    filling_at: float = 0.0  # when it was last counted which slots have a task
    speeds_at: float = 0.0  # when the speeds of sites were last computed
    speeds_ended: int = 0  # attempts that had ended then
    provide_at: float = 0.0  # before this time, only ticks look where pilots are wanted
    asked_for: dict[str, float] = field(default_factory=dict)  # owner -> when pilots were asked for
    given_up: dict[JobId, JobRecord] = field(default_factory=dict)  # jobs that ended unseen

    def check(self) -> None:
        assert all(name == spec.name for name, spec in self.guarded.items())


class BrokerBook(Struct, eq=False):
    """What services said that sites are worth, what was decided last, and how weights were."""

    given: dict[str, GivenWeights] = field(default_factory=dict)  # by service
    decisions: dict[BagId, BrokerDecision] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)  # why an algorithm could not be used
    history: deque[tuple[float, dict[str, float]]] = field(
        default_factory=lambda: deque(maxlen=MOST_WEIGHTS)
    )  # weights of sites, the newest last


class HostHistories(Struct, eq=False):
    """Names of hosts, and the histories of sites."""

    machines: dict[str, str] = field(default_factory=dict)  # machine -> the name of its host
    unsaved: dict[str, None] = field(default_factory=dict)  # hosts whose history is to be written
    by_site: dict[str, History] = field(default_factory=dict)  # of all hosts of a site together
    overall: History = field(default_factory=lambda: History(site=""))  # of all sites

    def above(self, site: str) -> tuple[History, History]:
        """The histories that include a host of this site: the site's, and that of all sites."""
        return self.by_site.setdefault(site, History()), self.overall
