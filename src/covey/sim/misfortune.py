"""Hosts with problems that pass: black holes, where everything fails at once, slow hosts, and
stragglers, where one task takes very long for no reason.
"""

from random import Random

from msgspec import Struct

from covey.pilot.protocol.messages import FAILED, OK, TIMEOUT
from covey.sim.workload import Script

INSTANT = 0.05
MOST_EXTRA = 90.0  # the most seconds that a task takes longer


class _Trouble(Struct):
    kind: str
    until: float
    factor: float = 1.0


class Misfortunes:
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
