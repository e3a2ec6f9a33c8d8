"""What policies say, and what of a pilot they look at."""

from collections.abc import Callable
from typing import TypeAlias

from msgspec import Struct, field

from covey.classad import Ad, Policy
from covey.core.match.policies import Places
from covey.core.record.model import BagId, PilotRecord

Value: TypeAlias = bool | int | float | str


class Match(Struct, frozen=True, gc=False):
    """What a policy says of a class of tasks on a pilot."""

    rank: float = 0.0
    concurrency: int | None = None
    deadline: float = 0.0


ANYWHERE = Match()


class ClassMatch(Struct, eq=False):
    """Bags whose policies say the same and look at nothing of their own: what is said of a pilot
    holds for all of them. Few objects, for a thousand different ones are asked in a row."""

    evaluate: Callable[..., tuple[object, ...]]
    places: Places
    sees: frozenset[str]
    outward: bool
    static: int  # units of work (`budget`) of its operations
    cost: int = 0  # units of its last evaluation, where they were counted


# A rank, the place of the bag among its owner's, and what is said of its classes.
Placed: TypeAlias = tuple[float, int, list[Match | None] | None]


class PilotFace(Struct, eq=False):
    """What the bags of one owner see of a pilot: its host's ad and its own, as far as policies look
    at them, and what those said. `stamp` grows when the ads change."""

    host: Ad
    pilot: Ad
    stamp: int = 0
    changed: dict[str, int] = field(default_factory=dict)  # attribute -> the stamp it came with
    latest: list[str] = field(default_factory=list)  # attributes that came with the last one
    record: PilotRecord | None = None  # what it was made from
    policies: int = -1  # … and for which count of changes
    own: dict[str, Value] = field(default_factory=dict)  # what the owner's tasks say of the host
    others: dict[str, Value] = field(default_factory=dict)  # … and what others do
    at: float = 0.0  # when the host's statistics were last looked at
    failures: int = 0  # in a row there, then
    said: dict[ClassMatch, list[Match | None]] = field(default_factory=dict)
    said_at: tuple[int, int] = (-1, -1)  # this stamp and the scene's, when all of that held
    owing: dict[ClassMatch, None] = field(
        default_factory=dict
    )  # … but for these, asked in a later turn
    start: int = 0  # the bag, by its place, with which to go on then
    found: dict[BagId, "MatchAnswer"] = field(default_factory=dict)
    order: list[Placed] = field(default_factory=list)  # the owner's bags, the best first
    order_at: tuple[int, ...] = ()  # the stamps for which that holds


class MatchAnswer(Struct):
    """Of one bag, by class (None: not there), while the stamps are these."""

    face: int
    scene: int
    bag: int
    matches: list[Match | None]
    asked: int = 0  # classes that were asked since the stamps are these
    turn: int = 0  # … and the next one, in turn
    ranks: list[float] = field(default_factory=list)  # of those that may run there, each once

    def whole(self) -> bool:
        """Whether all of them were."""
        return self.asked == len(self.matches)


class Suits(Struct, eq=False):
    """What a policy says of sites, while the stamps are these."""

    stamps: tuple[int, ...]
    sites: dict[str, bool] = field(default_factory=dict)
    asked: dict[str, int] = field(default_factory=dict)  # sites -> classes that want none there
    before: dict[str, bool] = field(default_factory=dict)  # what it said of sites earlier


class Preference(Struct, eq=False):
    """What a site's owners prefer, ready to be asked, and what it said when it last was."""

    text: str
    policy: Policy
    looks: dict[str, frozenset[str]]  # at what, by role
    worth: dict[BagId, float] = field(default_factory=dict)
    comings: int = -1
    at: float = 0.0
