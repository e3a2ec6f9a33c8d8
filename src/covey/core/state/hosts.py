"""How tasks of one bag fare on pilots and hosts (`blame`)."""

from math import isclose

from msgspec import Struct, field


class Rest(Struct):
    """How tasks of one bag fare on a pilot, since one was last done well there."""

    failures: int = 0
    times: int = 0  # that it has rested
    until: float = 0.0


class Tally(Rest):
    """How they fare on one host."""

    done: int = 0
    since: float = 0.0  # when the first of these failures was
    rate: float = 0.0  # part of them that fail, lately
    weight: int = 0  # ends that this is known from


class HostTallies(Struct, eq=False):
    """How a bag's tasks fare on all hosts. The sums are those of the tallies."""

    tallies: dict[str, Tally] = field(default_factory=dict)  # by host
    well: int = 0  # tasks done well, on all hosts
    ended_weight: float = 0.0  # the sum of the tallies' weights
    failed_weight: float = 0.0  # … times their rates
    best_rate: float = 0.0  # the lowest error rate of hosts that can have the bag's tasks
    best_at: float = -1.0  # when that was found

    def set_rate(self, tally: Tally, rate: float, weight: int) -> None:
        """Bring one tally and the sums up to date."""
        self.ended_weight += weight - tally.weight
        self.failed_weight -= tally.weight * tally.rate
        self.failed_weight += weight * rate
        tally.rate, tally.weight = rate, weight

    def check(self) -> None:
        tallies = self.tallies.values()
        assert self.well == sum(tally.done for tally in tallies)
        assert self.ended_weight == sum(tally.weight for tally in tallies)
        failed = sum(tally.weight * tally.rate for tally in tallies)
        assert isclose(self.failed_weight, failed, rel_tol=1e-6, abs_tol=1e-6)
