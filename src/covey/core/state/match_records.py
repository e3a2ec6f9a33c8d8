"""Answers of policies, and the facts that they were computed from."""

from collections.abc import Callable
from typing import TypeAlias

from msgspec import Struct, field

from covey.classad import Ad, Policy
from covey.core.match.policies import Places
from covey.core.record.model import BagId, PilotRecord

Value: TypeAlias = bool | int | float | str


class Match(Struct, frozen=True, gc=False):
    """A policy's answer for a class of tasks on a pilot that may run it."""

    rank: float = 0.0
    concurrency: int | None = None
    deadline: float = 0.0


ANYWHERE = Match()


class ClassMatch(Struct, eq=False):
    """Bags with equal policies that do not look at the bag itself: the answer for a pilot holds for
    all of these bags. Small, since a thousand different ones may be evaluated in a row."""

    evaluate: Callable[..., tuple[object, ...]]
    places: Places
    sees: frozenset[str]
    outward: bool
    static: int  # work of its operations, in units (`policy_budget`)
    cost: int = 0  # work of its last evaluation, if that was measured


# A rank, the place of the bag among its owner's bags, and the matches of its classes.
Placed: TypeAlias = tuple[float, int, list[Match | None] | None]


class PilotFace(Struct, eq=False):
    """A pilot as the bags of one owner see it: the ads of its host and of itself, with the
    attributes that policies read, and the answers of these policies. `stamp` grows when the ads
    change."""

    host: Ad
    pilot: Ad
    stamp: int = 0
    changed: dict[str, int] = field(default_factory=dict)  # attribute -> the stamp it came with
    latest: list[str] = field(default_factory=list)  # attributes that changed with the last stamp
    record: PilotRecord | None = None  # the record that the ads were made from
    policies: int = -1  # the count of policy changes that they were made for
    own: dict[str, Value] = field(default_factory=dict)  # tags by the owner's tasks
    others: dict[str, Value] = field(default_factory=dict)  # all other tags
    at: float = 0.0  # when the host's statistics were last read
    failures: int = 0  # failures in a row on the host, at that time
    said: dict[ClassMatch, list[Match | None]] = field(default_factory=dict)  # the answers
    said_at: tuple[int, int] = (-1, -1)  # stamps (this one, the scene's) for which they hold
    owing: dict[ClassMatch, None] = field(default_factory=dict)  # to be evaluated in a later turn
    start: int = 0  # the place of the bag with which that turn begins
    found: dict[BagId, "MatchAnswer"] = field(default_factory=dict)
    order: list[Placed] = field(default_factory=list)  # the owner's bags, the best first
    order_at: tuple[int, ...] = ()  # the stamps for which this order holds


class MatchAnswer(Struct):
    """A policy's matches for one bag on one pilot, by class (None: may not run there). They hold
    for these stamps."""

    face: int
    scene: int
    bag: int
    matches: list[Match | None]
    asked: int = 0  # classes that were evaluated for these stamps
    turn: int = 0  # the class that is evaluated next
    ranks: list[float] = field(default_factory=list)  # different ranks of classes that may run

    def whole(self) -> bool:
        """Whether all classes were evaluated."""
        return self.asked == len(self.matches)


class Suits(Struct, eq=False):
    """A policy's answers for sites. They hold for these stamps."""

    stamps: tuple[int, ...]
    sites: dict[str, bool] = field(default_factory=dict)
    asked: dict[str, int] = field(default_factory=dict)  # site -> how many classes refused it
    before: dict[str, bool] = field(default_factory=dict)  # the answers for earlier stamps


class Preference(Struct, eq=False):
    """The preference expression of a site's owners, compiled, and its latest answers."""

    text: str
    policy: Policy
    looks: dict[str, frozenset[str]]  # by role: the attributes that it reads
    worth: dict[BagId, float] = field(default_factory=dict)
    comings: int = -1
    at: float = 0.0
