"""Pilots on which a bag's tasks fail rest from it, hosts are banned, if there are others."""

from msgspec.structs import replace

from covey.core.match.blame import FIRST_REST, SUSPICIOUS
from covey.core.record.actions import Action, SaveHistory, SaveHost, Write
from covey.core.record.histories import Ban
from covey.core.record.model import BagId, BagStatus, PolicySpec
from covey.pilot.protocol.messages import Answer, End
from tests.unit.core.table import EMPTY, Hand, Table, end, replies, spec, writes


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
    return Worker(table.enrol(slots, f"{name}-pilot", host=name))


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


def test_pilots_of_one_host_rest_together() -> None:
    """Nine of them on a host that fails everything would otherwise spoil three tasks each."""
    table = Table()
    table.submit(spec(99, retries=9, breaker=0))
    bad = [Worker(table.enrol(1, f"bad-pilot-{number}", host="bad")) for number in range(9)]
    good = Worker(table.enrol(1, "good-pilot", host="good"))
    assert good.gets() == 1
    for worker in bad[:SUSPICIOUS]:
        spoil(worker, 1)
    assert [worker.gets() for worker in bad] == [0] * 9
    table.later(FIRST_REST)
    assert sum(worker.gets() for worker in bad) == 1, "one is tried"
    next(worker for worker in bad if worker.held).ends()
    assert sum(worker.gets() for worker in bad) == 9, "and they are as good as new"


def test_one_pilot_that_fails_rests_though_others_there_do_well() -> None:
    table = Table()
    table.submit(spec(99, retries=9))
    bad = Worker(table.enrol(1, "bad-pilot", host="host"))
    good = Worker(table.enrol(1, "good-pilot", host="host"))
    for _ in range(SUSPICIOUS):
        spoil(bad, 1)
        assert good.gets() == 1
        good.ends()
    assert bad.gets() == 0
    assert good.gets() == 1
    table.later(FIRST_REST)
    assert bad.gets() == 1, "what others do there does not keep it from being tried"


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


# -- bans ----------------------------------------------------------------------------------


def bans(table: Table, host: str) -> dict[str, Ban]:
    return table.scheduler.state.hosts[host].history.bans


def on(table: Table, host: str, slots: int = 1) -> Worker:
    return Worker(table.enrol(slots, f"{host}-pilot", host))


def a_black_hole(table: Table, retries: int = 99, **more: object) -> tuple[Worker, Worker]:
    """One host that fails everything, one that does everything well."""
    table.submit(spec(400, retries=retries, owner="ann", **more))
    bad, good = on(table, "bad"), on(table, "good")
    for _ in range(4):
        assert good.gets() == 1
        good.ends()
    spoil(bad)
    return bad, good


def test_a_host_that_fails_what_others_do_well_is_banned_for_the_owner() -> None:
    table = Table(lease_seconds=1e9, ban_seconds=1000.0)
    bad, _ = a_black_hole(table)
    assert bans(table, "bad")["ann"].until == table.now + 100.0
    assert not bad.gets()
    table.submit(spec(4, owner="ann"))
    assert not bad.gets()  # of no bag of hers
    bobs = table.submit(spec(4, owner="bob"))
    assert bad.gets() == 1
    assert bad.held[0].bag == bobs


def test_bans_grow_and_end_with_one_task_on_trial() -> None:
    table = Table(lease_seconds=1e9, ban_seconds=1000.0, ban_growth=100.0)
    bad, _ = a_black_hole(table)
    lengths = []
    for _ in range(4):
        began = table.now
        while not bad.gets():
            table.later(1.0)
        lengths.append(round(table.now - began))
        assert bad.gets(4) == 1  # on trial
        bad.ends("failed")
    assert lengths == sorted(lengths)
    assert lengths[0] == 100
    assert 900 < lengths[-1] <= 1000
    while not bad.gets():
        table.later(1.0)
    bad.ends()
    assert bans(table, "bad") == {}
    assert bad.gets(4) >= 1


def test_a_bag_that_is_broken_bans_nobody_and_is_paused() -> None:
    table = Table(lease_seconds=1e9)
    bag = table.submit(spec(4000, retries=99, owner="ann"))
    workers = [on(table, f"h{number}") for number in range(10)]
    failures = 0
    while table.scheduler.state.bags[BagId(bag)].status is BagStatus.RUNNING:
        for worker in workers:
            if worker.gets():
                worker.ends("failed")
                failures += 1
        table.later(1.0)
    assert failures <= 50
    assert not any(bans(table, f"h{number}") for number in range(10))


def test_a_host_is_not_blamed_for_what_fails_as_often_elsewhere() -> None:
    """Two in three tasks of this bag fail, wherever they run."""
    table = Table(lease_seconds=1e9)
    table.submit(spec(4000, retries=0, breaker=0, owner="ann"))
    workers = [on(table, f"h{number}") for number in range(5)]
    for turn in range(60):
        for place, worker in enumerate(workers):
            if worker.gets():
                worker.ends("ok" if (turn + place) % 3 == 0 else "failed")
        table.later(1.0)
    assert not any(bans(table, f"h{number}") for number in range(5))


def test_one_host_that_fails_at_once_does_not_pause_the_bag_while_others_work_on_it() -> None:
    table = Table(lease_seconds=1e9)
    bag = table.submit(spec(400, retries=99, breaker=10))
    bad, busy = on(table, "bad"), on(table, "busy")
    assert busy.gets() == 1
    for _ in range(30):
        if bad.gets():
            bad.ends("failed")
        table.later(5.0)
    assert table.scheduler.state.bags[BagId(bag)].status is BagStatus.RUNNING


def test_bans_and_histories_survive_a_restart() -> None:
    table = Table(lease_seconds=1e9)
    a_black_hole(table)
    table.later(31)
    saved = {
        action.change.host: action.change.history
        for action in table.actions
        if isinstance(action, Write) and isinstance(action.change, SaveHistory)
    }
    assert saved["bad"].row == SUSPICIOUS
    machines = {one.machine: one.host for one in writes(table.actions, SaveHost)}
    snapshot = replace(EMPTY, histories=saved, hosts=machines)
    after = Table(snapshot=snapshot, lease_seconds=1e9)
    after.submit(spec(9, owner="ann"))
    bad, good = on(after, "bad"), on(after, "good")
    assert good.gets() == 1
    assert not bad.gets()


def test_a_task_without_chances_left_goes_to_a_fail_over_site() -> None:
    table = Table(lease_seconds=1e9)
    policy = PolicySpec(failover_sites=("safe",))
    bag = table.submit(spec(1, policy=policy))
    usual = on(table, "usual")
    assert usual.gets() == 1
    usual.ends("failed")
    assert usual.gets() == 0
    safe = Worker(table.enrol(1, "safe-pilot", "safe", site="safe"))
    assert safe.gets() == 1
    safe.ends("failed")
    assert BagId(bag) not in table.scheduler.state.bags  # given up, and over


def test_one_that_has_not_failed_yet_does_not_excuse_all_others() -> None:
    table = Table()
    bag = table.submit(spec(200, retries=9, breaker=30))
    slow = a_worker(table, "slow")
    assert slow.gets() == 1
    others = [on(table, f"host-{number}") for number in range(5)]
    failures = 0
    while table.scheduler.state.bags[BagId(bag)].status is BagStatus.RUNNING:
        for worker in others:
            if worker.gets():
                worker.ends("failed")
                failures += 1
        table.later(1.0)
    assert 30 <= failures <= 50
