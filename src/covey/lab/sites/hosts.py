"""Sites that keep a number of pilots, and the hosts of all sites.

A site without a `queue` keeps so many pilots, running or waiting. A pilot that vanishes is replaced
at once by a new one, which waits and then starts on any free host. (`queue_site`: the others.)

If hosts differ, each has its own rate of preemption and of failures (gamma, shape 2). A host with a
high rate of preemption rarely has a pilot. So the site starts in the steady state: the first hosts
are drawn with weight 1/rate, and the rates are scaled so that these hosts lose as many tasks as the
file says.
"""

import math
from functools import partial
from random import Random

from covey.lab.draws import Draw
from covey.lab.pilot import LabPilot, Machine
from covey.lab.server import LabServer
from covey.lab.world_parts import SitePart

SAMPLE = 1000  # draws from which a mean is computed


class LabSite:
    def __init__(self, part: SitePart, server: LabServer, seed: int) -> None:
        self.part = part
        self._server = server
        self._clock = server.clock
        self._random = Random(f"{seed}/{part.name}")
        self._jobs = 0  # pilots that run or wait
        self._target = 0
        self._started = 0
        self._initial = 0  # pilots that run from the start
        self._here: dict[LabPilot, None] = {}
        self._free = machines(part, server.part.latency, seed)

    def open(self) -> None:
        """Start in the steady state: some pilots run, and some wait. Or all wait."""
        steps = self.part.availability
        first = steps[0][1] if steps and steps[0][0] <= 0 else 1.0
        self._target = self._share(first)
        here = self._free[-self.part.pilots :]
        rate = sum(machine.rate for machine in here) / len(here)
        waits = [self.part.wait.draw(self._random) for _ in range(SAMPLE)]
        steady = round(self._target / (1.0 + rate * sum(waits) / SAMPLE))
        self._initial = steady if self.part.steady else 0
        for number in range(self._target):
            self._jobs += 1
            if number < self._initial:
                self._begin()
            else:
                self._clock.after(self.part.wait.draw(self._random), self._begin)
        for time, share in steps:
            self._clock.after(time, partial(self._set_target, self._share(share)))

    def _share(self, part: float) -> int:
        return round(self.part.pilots * part)

    def _set_target(self, target: int) -> None:
        self._target = target
        while self._here and self._jobs > target:
            self._vanish(self._random.choice(list(self._here)))
        while self._jobs < target:
            self._submit()

    def _submit(self) -> None:
        self._jobs += 1
        self._clock.after(self.part.wait.draw(self._random), self._begin)

    def _begin(self) -> None:
        if self._jobs > self._target:
            self._jobs -= 1
            return
        is_initial = self._started < self._initial
        place = -1 if is_initial else int(self._random.random() * len(self._free))
        machine = self._free.pop(place)
        self._started += 1
        key = f"{self.part.name}-{self._started:08}"
        pilot = LabPilot(self._server, self.part, machine, key, self._random)
        self._here[pilot] = None
        if machine.rate > 0:
            self._clock.after(self._random.expovariate(machine.rate), partial(self._vanish, pilot))

    def _vanish(self, pilot: LabPilot) -> None:
        """Preempt the pilot: it and its tasks are gone, without a message to the server."""
        if pilot not in self._here:
            return
        del self._here[pilot]
        self._free.append(pilot.machine)
        self._jobs -= 1
        pilot.vanish()
        if self._jobs < self._target:
            self._submit()


# -- hosts ---------------------------------------------------------------------------------


def machines(part: SitePart, latency: Draw, seed: int) -> list[Machine]:
    """All hosts of a site; those with a pilot at the start come last."""
    random = Random(f"{seed}/{part.name}/hosts")
    count = max(part.hosts, part.most_pilots)
    rates = [_own(random, part.differ) for _ in range(count)]
    flaws = [_own(random, part.differ) for _ in range(count)]
    # Sorting by (random number ** rate) draws with weight 1/rate (Efraimidis, Spirakis).
    order = sorted(range(count), key=lambda k: random.random() ** rates[k])
    here = [rates[k] for k in order[-part.most_pilots :]]
    rate = _scale(here, part.preempted, part.preempted_over)
    flaw = part.failed * count / sum(flaws)
    black = round(part.black_holes * count)
    holes = set(random.sample(range(count), black))
    return [
        Machine(
            name=f"{part.name}-{k:05}",
            speed=part.speed.draw(random),
            rate=rate * rates[k],
            failed=min(1.0, flaw * flaws[k]),
            black_hole=k in holes,
            latency=latency.draw(random),
        )
        for k in order
    ]


def _own(random: Random, differ: bool) -> float:
    return random.gammavariate(2.0, 0.5) if differ else 1.0


def _scale(rates: list[float], lost: float, seconds: float) -> float:
    """The factor for these rates with which pilots lose the share `lost` of tasks that take
    `seconds`."""
    if not lost:
        return 0.0
    low, high = 0.0, 1.0 / seconds
    while _lost(rates, high, seconds) < lost:
        high *= 2.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _lost(rates, middle, seconds) < lost else (low, middle)
    return high


def _lost(rates: list[float], scale: float, seconds: float) -> float:
    return sum(1.0 - math.exp(-scale * rate * seconds) for rate in rates) / len(rates)
