"""The sites of a world, drawn from its seed: what the configuration says about them, what they are
really like, and what their administrator does while the world runs.

In *placed* worlds nobody starts pilots by hand: all work must be done by pilots that covey places
itself, on a site that is sound, large enough, open to everybody and on when it is calm.
"""

from random import Random

from msgspec import Struct
from msgspec.structs import replace

from covey.core.record.model import SiteSpec, SiteStatus
from tests.simulator.plan.places import SITES

PREFERENCES = (
    "",
    "",
    'User.Name == "owner-1"',
    'member(Bag.Owner, {"owner-0", "owner-2"}) ? 10 : Bag.Age / 1000',
    "-Bag.JobsLeft",
    "error",
)
KINDS = ("sound", "sound", "sound", "broken", "mute", "slow")


class Nature(Struct, frozen=True, kw_only=True):
    """What a site is really like. Broken: jobs end at once. Mute: their pilots reach nobody. Unfit:
    its own check fails, so pilots enrol and leave."""

    kind: str = "sound"
    capacity: int = 1000  # pilots that run at a time
    wait: tuple[float, float] = (0.2, 5.0)  # seconds in its queue, at least
    look_seconds: float = 3.0  # between two looks at its list of jobs
    seen: float = 0.7  # share of starts that a look shows


SOUND = Nature()


class Deed(Struct, frozen=True):
    """What the administrator asks for: another specification, a status, or (neither) removal."""

    at: float
    site: str
    spec: SiteSpec | None = None
    status: SiteStatus | None = None


class Grounds(Struct, frozen=True, kw_only=True):
    """All sites. Those in `added` are not in the configuration."""

    natures: dict[str, Nature] = {}
    sites: tuple[SiteSpec, ...] = ()
    added: tuple[SiteSpec, ...] = ()
    deeds: tuple[Deed, ...] = ()
    placed: bool = False


def draw(seed: int, calm_at: float, cores: int) -> Grounds:
    random = Random(f"{seed}/sites")
    if random.random() < 0.25:
        return Grounds()
    placed = random.random() < 0.4
    names = [*SITES, *(("west", "hills") if random.random() < 0.5 else ())]
    random.shuffle(names)
    natures = {name: _nature(random) for name in names}
    checking = Random(f"{seed}/checks")
    for name, nature in natures.items():
        if nature.kind == "broken" and checking.random() < 0.5:
            natures[name] = replace(nature, kind="unfit")
    specs = {name: _spec(random, name) for name in names}
    if not placed:  # policies may name these places, so everybody must be allowed there
        open_ = {name: replace(specs[name], users=(), failover=False) for name in SITES}
        specs.update(open_)
    home = names[0]
    natures[home] = replace(natures[home], kind="sound", capacity=max(6, natures[home].capacity))
    natures[home] = replace(natures[home], wait=(0.2, 5.0))
    specs[home] = _roomy(random, specs[home], cores)
    if random.random() < 0.25:  # a queue that can be flooded
        specs[names[1]] = SiteSpec(name=names[1], driver="virtual", running=0, queued=0, ramp=400)
        natures[names[1]] = Nature(capacity=2)
    _say_whose(Random(f"{seed}/whose"), specs)
    added = {name for name in names if random.random() < 0.4}
    deeds = [deed for name in names for deed in _deeds(random, specs[name], name in added, calm_at)]
    for name, spec in specs.items():
        if spec.failover:  # a task that waits for its last chance there must not wait for ever
            natures[name] = replace(natures[name], kind="sound", wait=(0.2, 5.0))
            specs[name] = replace(spec, slots=max(spec.slots, cores), wall_seconds=0.0)
    deeds = [deed for deed in deeds if not specs[deed.site].failover]
    return Grounds(
        natures=natures,
        sites=tuple(specs[name] for name in names if name not in added),
        added=tuple(specs[name] for name in names if name in added),
        deeds=tuple(sorted(deeds, key=lambda deed: deed.at)),
        placed=placed,
    )


def _say_whose(random: Random, specs: dict[str, SiteSpec]) -> None:
    """Draw whether pilots are shared, and whose tasks go first."""
    for name, spec in specs.items():
        shared, preference = random.random() < 0.4, random.choice(PREFERENCES)
        specs[name] = replace(spec, shared=shared, preference=preference)


def _nature(random: Random) -> Nature:
    kind = random.choice(KINDS)
    return Nature(
        kind=kind,
        capacity=random.choice((2, 4, 8, 50)),
        wait=(60.0, 400.0) if kind == "slow" else random.choice(((0.2, 5.0), (1.0, 20.0))),
        look_seconds=random.choice((1.0, 3.0, 10.0)),
        seen=random.choice((0.0, 0.7, 1.0)),
    )


def _spec(random: Random, name: str) -> SiteSpec:
    memory = random.choice((0, 0, 1000))
    return SiteSpec(
        name=name,
        driver="virtual",
        slots=random.randint(1, 4),
        memory_mb=memory,
        all_memory_mb=random.choice((0, 5000)) if memory else 0,
        wall_seconds=random.choice((0.0, 150.0, 400.0, 3600.0)),
        idle_seconds=random.choice((0.0, 15.0)),
        queued=random.choice((1, 3, 8, 0)),
        running=random.choice((2, 4, 10, 0)),
        per_user=random.choice((0, 0, 2)),
        ramp=random.choice((1, 2, 4)),
        users=random.choice(((), (), (), ("owner-1",), ("owner-0", "owner-2"))),
        failover=random.random() < 0.1,
    )


def _roomy(random: Random, spec: SiteSpec, cores: int) -> SiteSpec:
    """A site where every task of everybody can run."""
    return replace(
        spec,
        slots=random.randint(cores, cores + 2),
        wall_seconds=random.choice((0.0, 3600.0)),
        queued=max(2, spec.queued),
        running=random.choice((0, 8)),
        users=(),
        failover=False,
    )


def _deeds(random: Random, spec: SiteSpec, added: bool, calm_at: float) -> list[Deed]:
    deeds = []
    for _ in range(random.choice((0, 0, 1, 2, 3))):
        at = random.uniform(2.0, calm_at)
        kinds = ["status", "status", *(("spec", "remove") if added else ())]
        match random.choice(kinds):
            case "status":
                status = random.choice((SiteStatus.PAUSED, SiteStatus.DRAINING, SiteStatus.ON))
                deeds.append(Deed(at, spec.name, status=status))
            case "spec":
                other = replace(spec, queued=random.choice((1, 5)), ramp=random.choice((1, 3)))
                deeds.append(Deed(at, spec.name, spec=other))
            case _:
                deeds.append(Deed(at, spec.name))
    return deeds
