"""The facts that policies read besides bags and pilots, and how much work they may still do."""

import math
from collections import deque

from msgspec import Struct, field

from covey.classad import Ad
from covey.core.record.model import BagId
from covey.core.state.bag import Bag
from covey.core.state.match_records import ANYWHERE, ClassMatch, Match

MOST_LATEST = 64  # bags with the latest changes of their ads


class Candidate(Struct, frozen=True, eq=False):
    """Classes of a bag that have the same rank on a pilot. Without matches: all classes, on any
    pilot."""

    bag: Bag
    rank: float = 0.0
    matches: list[Match | None] | None = None
    barren: bool = False  # no class may run there

    def match(self, kind: int) -> Match | None:
        if self.matches is None:
            return ANYWHERE
        if kind >= len(self.matches):  # the class is newer than the matches
            return None
        match = self.matches[kind]
        return match if match is not None and match.rank == self.rank else None


class Scene(Struct, eq=False):
    """Ads of sites, users and the queue, renewed once a second, and what all policies together read
    and decide."""

    looks: dict[str, tuple[str, ...]] = field(default_factory=dict)  # by role: attributes read
    live: tuple[tuple[str, str], ...] = ()  # of these (role, name): never cached
    statistics: tuple[tuple[str, str], ...] = ()  # … cached for a second
    lasting: tuple[tuple[str, str], ...] = ()  # … cached until the pilot reports another value
    policies: int = 0  # the count of policy changes for which all of this holds
    comings: int = -1  # the count of bag changes for which the next five hold
    kinds: dict[str, ClassMatch] = field(default_factory=dict)  # by the text of the policy
    owners: dict[str, list[Bag]] = field(default_factory=dict)  # by owner: bags, oldest first
    asked: dict[str, list[ClassMatch | None]] = field(default_factory=dict)  # … for each bag
    inward: dict[str, list[Bag]] = field(default_factory=dict)  # … bags whose policy reads the bag
    restless: bool = False  # some policy gives another answer each time
    bags: int = 0  # grows with every bag's stamp
    latest_bags: deque[tuple[int, BagId]] = field(
        default_factory=lambda: deque(maxlen=MOST_LATEST)
    )  # the bags whose stamps grew last
    places: dict[BagId, int] = field(default_factory=dict)  # of bags among their owner's bags
    asking: bool = False  # some policy must be asked before tasks go out
    ranking: bool = False  # some policy ranks bags
    limiting: bool = False  # some policy limits how many attempts a pilot holds
    at: float = -1.0
    stamp: int = 0
    sites: dict[str, Ad] = field(default_factory=dict)
    users: dict[str, Ad] = field(default_factory=dict)
    queue: Ad = field(default_factory=Ad)


class BagChanges(Struct, eq=False):
    """Counts that grow when bags come, go or change: caches compare them."""

    counted_at: float  # when the bags that are left were last counted
    policies: int = 0  # grows when a bag's policy comes, goes or changes
    comings: int = 0  # grows when a bag comes or goes
    departures: int = 0  # bags that have gone since the others were last counted (`bag_policy`)


class Budget(Struct, eq=False):
    """How much work an owner's policies may still do, in units (`policy_budget`)."""

    left: float  # of the savings
    at: float  # when the savings were last filled up
    turn: int = -1  # the turn for which `in_turn` holds
    in_turn: float = 0.0  # left for this turn
    overrun: int = -1  # the last turn in which the budget was used up
    ran_out: bool = False  # the savings were used up since the last tick
    short_since: float = math.inf  # since when they were used up at every tick


class PolicyBudgets(Struct, eq=False):
    """Budgets of all owners, and the owners whose policies go on in a later turn."""

    owners: dict[str, Budget] = field(default_factory=dict)
    postponed: dict[str, None] = field(default_factory=dict)  # these owners
    overruns: int = 0  # turns in which an owner's budget was used up
