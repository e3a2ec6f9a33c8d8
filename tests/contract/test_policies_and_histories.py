"""What every record must do with policies that change, with what is remembered of hosts, and with
the waste of a bag."""

from typing import Any

import msgspec
import pytest

from covey.core.record.actions import (
    LeaseChunk,
    PurgeBag,
    ReopenFailed,
    SaveBag,
    SaveHistory,
    SaveHost,
    SavePolicy,
)
from covey.core.record.histories import Ban, History
from covey.core.record.model import AttemptId, BagId, PilotId, PolicySpec, Verdict
from covey.wire import WasteView
from tests.contract.keeping import Kept
from tests.unit.store.builders import BAG, a_bag_of, bag, cancelled, end, ends, finished, successes

WASTE = Verdict.WASTE

FULL = PolicySpec(
    preset="careful",
    requirements='Host.OS == "linux" && x > 3',
    rank="-Site.Price",
    concurrency="2",
    deadline="30m",
    replication="Tail",
    tail="Unsent == 0",
    sticky_tail=False,
    max_replicas="3",
    only_sites=("a", "b"),
    avoid_sites=("c",),
    only_hosts=("n*",),
    avoid_hosts=("ä",),
    failover_sites=("cloud",),
)


def policies(kept: Kept) -> dict[int, PolicySpec | None]:
    """Of the bags that a server finds; the same as those of bags that it loads."""
    found = {one.bag.id: one.bag.policy for one in kept.reopen().bags}
    for id_, policy in found.items():
        loaded = kept.record.load(id_)
        assert loaded is not None
        assert loaded.bag.policy == policy
    return {int(id_): policy for id_, policy in found.items()}


# -- policies ------------------------------------------------------------------------------


def test_a_policy_that_was_never_changed_is_that_of_the_spec(kept: Kept) -> None:
    kept.record.apply([SaveBag(bag(1, 2, policy=FULL)), SaveBag(bag(2, 2))])
    assert policies(kept) == {1: None, 2: None}
    assert [one.bag.spec.policy for one in kept.reopen().bags] == [FULL, PolicySpec()]


def test_the_last_policy_holds(kept: Kept) -> None:
    kept.record.apply([SaveBag(bag(1, 2, policy=PolicySpec(rank="1"))), SaveBag(bag(2, 2))])
    kept.record.apply([SavePolicy(BAG, PolicySpec(rank="2")), SavePolicy(BAG, FULL)])
    assert policies(kept) == {1: FULL, 2: None}
    kept.record.apply([SavePolicy(BAG, PolicySpec())])
    assert policies(kept) == {1: PolicySpec(), 2: None}, "now it says nothing"
    assert kept.reopen().bags[0].bag.spec.policy == PolicySpec(rank="1"), "what was asked for stays"


def test_a_bag_may_be_saved_with_a_changed_policy(kept: Kept) -> None:
    kept.record.apply([SaveBag(msgspec.structs.replace(bag(1, 2), policy=FULL))])
    assert policies(kept) == {1: FULL}


def test_a_bag_that_is_over_keeps_its_policy(kept: Kept) -> None:
    kept.record.apply([*a_bag_of(2), SavePolicy(BAG, FULL)])
    kept.record.apply([successes([0]), ends(end(1, "failed")), finished(1, 1)])
    assert kept.reopen().bags == ()
    loaded = kept.record.load(BAG)
    assert loaded is not None
    assert loaded.bag.policy == FULL
    kept.record.apply([ReopenFailed(BAG, 9.0)])
    assert policies(kept) == {1: FULL}


def test_a_reader_knows_what_decides(kept: Kept) -> None:
    kept.record.apply([SaveBag(bag(1, 2, policy=PolicySpec(rank="1"))), SaveBag(bag(2, 2))])
    assert [kept.reader.policy(id_) for id_ in (1, 2, 3)] == [
        PolicySpec(rank="1"),
        PolicySpec(),
        None,
    ]
    kept.record.apply([SavePolicy(BAG, FULL)])
    assert kept.reader.policy(1) == FULL
    kept.record.apply([SavePolicy(BAG, PolicySpec())])
    assert kept.reader.policy(1) == PolicySpec()


# -- histories -----------------------------------------------------------------------------

LONG = History(
    site="s",
    at=1000.5,
    done=3.25,
    failed=0.1,
    lost=1e-9,
    cpu_seconds=12345.678,
    turnaround=2.5,
    day=20_000,
    done_today=7,
    failed_today=1,
    row=2,
    last_done=990.5,
    last_failed=999.5,
    bans={
        "ann": Ban(since=900.5, until=1260.5, times=1),
        "bob ä": Ban(since=0.5),
        "": Ban(since=1.5, until=2.5, times=30),
    },
)


def test_a_history_with_bans_for_several_owners_survives(kept: Kept) -> None:
    kept.record.apply([SaveHost("n1", "s", 4, 5.0, {"a": "b"}, "m"), SaveHistory("n1", LONG)])
    for _ in range(2):
        opened = kept.reopen()
        assert (opened.histories, opened.hosts) == ({"n1": LONG}, {"m": "n1"})


def test_a_history_is_overwritten(kept: Kept) -> None:
    kept.record.apply([SaveHost(name, "s", 4, 5.0, {}) for name in ("n1", "n2", "n3")])
    kept.record.apply([SaveHistory("n1", LONG), SaveHistory("n2", History(done=1.0))])
    kept.record.apply([SaveHistory("n1", History(row=1)), SaveHistory("n1", History(row=2))])
    assert kept.reopen().histories == {"n1": History(row=2), "n2": History(done=1.0)}
    kept.record.apply([SaveHistory("n2", History())])
    assert kept.reopen().histories == {"n1": History(row=2)}, "an empty one is none"


def test_a_history_is_kept_as_it_was_saved(kept: Kept) -> None:
    given = msgspec.json.decode(msgspec.json.encode(LONG), type=History)
    kept.record.apply([SaveHost("n1", "s", 4, 5.0, {}), SaveHistory("n1", given)])
    given.done += 1
    given.bans["eve"] = Ban(since=7.5)
    found = kept.reopen().histories["n1"]
    assert found == LONG
    found.bans.clear()
    assert kept.reopen().histories == {"n1": LONG}


def test_what_else_is_known_of_the_host_leaves_its_history_alone(kept: Kept) -> None:
    kept.record.apply([*a_bag_of(3), SaveHost("n1", "s", 4, 5.0, {})])
    kept.record.apply([SaveHistory("n1", LONG), ends(end(0, host="n1", delivered=6.0))])
    kept.record.apply([SaveHost("n1", "t", 8, 7.0, {"a": "b"}), SaveHistory("n1", LONG)])
    kept.record.apply([ends(end(1, host="n1", delivered=8.0))])
    assert kept.reopen().histories == {"n1": LONG}
    (host,) = kept.reader.hosts()
    assert (host.site, host.slots, host.done, host.first, host.heard) == ("t", 8, 2, 5.0, 8.0)


def test_a_history_of_a_host_that_was_not_saved_before(kept: Kept) -> None:
    kept.record.apply([*a_bag_of(3), SaveHistory("n1", LONG)])
    first = end(0, host="n2", delivered=6.0)
    kept.record.apply([ends(first), SaveHistory("n2", LONG), ends(end(1, host="n2"))])
    kept.record.apply([ends(end(2, host="n1", delivered=2000.5))])
    assert kept.reopen().histories == {"n1": LONG, "n2": LONG}
    one, two = kept.reader.hosts()
    assert (one.host, one.first, one.heard, one.done) == ("n1", 1000.5, 2000.5, 1)
    assert (two.host, two.first, two.heard, two.done) == ("n2", 6.0, 1001.8, 2)
    assert (one.site, one.slots, one.tags) == ("", 0, {})


# -- waste ---------------------------------------------------------------------------------


def lasted(seconds: float) -> dict[str, Any]:
    """Sent, ran so long, and delivered so much later."""
    return {
        "sent": 100.0,
        "started": 200.0,
        "ended": 200.0 + seconds,
        "delivered": 300.0 + seconds,
    }


def test_no_waste(kept: Kept) -> None:
    assert kept.reader.waste(BAG) == WasteView(), "of no bag at all"
    kept.record.apply([*a_bag_of(3), successes([0, 1])])
    assert kept.reader.waste(BAG) == WasteView()
    kept.record.apply([ends(end(2, "failed", WASTE, attempt=(1, 50)), end(2, "failed"))])
    assert kept.reader.waste(BAG) == WasteView(), "failures are told elsewhere"


def test_waste(kept: Kept) -> None:
    kept.record.apply([*a_bag_of(6), *a_bag_of(2, id_=2)[1:]])
    kept.record.apply([successes([0, 1, 2]), successes([0], bag=2)])
    story = [(0, "cancelled", 1.5), (0, "cancelled", 2.0), (1, "ok", 4.25), (1, "lost", 8.0)]
    story += [(2, "cancelled", 0.25), (2, "host", 16.0), (3, "lost", 32.0), (4, "failed", 64.0)]
    story += [(3, "timeout", 128.0)]
    made = [
        end(task, outcome, WASTE, attempt=(1, 20 + place), **lasted(seconds))
        for place, (task, outcome, seconds) in enumerate(story)
    ]
    kept.record.apply([ends(*made), ends(end(0, "ok", WASTE, attempt=(1, 90), bag=2, **lasted(3)))])
    expected = WasteView(
        cancelled=3,
        cancelled_seconds=3.75,
        discarded=1,
        discarded_seconds=4.25,
        lost=3,
        lost_seconds=656.0,
    )
    assert kept.reader.waste(BAG) == expected
    assert kept.reader.waste(2) == WasteView(discarded=1, discarded_seconds=3.0)
    kept.reopen()
    kept.record.apply([cancelled(3)])
    assert kept.reader.waste(BAG) == expected
    for what in ("logs", "files"):
        kept.record.apply([PurgeBag(BAG, what)])
        assert kept.reader.waste(BAG) == expected
    kept.record.apply([PurgeBag(BAG, "all")])
    assert kept.reader.waste(BAG) == WasteView()
    assert kept.reader.waste(2).discarded == 1


def test_what_was_stopped_with_its_bag_is_no_waste(kept: Kept) -> None:
    kept.record.apply([*a_bag_of(3), ends(end(2, "failed")), cancelled(0, 1)])
    kept.record.apply([ends(*(end(t, "cancelled", WASTE, attempt=(1, 20 + t)) for t in range(3)))])
    assert kept.reader.waste(BAG) == WasteView()
    kept.record.apply([ReopenFailed(BAG, 9.0), successes([0, 2])])
    assert kept.reader.waste(BAG) == WasteView(), "nor when its task is done later"


def test_a_late_success_is_waste_only_if_it_does_not_count(kept: Kept) -> None:
    kept.record.apply([*a_bag_of(2), successes([0]), ends(end(1, "failed")), finished(1, 1)])
    late = [end(t, "ok", Verdict.LATE, attempt=(1, 20 + t), **lasted(2.5)) for t in range(2)]
    kept.record.apply([ends(*late)])
    assert kept.reader.waste(BAG) == WasteView(discarded=1, discarded_seconds=2.5)


def test_a_loss_that_comes_back_is_what_it_is_then(kept: Kept) -> None:
    kept.record.apply([*a_bag_of(2), ends(end(0, "lost", WASTE, attempt=(1, 5)))])
    kept.record.apply([successes([0])])
    assert kept.reader.waste(BAG).lost == 1
    kept.record.apply([ends(end(0, "ok", WASTE, attempt=(1, 5), **lasted(2.0)))])
    assert kept.reader.waste(BAG) == WasteView(discarded=1, discarded_seconds=2.0)


@pytest.mark.parametrize("outcome", ["lost", "host"])
def test_a_loss_that_counts_is_a_failure(kept: Kept, outcome: str) -> None:
    """Nobody knows who had it, or since when: no seconds are made up when it is tried again."""
    kept.record.apply([SaveBag(bag(1, 2, idempotent=False)), LeaseChunk(BAG, 0, 2)])
    nobody = end(0, outcome, attempt=(0, 0), sent=0.0, fetched=0.0, started=0.0, ended=0.0)
    unknown = msgspec.structs.replace(nobody, pilot=PilotId(0), host="")
    assert unknown.attempt == AttemptId(0, 0)
    kept.record.apply([ends(unknown)])
    assert kept.reader.waste(BAG) == WasteView()
    kept.record.apply([ReopenFailed(BagId(1), 9.0)])
    assert kept.reader.waste(BAG) == WasteView(lost=1)
