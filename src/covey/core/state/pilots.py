"""Pilots: those that are there, those that wait for work, and those of earlier epochs.

The rule: an attempt that a pilot holds is live in its bag (`State.check`), and takes slots of the
pilot unless it waits for files.
"""

from collections.abc import Container, Mapping

from msgspec import Struct, field

from covey.core.record.actions import SavePilotStatus
from covey.core.record.attempts import Attempt
from covey.core.record.model import BagId, PilotId, PilotRecord, PilotStatus, RequestId
from covey.core.state.hosts import Rest
from covey.core.state.match_records import PilotFace
from covey.core.state.pilot_clock import PilotClock
from covey.pilot.protocol.messages import Answer, End, Followed


class Waiting(Struct):
    """A sync that has no answer yet: it is parked, or waits until write `after` is durable. Without
    a request its sender has hung up, and will send the same number again."""

    request: RequestId | None
    number: int
    since: float
    after: int


class Pilot(Struct, eq=False):
    record: PilotRecord
    heard: float
    until: float  # when its time is over: it gets no more tasks, and is told to leave
    status: PilotStatus = PilotStatus.ACTIVE
    resync: bool = False  # it must first list what it holds
    last: int = 0  # the highest sync number taken
    recorded: int = 0  # the highest sync number whose ends are durable
    want: int = 0
    load: int = 0  # slots that its attempts take or will take, without those aside
    aside: int = 0  # slots that attempts will take which still wait for files or a setup
    waits: dict[BagId, int] = field(default_factory=dict)  # bags for whose files it waits
    shortage: str = ""  # why its host can start no task now
    clock: PilotClock = field(default_factory=PilotClock)
    following: tuple[Followed, ...] = ()  # tasks whose output it was told to follow
    attempts: dict[tuple[int, int], Attempt] = field(default_factory=dict)  # by their id
    waiting: dict[int, Waiting] = field(default_factory=dict)
    answers: dict[int, Answer] = field(default_factory=dict)
    taken: dict[int, list[End]] = field(default_factory=dict)  # by sync: ends it may send again
    cancels: list[Attempt] = field(default_factory=list)
    recalls: list[Attempt] = field(default_factory=list)
    bodies: dict[BagId, int] = field(default_factory=dict)  # bodies it has -> their needs
    unneeded: list[BagId] = field(default_factory=list)  # bodies to drop: the next answer says so
    proven: set[BagId] = field(default_factory=set)  # bags with a task that it has run well
    rests: dict[BagId, Rest] = field(default_factory=dict)  # bags whose tasks fail there
    faces: dict[str, PilotFace] = field(default_factory=dict)  # by owner of bags

    def add(self, attempt: Attempt) -> None:
        self.attempts[attempt.id] = attempt
        self.load += attempt.weight

    def forget_bag(self, bag: BagId) -> None:
        """The bag is over. If it is reopened, its body is sent again."""
        if self.bodies.pop(bag, None) is not None:
            self.unneeded.append(bag)
        self.proven.discard(bag)
        if self.rests:
            self.rests.pop(bag, None)

    def drop(self, id_: tuple[int, int]) -> Attempt | None:
        attempt = self.attempts.pop(id_, None)
        if attempt is not None:
            self.load -= attempt.weight
            if self.load < 0:  # the attempt was aside
                self.load, self.aside = 0, self.aside + self.load
        return attempt

    def set_aside(self, waits: dict[BagId, int]) -> None:
        """Attempts of these bags wait for files; `waits` has the slots that they will take."""
        total = self.load + self.aside
        self.waits, self.aside = waits, min(total, sum(waits.values()))
        self.load = total - self.aside

    def check(self) -> None:
        assert all(attempt.pilot == self.record.id for attempt in self.attempts.values())
        assert self.load + self.aside == sum(attempt.weight for attempt in self.attempts.values())
        assert all(number > self.last - 3 for number in self.waiting), "too many open syncs"
        assert self.status is not PilotStatus.LOST or not self.attempts


class PilotQueue(Struct, eq=False):
    """Pilots that wait for work or for a message."""

    hungry: dict[PilotId, None] = field(default_factory=dict)  # parked with room, oldest first
    news: int = 0  # grows whenever there may be work for a hungry pilot
    offered: int = 0  # the count of news when all hungry pilots were last offered work
    signalled: dict[PilotId, None] = field(default_factory=dict)  # to be answered at once
    followed: dict[Followed, float] = field(default_factory=dict)  # watched tasks -> until when
    look_at: float = 0.0  # before this time no parked sync and no lease times out

    def remove(self, id_: PilotId) -> None:
        self.hungry.pop(id_, None)
        self.signalled.pop(id_, None)

    def check(self, pilots: Container[PilotId]) -> None:
        assert self.offered <= self.news
        assert all(id_ in pilots for id_ in self.hungry), "a pilot that is gone waits for work"


class PilotArrivals(Struct, eq=False):
    """Keys of pilots, and pilots of earlier epochs that have not been heard yet."""

    adopt_until: float
    keys: dict[str, PilotId] = field(default_factory=dict)
    fenced: dict[str, None] = field(default_factory=dict)  # keys of pilots whose place was taken
    unheard: dict[PilotId, None] = field(default_factory=dict)  # of earlier epochs, not synced yet
    # Pilots that went without listing what they held -> what to save when the doubt is resolved:
    departed: dict[PilotId, SavePilotStatus | None] = field(default_factory=dict)
    all_heard: bool = True  # no pilot of an earlier epoch has gone in this way

    def check(self, pilots: Mapping[PilotId, Pilot]) -> None:
        for key, id_ in self.keys.items():
            assert pilots[id_].record.key == key
        assert all(id_ in pilots for id_ in self.unheard), "a pilot that is gone is waited for"
        assert self.unheard or not self.departed, "a departure is not saved"
