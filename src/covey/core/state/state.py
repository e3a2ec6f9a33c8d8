"""All that core knows. `check()` asserts what must hold between any two events."""

from collections import deque
from random import Random

from msgspec import Struct, field

from covey.core.after_commit import Then
from covey.core.record.events import RetryRequested
from covey.core.record.model import (
    BagId,
    JobId,
    PilotId,
    PilotStatus,
    RequestId,
    Settings,
    TokenRecord,
)
from covey.core.record.suspects import Suspect
from covey.core.state.bag import Bag
from covey.core.state.pilots import Pilot, PilotArrivals, PilotQueue
from covey.core.state.replicas import ReplicaWatch
from covey.core.state.scene import BagChanges, PolicyBudgets, Scene
from covey.core.state.sites import BrokerBook, Host, HostHistories, Job, Site, SitePlan


class Journal(Struct, eq=False):
    """Writes, and what is done when they are durable, in the order of the writes."""

    writes: int = 0  # numbered so far
    durable: int = 0
    then: deque[tuple[int, Then]] = field(default_factory=deque)

    def check(self) -> None:
        assert self.durable <= self.writes
        numbers = [number for number, _ in self.then]
        assert numbers == sorted(numbers)
        assert not numbers or self.durable < numbers[0], "what is due was not done"
        assert not numbers or numbers[-1] <= self.writes


class Counters(Struct, eq=False):
    """The next free numbers (none is used twice), and counts of this epoch."""

    next_bag: int = 1
    next_pilot: int = 1
    next_token: int = 1
    next_sequence: int = 1
    next_job: int = 0
    ended: dict[str, int] = field(default_factory=dict)  # attempts by outcome
    quarantines: int = 0  # bags that were quarantined


class BagIndex(Struct, eq=False):
    """Keys of all bags, and bags that are being read from the record."""

    keys: dict[str, BagId] = field(default_factory=dict)  # of all bags, by their submitters' keys
    loading: dict[BagId, bool] = field(default_factory=dict)  # being read; True: it changed since
    retrying: dict[RequestId, RetryRequested] = field(default_factory=dict)  # until bags are read

    def check(self) -> None:
        for event in self.retrying.values():
            assert event.bag in self.loading, "a bag that is to be tried again is not read"


class Access(Struct, eq=False):
    """Who may submit."""

    tokens: dict[str, TokenRecord] = field(default_factory=dict)  # by digest, without revoked ones
    owners: dict[str, float] = field(default_factory=dict)  # owners with a token -> until when
    people: tuple[str, ...] = ()  # owners; empty if the server's user is the only one


class State:
    def __init__(self, epoch: int, settings: Settings, now: float) -> None:
        self.epoch = epoch
        self.settings = settings
        self.random = Random(epoch)
        self.turns = 0  # events that were handled
        self.ticked = now
        self.draining = False
        self.bags: dict[BagId, Bag] = {}
        self.bag_index = BagIndex()
        self.suspects: dict[BagId, Suspect] = {}  # to be quarantined when the turn ends
        self.pilots: dict[PilotId, Pilot] = {}
        self.arrivals = PilotArrivals(now)
        self.queue = PilotQueue()
        self.hosts: dict[str, Host] = {}  # by the name under which a machine is known
        self.histories = HostHistories()
        self.sites: dict[str, Site] = {}
        self.jobs: dict[JobId, Job] = {}
        self.plan = SitePlan()
        self.broker = BrokerBook()
        self.access = Access()
        self.scene = Scene()
        self.changes = BagChanges(now)
        self.budget = PolicyBudgets()
        self.replication = ReplicaWatch(now)
        self.journal = Journal()
        self.counters = Counters()
        self._slots, self._slots_turn = 0, -1  # slots of active pilots, as counted in that turn

    def slots(self) -> int:
        """Slots of all active pilots. Counted once in a turn, since one turn may answer thousands
        of pilots."""
        if self._slots_turn != self.turns:
            pilots = self.pilots.values()
            self._slots = sum([p.record.slots for p in pilots if p.status is PilotStatus.ACTIVE])
            self._slots_turn = self.turns
        return self._slots

    def unsent(self) -> int:
        return sum(bag.unsent() for bag in self.bags.values())

    def check(self) -> None:
        """Assert the invariants; for tests and the simulator, after every event."""
        for bag in self.bags.values():
            bag.check()
        for pilot in self.pilots.values():
            pilot.check()
        self.bag_index.check()
        self.arrivals.check(self.pilots)
        self.queue.check(self.pilots)
        self.plan.check()
        self.replication.check()
        self.journal.check()
        self._check_attempts()
        self._check_jobs()

    def _check_attempts(self) -> None:
        """The attempts that pilots hold are live in their bags, and no others are."""
        held = 0
        for pilot in self.pilots.values():
            for attempt in pilot.attempts.values():
                if attempt.bag in self.bags:
                    assert attempt in self.bags[attempt.bag].places.live[attempt.task]
                    held += 1
        lists = [attempts for bag in self.bags.values() for attempts in bag.places.live.values()]
        live = sum(map(len, lists))
        assert live == held, f"{live} live attempts in bags, {held} with pilots"

    def _check_jobs(self) -> None:
        for name, site in self.sites.items():
            for id_ in site.jobs:
                assert self.jobs[id_].record.site == name
        here = sum(job.record.site in self.sites for job in self.jobs.values())
        assert here == sum(len(site.jobs) for site in self.sites.values()), "a job at no site"
