"""What an algorithm looks at, what it says of a site, and what came of it."""

from typing import NamedTuple, TypeAlias

from msgspec import Struct

from covey.core.sites.measures import SiteMeasures


class Worth(NamedTuple):
    """A site's part is in proportion to its weight; 0: it gets nothing. A site of a later tier
    gets pilots only if those of the tiers before it have no room. `most`: pilots, at most."""

    weight: float
    tier: int = 0
    most: int | None = None
    reason: str = ""  # for people: why it gets nothing, or less than its weight says
    made_of: tuple[tuple[str, float], ...] = ()  # the factors of the weight, by name


Worths: TypeAlias = dict[str, Worth]  # by site


class SiteCandidate(Struct, kw_only=True, eq=False):
    """A site that could have pilots for a bag."""

    site: str
    slots: int  # of a pilot
    room: int  # pilots that may be started there now
    allowance: int  # pilots that may run or wait there
    weight: float = 1.0  # of its table in the configuration
    price: float = 0.0  # of one slot for an hour
    measures: SiteMeasures
    probes: int = 0  # pilots that may still be started there if nothing is known about it
    measured: Worth | None = None  # by its measures, once that was computed


class Work(Struct, frozen=True, kw_only=True):
    """What the pilots are for."""

    bag: int = 0
    owner: str = ""
    tasks: float = 0.0  # that have no pilot
    places: float = 0.0  # tasks that are to run at once: a short task needs no place of its own
    seconds: float = 0.0  # that a task takes; 0: not known
    taken: int = 1  # slots that a task takes
    seconds_left: float | None = None  # until the bag should be done; None: no such time


class SiteChoice(Struct, frozen=True, kw_only=True, eq=False):
    """How pilots are to be split over sites, and by which broker. `instead_of`: the broker that was
    named, if it could not be used, and `problem` why."""

    algorithm: str
    worths: Worths
    candidates: dict[str, SiteCandidate]
    drawn: bool = False  # a site is drawn for each pilot, by weight
    instead_of: str = ""
    problem: str = ""
    source: str = ""  # of weights that a service gave, …
    given_at: float | None = None  # … and when


class BrokerDecision(Struct, frozen=True, kw_only=True, eq=False):
    """How the pilots that a bag lacked were split, the last time that some could be started."""

    at: float
    tasks: float  # that had no pilot
    choice: SiteChoice
    pilots: dict[str, int]  # by site
