"""All that core knows. `check()` asserts what must hold between any two events.

Nothing per task exists until something happens to it: a bag of ten million is a few numbers and
bitmaps, plus one `Attempt` for each task that is out with a pilot.
"""

import math
from bisect import bisect_right, insort
from collections import deque
from collections.abc import Iterator
from random import Random

from msgspec import Struct, field
from pyroaring import BitMap

from covey.classad import Ad
from covey.core.after_commit import Then
from covey.core.bags.bag_invariants import check_bag
from covey.core.bags.host_tallies import FailedOn, Rest, Tally, Trouble
from covey.core.bags.suspects import Suspect, suspect
from covey.core.match.match_records import ANYWHERE, ClassMatch, Match, PilotFace, Preference, Suits
from covey.core.match.policies import Compiled
from covey.core.protocol.pilot_clock import PilotClock
from covey.core.record import call_files
from covey.core.record.actions import SavePilotStatus
from covey.core.record.attempts import Attempt, Raised
from covey.core.record.events import RetryRequested
from covey.core.record.model import (
    LONG_FIRST,
    AttemptId,
    BagId,
    BagSpec,
    BagStatus,
    Blob,
    History,
    InputVersion,
    JobId,
    JobRecord,
    Need,
    OutputSummary,
    PilotId,
    PilotRecord,
    PilotStatus,
    PolicySpec,
    RequestId,
    Settings,
    SiteRecord,
    SiteSpec,
    TaskNumber,
    TokenRecord,
)
from covey.core.record.task_classes import Classify
from covey.core.record.task_numbers import Numbering
from covey.core.sites.unfit_hosts import HostShown, Unfit
from covey.core.values.durations import Times
from covey.core.values.placeholders import Fill
from covey.core.values.space import Scalar
from covey.pilot.protocol.messages import Answer, Body, End, Followed

FEW_DEADLINES = 1024
MOST_LATEST = 64  # bags whose ads have changed lately


class Budget(Struct, eq=False):
    """What an owner's policies may still do: work, in units (`budget`)."""

    left: float  # of what was saved up
    at: float  # when that was last filled up
    turn: int = -1  # for which this holds:
    in_turn: float = 0.0  # … that is left of the turn's
    overrun: int = -1  # the last turn in which it was used up
    ran_out: bool = False  # nothing was left of what was saved up, since the last tick
    short_since: float = math.inf  # … at every tick since then


class Bag(Struct, eq=False):
    """A bag that may still change. Every task number is in exactly one place: done, failed,
    ready, parked, aside, rescue, doubt, `live` (out with pilots), or not handed out yet
    (>= next)."""

    id: BagId
    spec: BagSpec
    body: Body
    numbering: Numbering
    created: float
    open: bool
    filled: list[tuple[Fill, Fill, bool]]  # inputs of each task's own: source, path, copy
    policy: Compiled
    classify: Classify | None = None  # None: all tasks are of one class
    needs: list[Need] = field(default_factory=list)  # by class
    readings: list[str] = field(default_factory=list)  # by parameter: how its values are read
    body_size: int = 0  # characters of `body`, when it is sent
    inputs_size: int = 0  # … of what each task says of its own inputs, besides values
    status: BagStatus = BagStatus.RUNNING
    reason: str = ""  # why it is paused
    large: bool = False  # some of its calls are in files
    keys: set[str] = field(default_factory=set)  # of segments that were appended
    next: int = 0  # the lowest number never handed out
    mark: int = 0  # numbers below are durably reserved, and their values known
    asked_mark: int = 0  # … or will be, once the write is durable and the rows are here
    not_before: int = 0  # nothing goes out until this write is durable
    recorded: int = 0  # its ends are in writes up to this one; 0: none has ended
    chunk: int = 0  # size of the latest chunk
    starts: list[int] = field(default_factory=list)  # the first number of every chunk
    chunks: dict[int, int] = field(default_factory=dict)  # open ones: first -> stop
    awaited: dict[int, int] = field(default_factory=dict)  # chunks whose rows are being read
    opened: set[int] = field(default_factory=set)  # chunks above the mark, early
    unfinished: dict[int, int] = field(default_factory=dict)  # chunk's first -> tasks to go
    marred: dict[int, int] = field(default_factory=dict)  # closed chunks with given-up tasks
    done: BitMap = field(default_factory=BitMap)
    failed: BitMap = field(default_factory=BitMap)
    ready: list[BitMap] = field(default_factory=list)  # by class: below next, free to go out
    crowded: bool = False  # it would have more classes than there may be
    parked: BitMap = field(default_factory=BitMap)  # as ready, once their rows are here
    doubt: BitMap = field(default_factory=BitMap)  # may be running with an unheard pilot
    live: dict[int, list[Attempt]] = field(default_factory=dict)
    tries: dict[int, int] = field(default_factory=dict)  # failures of the task's own
    overtimes: dict[int, int] = field(default_factory=dict)  # … because of the time limit
    short: dict[int, int] = field(default_factory=dict)  # … for want of memory
    losses: dict[int, int] = field(default_factory=dict)  # failures of the infrastructure
    # Tasks that are tried again (`retry_hosts`):
    failed_on: dict[int, FailedOn] = field(default_factory=dict)  # by task
    avoided: dict[str, BitMap] = field(default_factory=dict)  # by host: tasks that failed there
    last_tries: BitMap = field(default_factory=BitMap)  # tasks whose next failure counts
    elsewhere: dict[tuple[int, tuple[str, ...], bool], bool] = field(default_factory=dict)
    elsewhere_at: float = -1.0  # when the entries of `elsewhere` were found
    raised: list[Raised] = field(default_factory=list)
    streak: int = 0  # own failures since the last success
    heard: float = math.inf  # when somebody waited for its calls; for ever: nobody has to
    times: list[Times] = field(default_factory=list)  # by class
    pace: Times = field(default_factory=Times)  # parts of their time limits that tasks took
    rules: list[int] = field(default_factory=list)  # by class: the number of its need
    kinds: list[int] = field(default_factory=list)  # by number of a need: its class
    numbers: dict[Need, int] = field(default_factory=dict)  # of needs; pilots know these, too
    turns: list[tuple[float, int]] = field(default_factory=list)  # classes, the next one first
    samples: list[list[Scalar] | None] = field(default_factory=list)  # by class: a task's values
    ends: int = 0  # successes in this epoch
    first_end: float = 0.0  # when the first of them came
    trouble: Trouble | None = None  # the latest
    # What its policy sees and has brought about (`match_cache`, `replication`, `blame`):
    stamp: int = 0  # grows when its ads change
    dirty: bool = True  # they may no longer be true
    seen_scene: int = -1  # the scene's stamp when they last were
    seen_at: float = -1.0  # … and the time
    jobs: list[Ad] = field(default_factory=list)  # by class: its ad
    tail: bool = False
    wanting: float = math.inf  # since when it has tasks that could go out
    suits: Suits | None = None  # at which sites its policy lets it have pilots
    unfit: dict[tuple[int, str], "Unfit"] = field(default_factory=dict)  # by class and site
    best_rate: float = 0.0  # the lowest error rate of hosts that can have its tasks, and when
    best_at: float = -1.0
    overdue: dict[int, None] = field(default_factory=dict)  # tasks that nobody has in time
    offers: dict[int, None] = field(default_factory=dict)  # running tasks that may run twice
    replicas: int = 0
    aside: BitMap = field(default_factory=BitMap)  # ready ones that fit nobody, for a while
    set_aside: dict[int, int] = field(default_factory=dict)  # chunks that these are of
    sorted_at: dict[int, float] = field(default_factory=dict)  # chunks -> since when they wait
    rescue: BitMap = field(default_factory=BitMap)  # may go out, but only to fail-over sites
    rescued: BitMap = field(default_factory=BitMap)  # have or had that chance
    tallies: dict[str, Tally] = field(default_factory=dict)  # by host: how its tasks fare there
    well: int = 0  # tasks done well, on all of these
    ended_weight: float = 0.0  # the sum of their weights
    failed_weight: float = 0.0  # … times their rates
    expense: float = 0.0  # what its policy costs for one pilot, in units of work (`budget`)
    quarantined: str = ""  # why nothing of it is evaluated any more (`quarantine`)
    held: PolicySpec | None = None  # of one that is quarantined: the policy that is put away
    shell: bool = False  # it could not be built: nobody knows its tasks' values
    suspects: dict[BagId, Suspect] = field(default_factory=dict)  # the state's
    outputs: OutputSummary = OutputSummary()  # `output_summary` keeps it
    outputs_unsaved: bool = False
    # Of its input files (`input_versions`): versions after the first; what earlier ones named.
    input_versions: list[InputVersion] = field(default_factory=list)
    earlier_files: frozenset[str] = frozenset()

    @property
    def total(self) -> int:
        return self.numbering.total

    def over(self) -> bool:
        return not self.open and len(self.done) + len(self.failed) == self.total

    def unsent(self) -> int:
        """Tasks that could go out now or once their numbers are reserved."""
        if self.status is not BagStatus.RUNNING:
            return 0
        return self.waiting() + self.total - self.next

    def waiting(self) -> int:
        return sum(map(len, self.ready)) + len(self.parked) + len(self.aside) + len(self.rescue)

    def spent(self, task: int) -> bool:
        """Whether it has failed as often as it may."""
        spec = self.spec
        tries, overtimes = self.tries.get(task, 0), self.overtimes.get(task, 0)
        return tries > spec.retries or overtimes > spec.overtimes

    @property
    def width(self) -> int:
        """About how many characters one of its tasks has at most when it is sent."""
        return self.numbering.width * (1 + len(self.filled)) + self.inputs_size

    def chunk_of(self, task: int) -> int:
        """The first number of the task's chunk."""
        return self.starts[bisect_right(self.starts, task) - 1]

    def values(self, task: int) -> list[Scalar]:
        """Of a task in an open chunk whose rows are here."""
        plain = self.numbering.plain
        if plain is not None:
            return plain(task)
        return self.numbering.values(task, self.chunk_of(task))

    def call_file(self, task: int) -> Blob | None:
        """The file that an attempt of this task needs, besides those of all."""
        if not self.large or task in self.done:  # what is done may be forgotten
            return None
        return call_files.file_of(self.values(task)[0])

    def class_of(self, task: int) -> int:
        if self.classify is None:
            return 0
        try:
            return self.classify(self.values(task))
        except Exception as error:  # whatever it is, it is this bag's trouble alone
            self.suspect("its tasks cannot be told apart", error)
            return 0

    def suspect(self, what: str, error: Exception) -> None:
        """Let it be quarantined when this turn ends."""
        self.suspects.setdefault(self.id, suspect(what, error))

    def add_need(self, need: Need) -> None:
        """Tasks may need this, too: it gets the next number, and a class."""
        number = len(self.kinds)
        self.numbers.setdefault(need, number)
        self.kinds.append(len(self.needs))
        self._add_class(need, number, None)

    def add_class(self, number: int, sample: list[Scalar]) -> int:
        """Another class of tasks with the need of that number, such as this one."""
        self._add_class(self.needs[self.kinds[number]], number, sample)
        return len(self.needs) - 1

    def _add_class(self, need: Need, number: int, sample: list[Scalar] | None) -> None:
        seconds = need.limit_seconds if self.spec.order == LONG_FIRST else 0.0
        insort(self.turns, (-seconds, len(self.needs)))
        self.needs.append(need)
        self.rules.append(number)
        self.samples.append(sample)
        self.ready.append(BitMap())
        self.times.append(Times())
        self.dirty = True

    @property
    def long_first(self) -> bool:
        """Whether some of its tasks go out before others because they have more time."""
        return self.turns[0][0] != self.turns[-1][0]

    def free(self, task: int) -> None:
        """This task may go out (again)."""
        if self.awaited and self.chunk_of(task) in self.awaited:
            self.parked.add(task)
        elif task in self.rescued:
            self.rescue.add(task)
        else:
            self.ready[self.class_of(task)].add(task)

    @property
    def grown(self) -> bool:
        """Whether some of its tasks have more time than their class."""
        return bool(self.overtimes or self.raised)

    def fail_over_no_more(self) -> None:
        """Tasks that wait for a last chance have it anywhere: no other place is left for it."""
        waiting, self.rescue = self.rescue, BitMap()
        self.rescued.clear()
        for task in waiting:
            self.free(task)

    def hold(self, task: int) -> None:
        """This task must not go out, whether it was to or not."""
        self.parked.discard(task)
        self.aside.discard(task)
        self.rescue.discard(task)
        self.overdue.pop(task, None)
        self.offers.pop(task, None)
        for ready in self.ready:
            ready.discard(task)

    def hold_all(self) -> None:
        self.parked.clear()
        self.aside.clear()
        self.rescue.clear()
        self.overdue.clear()
        self.offers.clear()
        for ready in self.ready:
            ready.clear()

    def running(self) -> BitMap:
        """Tasks that are out with pilots and have no result yet."""
        found = BitMap()
        found.add_range(0, self.next)
        for place in self.places():
            found -= place
        return found

    def places(self) -> Iterator[BitMap]:
        yield from (self.done, self.failed, self.parked, self.doubt, self.aside, self.rescue)
        yield from self.ready


class Waiting(Struct):
    """A sync that has no answer yet: parked, or until write `after` is durable. Without a
    request its sender has hung up; it will ask again with the same number."""

    request: RequestId | None
    number: int
    since: float
    after: int


class Candidate(Struct, frozen=True, eq=False):
    """Classes of a bag that rank alike on a pilot. Without matches: all of them, whoever it is."""

    bag: Bag
    rank: float = 0.0
    matches: list[Match | None] | None = None
    barren: bool = False  # none of them may run there

    def match(self, kind: int) -> Match | None:
        if self.matches is None:
            return ANYWHERE
        if kind >= len(self.matches):  # a class that came while tasks were being taken
            return None
        found = self.matches[kind]
        return found if found is not None and found.rank == self.rank else None


class Scene(Struct, eq=False):
    """What policies see besides: sites, users, the queue. Looked at anew once a second."""

    looks: dict[str, tuple[str, ...]] = field(default_factory=dict)  # by role: at which attributes
    live: tuple[tuple[str, str], ...] = ()  # of these, role and name: what is never kept
    statistics: tuple[tuple[str, str], ...] = ()  # … what is kept for a second
    lasting: tuple[tuple[str, str], ...] = ()  # … what is as the pilot has said it
    policies: int = 0  # the count of changes for which this holds
    comings: int = -1  # the count for which the next four hold
    kinds: dict[str, ClassMatch] = field(default_factory=dict)  # by what their policies say
    owners: dict[str, list[Bag]] = field(default_factory=dict)  # their bags, oldest first
    asked: dict[str, list[ClassMatch | None]] = field(default_factory=dict)  # … with what others
    inward: dict[str, list[Bag]] = field(default_factory=dict)  # … whose policies look at them
    restless: bool = False  # some policy never says the same twice
    bags: int = 0  # grows with every bag's stamp
    latest_bags: "deque[tuple[int, BagId]]" = field(
        default_factory=lambda: deque(maxlen=MOST_LATEST)
    )  # the bags that it last grew with
    places: dict[BagId, int] = field(default_factory=dict)  # of bags, among their owner's
    asking: bool = False  # whether any policy has something to say when tasks go out
    ranking: bool = False  # … and ranks them
    limiting: bool = False  # … and says how many a pilot holds
    at: float = -1.0
    stamp: int = 0
    sites: dict[str, Ad] = field(default_factory=dict)
    users: dict[str, Ad] = field(default_factory=dict)
    queue: Ad = field(default_factory=Ad)


class Pilot(Struct, eq=False):
    record: PilotRecord
    heard: float
    until: float  # when its time is over: it gets no more tasks, and is sent home
    status: PilotStatus = PilotStatus.ACTIVE
    resync: bool = False  # it must first say what it holds
    last: int = 0  # the highest sync number taken
    recorded: int = 0  # the highest one whose ends are durable
    want: int = 0
    load: int = 0  # slots that its attempts take, or will, but for those that are aside
    aside: int = 0  # slots' worth of attempts that wait for files or a setup, and take no slot
    waits: dict[BagId, int] = field(default_factory=dict)  # bags for whose files it waits
    shortage: str = ""  # why its host can start no task now
    clock: PilotClock = field(default_factory=PilotClock)
    following: tuple[Followed, ...] = ()  # what it was told to follow
    attempts: dict[tuple[int, int], Attempt] = field(default_factory=dict)  # by their id
    waiting: dict[int, Waiting] = field(default_factory=dict)
    answers: dict[int, Answer] = field(default_factory=dict)
    taken: dict[int, list[End]] = field(default_factory=dict)  # ends it may send once more
    cancels: list[Attempt] = field(default_factory=list)
    recalls: list[Attempt] = field(default_factory=list)
    bodies: dict[BagId, int] = field(default_factory=dict)  # with how many needs it knows bags
    unneeded: list[BagId] = field(default_factory=list)  # bodies that it is to drop, not told yet
    proven: set[BagId] = field(default_factory=set)  # bags of which it has run a task well
    rests: dict[BagId, Rest] = field(default_factory=dict)  # bags whose tasks fail there
    faces: dict[str, PilotFace] = field(default_factory=dict)  # by owner of bags

    def add(self, attempt: Attempt) -> None:
        self.attempts[attempt.id] = attempt
        self.load += attempt.weight

    def forget_bag(self, bag: BagId) -> None:
        """It is over. Should it come back, its body is sent once more."""
        if self.bodies.pop(bag, None) is not None:
            self.unneeded.append(bag)
        self.proven.discard(bag)
        if self.rests:
            self.rests.pop(bag, None)

    def drop(self, id_: tuple[int, int]) -> Attempt | None:
        attempt = self.attempts.pop(id_, None)
        if attempt is not None:
            self.load -= attempt.weight
            if self.load < 0:  # it was one of those aside
                self.load, self.aside = 0, self.aside + self.load
        return attempt

    def set_aside(self, waits: dict[BagId, int]) -> None:
        """Attempts of these bags wait for files, so many slots' worth."""
        total = self.load + self.aside
        self.waits, self.aside = waits, min(total, sum(waits.values()))
        self.load = total - self.aside


class Host(Struct, eq=False):
    """A machine that is or was there: its pilots, and what is remembered of it."""

    name: str
    history: History
    fresh: History = field(default_factory=History)  # what its site has not heard of yet
    pilots: dict[PilotId, None] = field(default_factory=dict)
    saved: float = 0.0  # when its history was last written


class Draw(Struct):
    """Running tasks of a bag that its policy is to be asked about, until there are so many offers.
    None: they are not drawn yet."""

    bag: BagId
    wanted: int
    tasks: list[int] | None = None


class Job(Struct, eq=False):
    """A site job that is not over."""

    record: JobRecord
    since: float  # when it was asked for, or began to wait again
    pilot: PilotId | None = None  # that it became; perhaps it has left
    voice: str = ""  # key of the pilot that spoke last, since the job was known to wait
    succeeded: bool = False  # … which came after another, and its site has not said why
    running: bool = False
    suspended: bool = False  # by its site, while it runs
    started: float = 0.0  # when it began to run, as far as we know
    useful: bool = False  # its pilot has done some good, or nobody can say that it has not
    asked: bool = False  # its site has been asked for it: it is durable
    cancelled: float = 0.0  # when that was last asked for
    vanished: str = ""  # its site lists it no longer, but its pilot was heard
    holder: str = ""  # key of the pilot that used its secret last; empty: the next one may
    holder_left: float = 0.0  # when that pilot left
    refused_key: str = ""  # of the last other pilot that showed the secret
    left_at: float = 0.0  # when its pilot said goodbye; 0: it has not


class Site(Struct, eq=False):
    """`ramp`: how many jobs may wait there now. `failures` in a row, since any of its pilots did
    some good; it rests until then."""

    record: SiteRecord
    ramp: int
    jobs: dict[JobId, None] = field(default_factory=dict)
    failures: int = 0
    problem: str = ""  # the last of them
    failed_at: float = 0.0  # when that was
    rests_until: float = 0.0
    unanswered: str = ""  # why nothing can be had of it
    crowded: str = ""  # why it may not be used: owners would share an account there, without walls
    surplus_since: float = math.inf
    preference: Preference | None = None
    shown: dict[str, HostShown] = field(default_factory=dict)  # by host, the latest last


class State:
    def __init__(self, epoch: int, settings: Settings, now: float) -> None:
        self.epoch = epoch
        self.settings = settings
        self.ticked = now
        self.bags: dict[BagId, Bag] = {}
        self.suspects: dict[BagId, Suspect] = {}  # to be quarantined when the turn ends
        self.turns = 0  # events that were handled
        self.budgets: dict[str, Budget] = {}  # by owner
        self.postponed: dict[str, None] = {}  # owners whose policies go on in a later turn
        self.overruns = 0  # turns in which an owner's budget was used up
        self.quarantines = 0  # bags that were, in this epoch
        self.loading: dict[BagId, bool] = {}  # being read; True: it changed meanwhile
        self.retrying: dict[RequestId, RetryRequested] = {}  # until their bags are read
        self.keys: dict[str, BagId] = {}
        self.pilots: dict[PilotId, Pilot] = {}
        self.pilot_keys: dict[str, PilotId] = {}
        self.fenced: dict[str, None] = {}  # keys of pilots whose place was taken
        self.jobs: dict[JobId, Job] = {}
        self.given_up: dict[JobId, JobRecord] = {}  # over, though nobody saw them end
        self.hungry: dict[PilotId, None] = {}  # parked with room to spare, oldest first
        self.news = 0  # grows whenever there may be work for whoever found none
        self.offered = 0  # the news that all who are hungry have heard
        self.signalled: dict[PilotId, None] = {}  # have cancels or recalls to hear of
        self.unheard: dict[PilotId, None] = {}  # of earlier epochs, not synced yet
        self.adopt_until = now
        self.departed: dict[PilotId, SavePilotStatus | None] = {}  # without a word, not saved yet
        self.machines: dict[str, str] = {}  # machine -> the name under which it is known
        self.hosts: dict[str, Host] = {}  # by that name
        self.unsaved: dict[str, None] = {}  # hosts whose history has changed since
        self.sites: dict[str, Site] = {}
        self.guarded: dict[str, SiteSpec] = {}  # those that are not for every task
        self.token_owners: dict[str, float] = {}  # who may submit by a token -> until when
        self.people: tuple[str, ...] = ()  # owners, if there may be others than the server's user
        self.asked_for: dict[str, float] = {}  # owner -> when pilots were last asked for
        self.reserves: tuple[str, ...] = ()  # … but for those that failed elsewhere
        self.defined = 0  # grows when sites come, go or change
        self.provide_at = 0.0  # how many pilots where is not asked again before, but for ticks
        self.site_histories: dict[str, History] = {}  # of all hosts of a site, taken together
        self.overall = History(site="")  # … and those of all sites
        self.tokens: dict[str, TokenRecord] = {}  # by digest; none that is revoked
        self.random = Random(epoch)
        self.scene = Scene()
        self.policies = 0  # grows whenever some bag's policy comes, goes or changes
        self.comings = 0  # … whenever some bag does
        self.deadlines: list[tuple[float, AttemptId, BagId, TaskNumber]] = []  # a heap
        self.most_deadlines = FEW_DEADLINES  # before those that do not matter any more go
        self.replicated = now  # when replicas were last drawn
        self.drawing: deque[Draw] = deque()  # running tasks that are not looked at yet
        self.followed: dict[Followed, float] = {}  # what people watch, and until when
        self.all_heard = True  # no pilot of an earlier epoch has gone without a word
        self.draining = False
        self.next_bag = 1
        self.next_pilot = 1
        self.next_token = 1
        self.next_sequence = 1
        self.next_job = 0
        self.writes = 0  # numbered so far
        self.durable = 0
        self.then: deque[tuple[int, Then]] = deque()
        self._slots, self._slots_turn = 0, -1  # slots of active pilots, as counted in that turn
        self.departures = 0  # bags that have gone since those left were last counted (`ranking`)
        self.departed_at = now  # when that was
        self.ended: dict[str, int] = {}  # attempts by outcome, in this epoch

    def slots(self) -> int:
        """Of all active pilots. Counted once in a turn: thousands of pilots may be answered in one,
        and their status hardly changes."""
        if self._slots_turn != self.turns:
            pilots = self.pilots.values()
            self._slots = sum([p.record.slots for p in pilots if p.status is PilotStatus.ACTIVE])
            self._slots_turn = self.turns
        return self._slots

    def unsent(self) -> int:
        return sum(bag.unsent() for bag in self.bags.values())

    def check(self) -> None:
        """Assert the invariants; for tests and the simulator, after every event."""
        live = 0
        for bag in self.bags.values():
            check_bag(bag)
            live += sum(len(attempts) for attempts in bag.live.values())
        known = 0
        for pilot in self.pilots.values():
            for attempt in pilot.attempts.values():
                assert attempt.pilot == pilot.record.id
                if attempt.bag in self.bags:
                    assert attempt in self.bags[attempt.bag].live[attempt.task]
                    known += 1
            assert pilot.load + pilot.aside == sum(a.weight for a in pilot.attempts.values())
            assert all(number > pilot.last - 3 for number in pilot.waiting), "too many open syncs"
            assert pilot.status is not PilotStatus.LOST or not pilot.attempts
        assert live == known, f"{live} live attempts in bags, {known} with pilots"
        assert self.durable <= self.writes
        for name, site in self.sites.items():
            for id_ in site.jobs:
                assert self.jobs[id_].record.site == name
        here = sum(job.record.site in self.sites for job in self.jobs.values())
        assert here == sum(len(site.jobs) for site in self.sites.values()), "a job at no site"
