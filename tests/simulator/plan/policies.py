"""Random policies for the bags of a world: at submission, and while they run.

In the end some host that stays can satisfy every bag: its policy has only conditions that hold on
such a host, or it is lifted when the world becomes calm. Some changes are nonsense.
"""

from collections.abc import Callable
from random import Random

from msgspec.structs import replace

from covey.core.record.model import PolicySpec
from tests.simulator.plan import places
from tests.simulator.plan.places import Place
from tests.simulator.plan.workload import BagPlan, NewPolicy, Plan

REPLICATION = (
    "true",
    "Job.RunningTime > 8",
    "Job.NumberOfReplicas < 3 && Job.Replica1.Host.mhz < 2000",
    "countMatches(Host.mhz < 2000, Job.Replicas) > 0",
)
TAILS = ("", "", "true", "false", "JobsUnsent == 0", "JobsDone > 0.7 * JobsTotal")
CONCURRENCY = (
    "1",
    "2",
    "Pilot.Slots",
    "Pilot.Slots + 2",
    "Host.mhz > 2000 ? 4 : 1",
    "Tail ? Pilot.Slots : undefined",
)
GRIDS = (
    'Site.Name != "north"',
    'Site.Name == "south" || Site.Name == "west"',
    "Site.Waiting < 3 && Site.FreePilots > 0",
    "Site.nothing > 3",
    "JobsUnsent > 20 || Site.PilotSlots > 2",
    "false",
)
DEADLINES = ("20s", "0.5m", "12", "Host.mhz > 2000 ? 10 : 40")
RANKS = ("Host.mhz", "-JobsLeft", "JobsLeft / (1 + Host.mhz)", "-Host.ErrorRate", "Job.Cores")
PASSING = (
    "false",
    'Host.Name == "nowhere"',
    "Host.ErrorRate < 0.15",
    "Host.ConsecutiveFailures < 2",
    "Host.nothing > 3",
    "Site.ErrorRate < 0.2 && Host.RunningJobs < 3",
    "!Tail || Host.ErrorRate <= BestErrorRate",
)
OF_TASKS = ("Job.i > 5", 'Job.i % 3 == 1 && Host.arch == "arm"', "Job.i * 50 < Host.mhz")
NONSENSE = (
    PolicySpec(rank="1 +"),
    PolicySpec(preset="fats"),
    PolicySpec(requirements='Host.Name == "'),
    PolicySpec(max_replicas="}"),
)
TWICE = PolicySpec(replication="true")  # nonsense if nothing may run twice
OF_CALLS = PolicySpec(requirements="Job.call > 3")  # nonsense if tasks are calls


def governed(plan: Plan) -> Plan:
    """The same plan, in most worlds with policies."""
    random = Random(f"{plan.seed}/policies")
    buffer, lookahead = random.choice(((30.0, 64), (5.0, 8), (2.0, 4)))
    settings = replace(
        plan.settings,
        ban_seconds=random.choice((20.0, 60.0, 3600.0)),
        ban_growth=random.choice((20.0, 650.0)),
        batch=random.random() < 0.3,
        buffer_seconds=buffer,
        most_lookahead=lookahead,
    )
    if plan.grounds.placed:  # its sites must be able to satisfy every bag
        return replace(plan, settings=settings)
    if random.random() < 0.3:
        return plan
    hosts = places.draw(random)
    bags = tuple(_govern(plan.seed, bag, hosts, plan.calm_at) for bag in plan.bags)
    return replace(plan, settings=settings, places=hosts, bags=bags)


def _govern(seed: int, bag: BagPlan, hosts: tuple[Place, ...], calm_at: float) -> BagPlan:
    random = Random(f"{seed}/{bag.number}/policy")
    if random.random() < 0.12:
        spec = replace(bag.spec, breaker=random.choice((10, 30)))
        bag = replace(bag, doomed=True, spec=spec, owner_retries=0)
    if random.random() < 0.25:
        return bag
    first, lasting = _policy(random, bag, hosts)
    changes, last = [], first
    for _ in range(random.choice((0, 0, 1, 1, 2))):
        at = random.uniform(bag.at + 1.0, max(calm_at, bag.at + 2.0))
        if random.random() < 0.3:
            changes.append(NewPolicy(at, _nonsense(random, bag), valid=False))
        else:
            last, lasting = _policy(random, bag, hosts)
            changes.append(NewPolicy(at, last))
    changes.sort(key=lambda change: change.at)
    valid = [change.policy for change in changes if change.valid]
    last = valid[-1] if valid else first
    if not lasting or len(valid) > 1:
        last = replace(last, requirements="", only_sites=(), avoid_hosts=(), preset="throughput")
    spec = replace(bag.spec, policy=first)
    return replace(bag, spec=spec, changes=tuple(changes), last_policy=last)


def _nonsense(random: Random, bag: BagPlan) -> PolicySpec:
    options = list(NONSENSE)
    options += [] if bag.spec.idempotent else [TWICE]
    options += [OF_CALLS] if bag.spec.calls else []
    return random.choice(options)


def _policy(random: Random, bag: BagPlan, hosts: tuple[Place, ...]) -> tuple[PolicySpec, bool]:
    """A policy, and whether the bag can finish under it."""
    home = random.choice([place for place in hosts if place.stays])
    lasting = random.random() < 0.65
    parts = [_holds_at(random, home, hosts, bag) for _ in range(random.choice((0, 1, 1, 2)))]
    if not lasting:
        more = () if bag.spec.calls else OF_TASKS
        parts.append(random.choice((*PASSING, *more)))
    random.shuffle(parts)
    twice = bag.spec.idempotent

    def maybe(share: float, options: tuple[str, ...]) -> str:
        return random.choice(options) if random.random() < share else ""

    presets = ("fast-tail", "reliable-tail", "frugal", "throughput")
    others = tuple(place.host for place in hosts if place.host != home.host)
    return PolicySpec(
        preset=maybe(0.5, presets if twice else presets[2:]),
        requirements=" && ".join(f"({part})" for part in parts),
        rank=maybe(0.4, RANKS),
        concurrency=maybe(0.35, CONCURRENCY),
        deadline=maybe(0.25, DEADLINES),
        replication=maybe(0.4, REPLICATION) if twice else "",
        tail=maybe(0.5, TAILS),
        sticky_tail=random.choice((None, None, True, False)),
        max_replicas=maybe(0.4, ("1", "2", "3", "Tail ? 3 : 1")),
        grid=maybe(0.3, GRIDS),
        only_sites=random.choice(((), (), (home.site,), (home.site, "west"))),
        avoid_hosts=random.choice(((), (), others[:1])),
        failover_sites=random.choice(((), (), ("south",), ("east", "west"))),
    ), lasting


def _holds_at(random: Random, home: Place, hosts: tuple[Place, ...], bag: BagPlan) -> str:
    """A condition that every task of the bag meets on this host."""
    other = random.choice(hosts)
    forms: list[Callable[[], str]] = [
        lambda: f'Host.Name == "{home.host}"',
        lambda: f'member(Host.Name, {{"{home.host}", "{other.host}"}})',
        lambda: f'Site.Name == "{home.site}"',
        lambda: f'Host.Arch == "{home.tags["arch"]}"',
        lambda: f"Host.mhz >= {home.tags['mhz']}",
        lambda: f"Host.mhz < {home.tags['mhz']} + 500 && Pilot.Slots > 1",
        lambda: "Host.scratch =?= undefined || Host.nothing =?= undefined",
        lambda: f'!Tail || Site.Name == "{home.site}"',
        lambda: f'Host.ErrorRate < 0.1 || Host.Name == "{home.host}"',
    ]
    if not bag.spec.calls:
        forms += [
            lambda: f'Job.i % 4 != 1 || Host.Name == "{home.host}"',
            lambda: f"Job.i < {bag.tasks // 2} || Host.mhz >= {home.tags['mhz']}",
        ]
    return random.choice(forms)()
