"""A bag that may still change: what its owner asked for, and its parts.

Nothing per task exists until something happens to it: a bag of ten million is a few numbers and
bitmaps, plus one `Attempt` for each task that is out with a pilot.
"""

import math

from msgspec import Struct, field
from pyroaring import BitMap

from covey.core.match.policies import Compiled
from covey.core.record import call_files
from covey.core.record.model import BagId, BagSpec, BagStatus, Blob, Need, PolicySpec
from covey.core.record.suspects import Suspect, suspect
from covey.core.record.task_numbers import Numbering
from covey.core.state.chunks import Chunks
from covey.core.state.classes import TaskClasses
from covey.core.state.failures import TaskFailures
from covey.core.state.files import BagInputs, BagOutputs
from covey.core.state.hosts import HostTallies
from covey.core.state.places import TaskPlaces
from covey.core.state.policy_cache import PolicyCache
from covey.core.state.replicas import Replicas
from covey.core.values.space import Scalar
from covey.pilot.protocol.messages import Body


class BagProgress(Struct, eq=False):
    """Successes of the bag in this epoch, and whether its owner still waits for them."""

    recorded: int = 0  # the number of the last write with ends of the bag; 0: no end yet
    ends: int = 0  # successes in this epoch
    first_end: float = 0.0  # when the first of them came
    heard: float = math.inf  # when a program last waited for its calls; infinity: not needed
    wanting: float = math.inf  # since when the bag has tasks that could go out


class Quarantine(Struct, eq=False):
    """`quarantine` has the rules."""

    reason: str = ""  # why nothing of the bag is evaluated any more; empty: it is not quarantined
    held: PolicySpec | None = None  # its policy, put away while it is quarantined
    shell: bool = False  # the bag could not be built: the values of its tasks are unknown
    suspects: dict[BagId, Suspect] = field(default_factory=dict)  # shared with the state

    def check(self) -> None:
        assert (self.held is None) == (not self.reason), "a policy is put away without a reason"
        assert self.reason or not self.shell, "a shell is not quarantined"


class Bag(Struct, eq=False):
    """Fields with defaults at the end are parts: each keeps its own rules."""

    id: BagId
    spec: BagSpec
    body: Body
    created: float
    open: bool
    policy: Compiled
    numbering: Numbering
    classes: TaskClasses
    inputs: BagInputs
    body_size: int = 0  # characters of `body`, when it is sent
    status: BagStatus = BagStatus.RUNNING
    reason: str = ""  # why it is paused
    keys: set[str] = field(default_factory=set)  # of segments that were appended
    places: TaskPlaces = field(default_factory=TaskPlaces)
    chunks: Chunks = field(default_factory=Chunks)
    failures: TaskFailures = field(default_factory=TaskFailures)
    hosts: HostTallies = field(default_factory=HostTallies)
    cache: PolicyCache = field(default_factory=PolicyCache)
    replicas: Replicas = field(default_factory=Replicas)
    outputs: BagOutputs = field(default_factory=BagOutputs)
    progress: BagProgress = field(default_factory=BagProgress)
    quarantine: Quarantine = field(default_factory=Quarantine)

    @property
    def total(self) -> int:
        return self.numbering.total

    def over(self) -> bool:
        places = self.places
        return not self.open and len(places.done) + len(places.failed) == self.total

    def unsent(self) -> int:
        """Tasks that could go out now or once their numbers are reserved."""
        if self.status is not BagStatus.RUNNING:
            return 0
        return self.places.waiting() + self.total - self.places.next

    @property
    def width(self) -> int:
        """The most characters, about, that one of its tasks takes in a message."""
        return self.numbering.width * (1 + len(self.inputs.filled)) + self.inputs.size

    def values(self, task: int) -> list[Scalar]:
        """The values of a task whose chunk is open and whose rows have been read."""
        plain = self.numbering.plain
        if plain is not None:
            return plain(task)
        return self.numbering.values(task, self.chunks.first_of(task))

    def call_file(self, task: int) -> Blob | None:
        """The file that only this task's attempts need; None if there is no such file."""
        if not self.inputs.large or task in self.places.done:  # what is done may be forgotten
            return None
        return call_files.file_of(self.values(task)[0])

    def class_of(self, task: int) -> int:
        classify = self.classes.classify
        if classify is None:
            return 0
        try:
            return classify(self.values(task))
        except Exception as error:  # it must not stop other bags
            self.suspect("the classes of its tasks cannot be computed", error)
            return 0

    def suspect(self, what: str, error: Exception) -> None:
        """Have the bag quarantined when this turn ends."""
        self.quarantine.suspects.setdefault(self.id, suspect(what, error))

    def add_need(self, need: Need) -> None:
        """Tasks may have this need, too."""
        self.classes.add_need(need)
        self._class_added()

    def add_class(self, number: int, sample: list[Scalar]) -> int:
        """Add another class with the need of that number. `sample`: the values of one of its
        tasks."""
        kind = self.classes.split(number, sample)
        self._class_added()
        return kind

    def _class_added(self) -> None:
        self.places.ready.append(BitMap())
        self.cache.dirty = True

    def free(self, task: int) -> None:
        """This task may go out (again)."""
        places, awaited = self.places, self.chunks.awaited
        if awaited and self.chunks.first_of(task) in awaited:
            places.parked.add(task)
        elif task in places.rescued:
            places.rescue.add(task)
        else:
            places.ready[self.class_of(task)].add(task)

    def fail_over_no_more(self) -> None:
        """The bag has no fail-over sites any more: tasks that wait for a last chance there get it
        anywhere."""
        waiting, self.places.rescue = self.places.rescue, BitMap()
        self.places.rescued.clear()
        for task in waiting:
            self.free(task)

    def hold(self, task: int) -> None:
        """This task must not go out, wherever it waits."""
        self.places.hold(task)
        self.replicas.forget(task)

    def hold_all(self) -> None:
        self.places.hold_all()
        self.replicas.forget_all()

    def check(self) -> None:
        """Assert the invariants of the parts, and those between them."""
        places = self.places
        self.classes.check()
        places.check(all_there=self.status in (BagStatus.RUNNING, BagStatus.PAUSED))
        self.chunks.check(places.done | places.failed)
        self.failures.check()
        self.hosts.check()
        self.cache.check(len(self.classes))
        self.replicas.check(places.live)
        self.inputs.check()
        self.quarantine.check()
        assert len(places.ready) == len(self.classes)
        assert places.next <= self.chunks.mark
        assert self.chunks.asked_mark <= self.total
