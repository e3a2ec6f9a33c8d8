"""Successes and failures of one bag's tasks on pilots and hosts (`blame`)."""

from math import isclose

from msgspec import Struct, field


class Rest(Struct):
    """Failures of a bag's tasks on a pilot since its last success there: the pilot gets none of the
    bag's tasks for a while."""

    failures: int = 0
    times: int = 0  # how often it has rested
    until: float = 0.0


class Tally(Rest):
    """Successes and failures of a bag's tasks on one host."""

    done: int = 0
    since: float = 0.0  # time of the first of these failures
    rate: float = 0.0  # recent part of the ends that are failures
    weight: int = 0  # number of ends that this rate is computed from


class HostTallies(Struct, eq=False):
    """The tallies of a bag on all hosts, and their sums."""

    tallies: dict[str, Tally] = field(default_factory=dict)  # by host
    well: int = 0  # tasks done well, on all hosts
    ended_weight: float = 0.0  # the sum of the tallies' weights
    failed_weight: float = 0.0  # … times their rates
    best_rate: float = 0.0  # the lowest error rate of hosts that may run the bag's tasks
    best_at: float = -1.0  # when it was computed

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
