"""Answers to questions about policies, bags, tasks and sites, as they travel to people; they are
made by `catalogue`, `policy_check`, `bag_answers` and `site_answers`. Times are seconds since 1970.
Texts are for people; programs look at `kind`.
"""

from msgspec import Struct

from covey.core.record.model import Need, PolicySpec
from covey.core.sites.measures import UNKNOWN, SiteMeasures


class Listed(Struct, kw_only=True):
    """An attribute that a policy can look at, such as `Host.NumCpus`, with an example."""

    role: str
    name: str
    text: str
    example: str = ""  # as an expression would spell it
    of: str = ""  # the host, bag … of the example


class Expressed(Struct, kw_only=True):
    """An expression of a policy, and where it comes from: owner, key (a plain key such as
    `only_sites`), preset, default."""

    name: str
    text: str
    origins: list[str]


class ShownPolicy(Struct, kw_only=True):
    """A policy as it was written, and the expressions that it became."""

    bag: int = 0
    policy: PolicySpec
    preset: str
    description: str  # of the preset
    expressions: list[Expressed]
    sticky_tail: bool


class PolicyFault(Struct, kw_only=True):
    """A mistake in a policy. `line` and `column` count from 1 in `text`; 0: no place is known."""

    kind: str  # syntax, unknown, scope, function, type, never, invalid
    name: str  # of the attribute: JobRequirements
    message: str
    text: str = ""  # the expression
    line: int = 0
    column: int = 0
    near: list[str] = []  # names that may be meant instead


class ConditionAnswer(Struct, kw_only=True):
    """One of the conditions that JobRequirements joins with &&."""

    text: str
    hosts: int  # on how many of the connected hosts it is true


class PolicyReport(Struct, kw_only=True):
    """The result of a check. A policy without faults can be used; notes are worth a look."""

    faults: list[PolicyFault]
    notes: list[str]
    hosts: int = 0  # connected hosts that could run the owner's tasks
    meeting: int = 0  # of these hosts: those on which JobRequirements is true
    parts: list[ConditionAnswer] = []
    apart: list[list[str]] = []  # parts that are each true somewhere, but nowhere together


class Reason(Struct, kw_only=True):
    """Why tasks wait. `until`: when that ends by itself; 0.0: that is not known."""

    kind: str
    text: str
    hosts: list[str] = []  # the first few
    until: float = 0.0


class Near(Struct, kw_only=True):
    """A host that lacks fewer things than the others."""

    host: str
    missing: list[str]  # parts of JobRequirements, or resources
    values: dict[str, str] = {}  # the attributes in these parts, with their values


class Rival(Struct, kw_only=True):
    """Another bag, in the order in which a host takes tasks. `why`: why it comes before the bag
    that was asked about; empty for a bag that comes behind it."""

    bag: int
    name: str
    owner: str
    rank: float
    waiting: int
    why: str = ""


class Replication(Struct, kw_only=True):
    """Whether running tasks get more attempts, and why, or why not."""

    active: bool
    text: str
    wanted: int = 0  # running tasks for which the policy wants another attempt
    refused: int = 0  # running tasks for which it does not
    full: int = 0  # running tasks that have as many attempts as they may
    values: dict[str, str] = {}  # the attributes that decide, for one refused task


class Chance(Struct, kw_only=True):
    """Whether a site could get pilots for a bag, and what is in the way."""

    site: str
    able: bool
    text: str
    waiting: int = 0  # pilots that wait there


class SiteShare(Struct, kw_only=True):
    """What a site got of the pilots that a bag lacked, and why. `made_of`: the factors of its
    weight. Sites of a later tier get pilots when those of the tiers before have no more room."""

    site: str
    pilots: int
    weight: float
    tier: int = 0
    room: int = 0  # pilots that it could have had
    made_of: dict[str, float] = {}
    measured_at: float | None = None
    text: str


class ServiceAnswer(Struct, kw_only=True):
    """A resource priority service, and what it said last."""

    name: str
    url: str = ""  # empty: it is not asked, but sends its weights
    source: str = ""
    given_at: float | None = None  # None: it has said nothing yet
    weights: dict[str, float] = {}
    problem: str = ""  # why its weights are not used; empty: they are
    failure: str = ""  # why the last answer could not be read; the weights before it still count
    fallback: str  # the algorithm that is used then


class BrokerAnswer(Struct, kw_only=True):
    """How the broker split the pilots that a bag lacked, the last time that some could be
    started. `instead_of`: the algorithm that was named, if another one was used."""

    at: float
    algorithm: str
    instead_of: str = ""
    drawn: bool = False  # a site was drawn for each pilot, by weight
    source: str = ""  # of weights that a service gave, …
    given_at: float | None = None  # … and when
    tasks: float  # that had no pilot
    text: str
    sites: list[SiteShare]
    services: list[ServiceAnswer] = []  # in the table of weights


class WeightsAt(Struct, kw_only=True):
    """What sites were worth at a time, by the server's algorithm."""

    at: float
    weights: dict[str, float]


class BagShare(Struct, kw_only=True):
    """A site's share of one bag's pilots."""

    bag: int
    name: str
    at: float
    algorithm: str
    share: SiteShare


class BagAnswer(Struct, kw_only=True):
    """How a bag stands, and why it does not go on faster."""

    summary: str
    total: int
    done: int
    failed: int
    running: int
    sent: int = 0  # tasks that a pilot has, without a free slot yet
    waiting: int
    doubtful: int = 0
    tail: bool = False
    reasons: list[Reason]
    hosts: int = 0  # connected hosts that the owner may use
    able: int = 0  # of these hosts: those that could run the waiting tasks
    near: list[Near] = []
    first: list[Rival] = []  # bags that come first, on `first_on`
    first_on: str = ""
    sites: list[Chance] = []  # if no pilot is here
    replicas: int = 0
    replication: Replication
    order: str = ""  # the order of its tasks, if they are not sent by their numbers
    broker: BrokerAnswer | None = None  # None: no pilots were split over sites for it yet


class RunningAttempt(Struct, kw_only=True):
    """An attempt that a pilot has, and why that pilot has it."""

    attempt: str
    pilot: int
    host: str
    site: str
    sent: float
    ahead: bool  # it probably waits for a slot there
    rank: float
    replica: bool
    suspected: bool  # its pilot is silent
    deadline: float = 0.0
    expired: bool = False
    text: str = ""
    behind: list[Rival] = []
    inputs_version: int = 1


class TaskAnswer(Struct, kw_only=True):
    task: int
    values: dict[str, str] = {}
    state: str  # waiting, sent, running, done, failed, being checked
    summary: str
    need: Need | None = None  # what the task gets; None: that is not known now
    tries: int = 0
    losses: int = 0
    running: list[RunningAttempt] = []
    replication: Replication | None = None


class Limit(Struct, kw_only=True):
    """A limit of a site, and how much of it is used. `key`: its name in covey.toml. `most` 0: no
    limit."""

    key: str
    used: int
    most: int
    left: int  # pilots for which there is room


class Wanting(Struct, kw_only=True):
    """A class of tasks that waits, as one site sees it. `kind`: able, or why it is not."""

    bag: int
    name: str
    owner: str
    tasks: int
    missing: int  # tasks that no pilot and no waiting job anywhere will take
    kind: str
    text: str


class SiteAnswer(Struct, kw_only=True):
    """How a site stands, and why it gets no pilots, or no more."""

    summary: str
    reasons: list[Reason]
    limits: list[Limit]
    wanting: list[Wanting]
    waiting: int  # site jobs that wait there
    running: int  # … that run
    suspended: int = 0  # of these: suspended by the site
    pilots: int
    slots: int
    busy: int  # of these
    room: int  # how many pilots could be started there now
    measures: SiteMeasures = UNKNOWN
    shares: list[BagShare] = []  # how the broker decided last, for each bag
