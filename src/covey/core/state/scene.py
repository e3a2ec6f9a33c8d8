"""What policies see besides their bags and pilots, and how much they may still work."""

import math
from collections import deque

from msgspec import Struct, field

from covey.classad import Ad
from covey.core.record.model import BagId
from covey.core.state.bag import Bag
from covey.core.state.match_records import ANYWHERE, ClassMatch, Match

MOST_LATEST = 64  # bags whose ads have changed lately


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
    latest_bags: deque[tuple[int, BagId]] = field(
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


class BagChanges(Struct, eq=False):
    """Counts by which others see that bags have come, gone or changed."""

    counted_at: float  # when the bags that are left were last counted
    policies: int = 0  # grows whenever some bag's policy comes, goes or changes
    comings: int = 0  # … whenever some bag does
    departures: int = 0  # bags that have gone since those left were last counted (`bag_policy`)


class Budget(Struct, eq=False):
    """How much an owner's policies may still work, in units (`policy_budget`)."""

    left: float  # of what was saved up
    at: float  # when that was last filled up
    turn: int = -1  # for which this holds:
    in_turn: float = 0.0  # … that is left of the turn's
    overrun: int = -1  # the last turn in which it was used up
    ran_out: bool = False  # nothing was left of what was saved up, since the last tick
    short_since: float = math.inf  # … at every tick since then


class PolicyBudgets(Struct, eq=False):
    """How much the policies of all owners may still work, and who waits for a later turn."""

    owners: dict[str, Budget] = field(default_factory=dict)
    postponed: dict[str, None] = field(default_factory=dict)  # owners that go on in a later turn
    overruns: int = 0  # turns in which an owner's budget was used up
