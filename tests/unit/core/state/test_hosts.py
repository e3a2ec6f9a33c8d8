"""The sums over all hosts are those of the tallies."""

import pytest

from covey.core.state.hosts import HostTallies, Tally


def test_sums_follow_the_tallies() -> None:
    hosts = HostTallies(tallies={"left": Tally(), "right": Tally()})
    hosts.set_rate(hosts.tallies["left"], 1.0, 1)
    hosts.set_rate(hosts.tallies["right"], 0.0, 1)
    hosts.set_rate(hosts.tallies["left"], 0.8, 2)
    hosts.check()
    assert hosts.ended_weight == 3
    assert hosts.failed_weight == pytest.approx(1.6)


def test_a_tally_that_was_changed_alone_is_noticed() -> None:
    hosts = HostTallies(tallies={"left": Tally()})
    hosts.tallies["left"].weight = 3
    with pytest.raises(AssertionError):
        hosts.check()
