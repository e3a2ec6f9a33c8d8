"""What breaks, and when: drawn from the seed, up to the time when the world becomes calm."""

from functools import partial
from random import Random
from typing import TYPE_CHECKING

from msgspec import Struct

from covey.core.record.actions import (
    Change,
    EndJob,
    RecordEnds,
    ReopenFailed,
    SaveBag,
    SaveBagStatus,
    SaveJob,
    SavePilot,
    SavePilotStatus,
)
from covey.core.record.events import DrainRequested
from covey.lab.clock import START
from covey.pilot.protocol.messages import FAILED, OK, TIMEOUT
from tests.simulator.machines.network import Weather
from tests.simulator.plan.workload import Script

if TYPE_CHECKING:
    from tests.simulator.world import World

INSTANT = 0.05
MOST_EXTRA = 90.0  # the most seconds that a task takes longer
KINDS = {
    "crash": 5,
    "crash within actions": 5,
    "crash after commit": 4,
    "crash at rare write": 5,
    "failed commit": 3,
    "slow disk": 2,
    "stalled server": 1,
    "polite restart": 1,
    "dead pilot": 5,
    "partition": 5,
    "drained pilot": 2,
    "dead slot": 2,
    "storm": 3,
    "refusing site": 1,
    "requeued job": 3,
    "site outage": 2,
    "unsure site": 2,
    "lying list": 2,
}
MISFORTUNES = {"black hole": 3, "slow host": 2, "straggler": 3}  # of hosts; they end by themselves


class Fault(Struct, frozen=True):
    at: float
    kind: str


def draw(seed: int, calm_at: float) -> list[Fault]:
    """Each world has its own favourite faults: so combinations occur that are rare on average."""
    random = Random(f"{seed}/faults")
    count = random.randint(4, 14)
    weights = [weight * random.choice((0.0, 0.3, 1.0, 1.0, 5.0)) for weight in KINDS.values()]
    kinds = random.choices(list(KINDS), [weight + 0.01 for weight in weights], k=count)
    times = sorted(random.uniform(1.0, calm_at - 2.0) for _ in range(count))
    return [Fault(START + at, kind) for at, kind in zip(times, kinds, strict=True)]


def draw_misfortunes(seed: int, calm_at: float) -> list[Fault]:
    random = Random(f"{seed}/misfortunes")
    kinds = random.choices(list(MISFORTUNES), list(MISFORTUNES.values()), k=random.randint(0, 5))
    return [Fault(START + random.uniform(1.0, calm_at - 2.0), kind) for kind in kinds]


def weather(random: Random) -> Weather:
    """The network faults that a world has all the time."""
    return Weather(
        loss=random.choice((0.0, 0.002, 0.01)),
        double=random.choice((0.0, 0.005, 0.02)),
        slow=random.choice((0.0, 0.01, 0.05)),
        reset=random.choice((0.0, 0.005)),
    )


RARE_WRITES: tuple[tuple[type[Change], ...], ...] = (
    (ReopenFailed,),
    (SaveBagStatus, SavePilotStatus),
    (SaveBag, SaveBagStatus, ReopenFailed),
    (SavePilot, SavePilotStatus, SaveJob, EndJob),
)
STORM = Weather(loss=0.15, double=0.1, slow=0.3, reset=0.1)


def strike(world: "World", kind: str, random: Random) -> bool:
    """Cause the fault. False if there was nothing to break, or if it will happen at the next
    opportunity (and is counted then)."""
    server, disk, clock = world.server, world.disk, world.clock
    match kind:
        case "crash":
            alive = server.alive
            server.kill()
            return alive
        case "crash within actions" | "crash after commit" | "crash at rare write":
            _lay_trap(world, kind, random)
            return False
        case "failed commit":
            disk.failing_commits = 1
            disk.failing_opens = random.choice((0, 0, 1, 4))
            return False
        case "slow disk":
            disk.slow_until = clock.time + random.uniform(2.0, 15.0)
        case "stalled server":
            until = clock.time + random.uniform(2.0, 50.0)
            server.stalled_until = max(server.stalled_until, until)  # waiting events keep order
        case "polite restart":
            server.post(DrainRequested())
            clock.after(random.uniform(0.5, 8.0), server.kill)
        case "storm":
            world.storm(STORM, random.uniform(3.0, 25.0))
        case "refusing site" | "site outage" | "unsure site":
            return _break_site(world, kind, random)
        case "lying list":
            return world.sites.lie(random)
        case _:
            return _break_pilots(world, kind, random)
    return True


def _break_site(world: "World", kind: str, random: Random) -> bool:
    there = list(world.sites.all.values())
    if not there:
        return False
    site, until = random.choice(there), world.clock.time + random.uniform(5.0, 40.0)
    match kind:
        case "refusing site":
            site.refusing_until = until
        case "site outage":
            site.away_until = until
        case _:
            site.unsure_until = until
    return True


def _lay_trap(world: "World", kind: str, random: Random) -> None:
    """For the present server process."""
    server = world.server
    match kind:
        case "crash within actions":
            server.fuse = random.randint(1, 60)
        case "crash after commit":
            world.disk.after_apply = partial(server.kill, kind)
            world.disk.strikes_at = random.choice((_anything, _a_failure))
        case _:
            server.trap = random.choice(RARE_WRITES)
            server.trap_seconds = random.choice((0.0, 0.01, 0.04, 0.2))
            server.trap_slow = random.random() < 0.5


def _anything(_: Change) -> bool:
    return True


def _a_failure(change: Change) -> bool:
    return isinstance(change, RecordEnds) and any(
        record.end.outcome == FAILED for record in change.ends
    )


def _break_pilots(world: "World", kind: str, random: Random) -> bool:
    alive = [pilot for pilot in world.pilots if pilot.alive]
    if not alive:
        return False
    victim = random.choice(alive)
    if kind in MISFORTUNES:
        until = min(world.clock.time + random.uniform(5.0, 80.0), world.calm_at)
        world.misfortunes.befall(victim.place.host, kind, until, random)
        return True
    match kind:
        case "requeued job":
            of_jobs = [pilot for pilot in alive if pilot.job]
            if not of_jobs:
                return False
            world.requeue(random.choice(of_jobs))
        case "dead pilot":
            world.site_notices = random.random() < 0.6
            victim.kill()
            world.site_notices = True
        case "drained pilot":
            victim.drain()
        case "dead slot":
            victim.lose_slot()
        case "partition":
            count = random.choice((1, 1, 2, len(alive)))
            lease = world.plan.settings.lease_seconds
            until = world.clock.time + random.choice((0.3, 0.9, 1.5, 2.5)) * lease
            for pilot in random.sample(alive, min(count, len(alive))):
                world.network.cut(pilot.name, until)
        case _:
            raise AssertionError(kind)
    return True


# -- hosts with problems that pass ----------------------------------------------------------------


class _Trouble(Struct):
    kind: str
    until: float
    factor: float = 1.0


class Misfortunes:
    """Black holes, where everything fails at once, slow hosts, and stragglers, where one task takes
    very long for no reason."""

    def __init__(self) -> None:
        self._by_host: dict[str, _Trouble] = {}

    def befall(self, host: str, kind: str, until: float, random: Random) -> None:
        factor = random.uniform(2.0, 6.0) if kind == "slow host" else random.uniform(10.0, 40.0)
        self._by_host[host] = _Trouble(kind, until, factor)

    def bend(self, host: str, script: Script, limit: float, now: float) -> Script:
        """How a start on this host goes that would follow the script elsewhere."""
        trouble = self._by_host.get(host)
        if trouble is None or now >= trouble.until:
            return script
        if trouble.kind == "black hole":
            return Script(INSTANT, FAILED, 1)
        if trouble.kind == "straggler":  # only one task
            del self._by_host[host]
        seconds = min(script.seconds * trouble.factor, script.seconds + MOST_EXTRA)
        if limit and seconds >= limit and script.outcome == OK:
            return Script(limit, TIMEOUT, -1)
        return Script(min(seconds, limit) if limit else seconds, script.outcome, script.exit_code)
