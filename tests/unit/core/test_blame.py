"""Pilots on which a bag's tasks fail rest from it, if there are others."""

from covey.core.actions import Action
from covey.core.blame import FIRST_REST, SUSPICIOUS
from covey.core.model import BagId, BagStatus
from covey.pilot.messages import Answer, End
from tests.unit.core.table import Hand, Table, end, replies, spec


class Worker:
    """A pilot that is asked for how many tasks it gets, and told how they end."""

    def __init__(self, hand: Hand) -> None:
        self.hand = hand
        self.held: list[End] = []

    def gets(self, want: int = 1) -> int:
        """How many it has now. Asking for none after that has the open question answered."""
        for actions in (self.hand.sync(want), self.hand.sync(0)):
            self._take(actions)
        return len(self.held)

    def ends(self, outcome: str = "ok") -> None:
        held, self.held = self.held, []
        self._take(self.hand.sync(0, [one._replace(outcome=outcome) for one in held]))

    def _take(self, actions: list[Action]) -> None:
        for answer in replies(actions, Answer):
            self.held += [end(answer, index) for index in range(len(answer.tasks))]


def a_worker(table: Table, name: str, slots: int = 1) -> Worker:
    return Worker(table.enrol(slots, f"{name}-pilot"))


def spoil(worker: Worker, times: int = SUSPICIOUS) -> None:
    for _ in range(times):
        assert worker.gets() == 1
        worker.ends("failed")


def test_one_that_fails_everything_rests_then_gets_one_and_is_as_good_as_new() -> None:
    table = Table()
    table.submit(spec(40, retries=9))
    bad, good = a_worker(table, "bad", 4), a_worker(table, "good", 4)
    spoil(bad)
    assert bad.gets(4) == 0
    assert good.gets(4) == 4
    table.later(FIRST_REST)
    assert bad.gets(4) == 1
    assert bad.gets(4) == 1  # no more while that one is out
    bad.ends()
    assert bad.gets(4) == 4


def test_each_rest_is_longer_up_to_a_minute() -> None:
    table = Table(lease_seconds=1e9, ban_seconds=1000.0)
    table.submit(spec(40, retries=99, breaker=0))
    bad, _ = a_worker(table, "bad"), a_worker(table, "good")
    spoil(bad)
    rests: list[float] = []
    for _ in range(7):
        began = table.now
        while not bad.gets():
            table.later(1.0)
        rests.append(table.now - began)
        bad.ends("failed")
    assert rests == [2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 100.0]


def test_without_others_nobody_rests_and_a_broken_bag_is_paused() -> None:
    table = Table()
    bag = table.submit(spec(40, retries=9, breaker=12))
    spoil(a_worker(table, "lonely"), 12)
    assert table.scheduler.state.bags[BagId(bag)].status is BagStatus.PAUSED


def test_when_it_fails_everywhere_nobody_rests() -> None:
    table = Table()
    bag = table.submit(spec(40, retries=9, breaker=12))
    one, other = a_worker(table, "first"), a_worker(table, "other")
    for _ in range(6):
        spoil(one, 1)
        spoil(other, 1)
    assert table.scheduler.state.bags[BagId(bag)].status is BagStatus.PAUSED


def test_another_bag_is_not_concerned() -> None:
    table = Table()
    table.submit(spec(4, retries=9))
    bad, _ = a_worker(table, "bad"), a_worker(table, "good")
    spoil(bad)
    second = table.submit(spec(4))
    assert bad.gets() == 1
    assert bad.held[0].bag == second


def test_what_takes_too_long_is_not_held_against_the_pilot() -> None:
    table = Table()
    table.submit(spec(40, retries=9, overtimes=9))
    slow, _ = a_worker(table, "slow"), a_worker(table, "good")
    for _ in range(SUSPICIOUS + 1):
        assert slow.gets() == 1
        slow.ends("timeout")
    assert slow.gets() == 1
