"""What is remembered of hosts: rates that decay, priors, days, speed."""

from typing import Any

import pytest

from covey.core.protocol import host_history
from covey.core.record.histories import History
from covey.core.state import State
from covey.pilot.protocol.messages import Answer, End
from tests.unit.core.table import Hand, Table, end, replies, spec


def runs(table: Table, hand: Hand, outcome: str = "ok", **more: Any) -> None:
    answers = [*replies(hand.sync(1), Answer), *replies(hand.sync(0), Answer)]
    ends: list[End] = [
        end(answer, 0, outcome)._replace(**more) for answer in answers if answer.tasks
    ]
    assert len(ends) == 1
    hand.sync(0, ends)


def known(table: Table, host: str) -> History:
    return table.scheduler.state.hosts[host].history


def rate(table: Table, host: str) -> float:
    return host_history.error_rate(table.scheduler.state, known(table, host), table.now)


def test_a_new_host_is_taken_to_be_like_its_site() -> None:
    table = Table(lease_seconds=1e9)
    table.submit(spec(99, retries=99, breaker=0))
    bad = table.enrol(host="bad", site="s")
    for _ in range(20):
        runs(table, bad, "failed")
        table.later(120)
    table.enrol(host="new", site="s")
    table.enrol(host="other", site="t")
    assert rate(table, "new") > 0.5
    assert rate(table, "bad") > rate(table, "new")
    assert rate(table, "other") < rate(table, "new")


def test_rates_fade_and_days_end() -> None:
    table = Table(lease_seconds=1e9)
    table.submit(spec(99, retries=99, breaker=0))
    hand = table.enrol(host="h")
    for _ in range(3):
        runs(table, hand, "failed")
    runs(table, hand)
    state = table.scheduler.state
    assert (known(table, "h").failed_today, known(table, "h").done_today) == (3, 1)
    table.now += 10 * host_history.HALF_LIFE
    site = host_history.site_error_rate(state, known(table, "h").site)
    assert rate(table, "h") == pytest.approx(site, abs=0.01)
    runs(table, hand)
    assert (known(table, "h").failed_today, known(table, "h").done_today) == (0, 1)


def test_nothing_is_ever_undefined() -> None:
    state = State(1, Table().scheduler.state.settings, 0.0)
    assert host_history.error_rate(state, History(), 1000.0) == host_history.PRIOR_ERRORS
    assert host_history.loss_rate(state, History()) == host_history.PRIOR_LOSSES
    assert host_history.turnaround(state, History()) == 0.0
    assert host_history.recent_cpu(History(), 1000.0) == 0.0


def test_a_fast_host_is_known_for_it() -> None:
    table = Table(lease_seconds=1e9)
    table.submit(spec(99))
    slow, fast = table.enrol(host="slow"), table.enrol(host="fast")
    for _ in range(20):
        runs(table, slow, wall_seconds=10.0)
        runs(table, fast, wall_seconds=1.0)
    assert known(table, "fast").speed > 2.0
    assert known(table, "slow").speed < 0.8


def test_useful_time_failures_in_a_row_and_turnaround() -> None:
    table = Table(lease_seconds=1e9)
    table.submit(spec(99, retries=9, breaker=0))
    hand = table.enrol(host="h")
    runs(table, hand, "failed", cpu_seconds=100.0)
    runs(table, hand, "failed")
    assert known(table, "h").row == 2
    runs(table, hand, cpu_seconds=7.0)
    found = known(table, "h")
    assert (found.row, found.cpu_seconds) == (0, 7.0)
    assert found.turnaround >= 0.0
