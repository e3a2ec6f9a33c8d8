"""Pilots: those that are there, who waits for what, and who was there before.

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
    """A sync that has no answer yet: parked, or until write `after` is durable. Without a
    request its sender has hung up; it will ask again with the same number."""

    request: RequestId | None
    number: int
    since: float
    after: int


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

    def check(self) -> None:
        assert all(attempt.pilot == self.record.id for attempt in self.attempts.values())
        assert self.load + self.aside == sum(one.weight for one in self.attempts.values())
        assert all(number > self.last - 3 for number in self.waiting), "too many open syncs"
        assert self.status is not PilotStatus.LOST or not self.attempts


class PilotQueue(Struct, eq=False):
    """Which pilots are to hear something."""

    hungry: dict[PilotId, None] = field(default_factory=dict)  # parked with room, oldest first
    news: int = 0  # grows whenever there may be work for whoever found none
    offered: int = 0  # the news that all who are hungry have heard
    signalled: dict[PilotId, None] = field(default_factory=dict)  # have cancels or recalls to hear
    followed: dict[Followed, float] = field(default_factory=dict)  # what people watch, until when
    look_at: float = 0.0  # no parked sync and no lease is over before

    def remove(self, id_: PilotId) -> None:
        self.hungry.pop(id_, None)
        self.signalled.pop(id_, None)

    def check(self, pilots: Container[PilotId]) -> None:
        assert self.offered <= self.news
        assert all(id_ in pilots for id_ in self.hungry), "a pilot that is gone waits for work"


class PilotArrivals(Struct, eq=False):
    """By which keys pilots are known, and which pilots of earlier epochs are still to be heard."""

    adopt_until: float
    keys: dict[str, PilotId] = field(default_factory=dict)
    fenced: dict[str, None] = field(default_factory=dict)  # keys of pilots whose place was taken
    unheard: dict[PilotId, None] = field(default_factory=dict)  # of earlier epochs, not synced yet
    # Pilots that went without a word, and what is to be saved of them when doubt is resolved:
    departed: dict[PilotId, SavePilotStatus | None] = field(default_factory=dict)
    all_heard: bool = True  # no pilot of an earlier epoch has gone without a word

    def check(self, pilots: Mapping[PilotId, Pilot]) -> None:
        for key, id_ in self.keys.items():
            assert pilots[id_].record.key == key
        assert all(id_ in pilots for id_ in self.unheard), "a pilot that is gone is waited for"
        assert self.unheard or not self.departed, "a departure is not saved"
