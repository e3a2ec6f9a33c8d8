"""What policies become, and what they decide: dispatch, order, concurrency, deadlines, tails."""

import pytest

from covey.core.errors import InvalidBag
from covey.core.match import match_cache
from covey.core.match.policies import PRESETS, Compiled, expand, sticks
from covey.core.record.actions import Done, Refuse, SavePolicy, Write
from covey.core.record.events import (
    CloseRequested,
    DrawContinued,
    PilotLeft,
    PolicyRequested,
    Ticked,
)
from covey.core.record.model import BagId, PolicySpec
from covey.pilot.protocol.messages import Answer, Leave
from tests.unit.core.table import Hand, Table, end, only, replies, spec


def policy(**fields: object) -> PolicySpec:
    return PolicySpec(**fields)  # type: ignore[arg-type]


def tasks(answer: Answer) -> list[tuple[int, int]]:
    return [(one.bag, one.task) for one in answer.tasks]


def gets(hand: Hand, want: int = 1) -> list[tuple[int, int]]:
    """What it is sent; asking for none has the open question answered."""
    answers = [*replies(hand.sync(want), Answer), *replies(hand.sync(0), Answer)]
    return [one for answer in answers for one in tasks(answer)]


# -- texts ---------------------------------------------------------------------------------


def test_plain_keys_become_expressions() -> None:
    found = expand(
        policy(deadline="30m", only_sites=("a", 'b"c'), avoid_hosts=("x",), requirements="true")
    )
    assert found["Deadline"] == "1800"
    assert found["JobRequirements"] == (
        'member(Site.Name, {"a", "b\\"c"}) && '
        '!(member(Host.Name, {"x"}) || member(Host.CalledName, {"x"})) && (true)'
    )


def test_what_the_owner_says_comes_before_the_preset() -> None:
    found = expand(policy(preset="fast-tail", max_replicas="7"))
    assert found["MaxReplicas"] == "7"
    assert "Job.RunningTime" in found["ReplicationRequirements"]
    assert sticks(policy(preset="reliable-tail"))
    assert not sticks(policy(preset="reliable-tail", sticky_tail=False))


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_compiles(name: str) -> None:
    assert Compiled(policy(preset=name)).texts["TailCondition"]


def test_nothing_is_evaluated_for_a_bag_without_a_policy() -> None:
    found = Compiled(policy())
    assert found.plain
    assert not found.replicates


def test_a_preset_that_there_is_not() -> None:
    with pytest.raises(InvalidBag, match="there is no preset 'fats'; presets: throughput"):
        expand(policy(preset="fats"))


def test_what_does_not_parse_is_refused_with_its_name() -> None:
    with pytest.raises(InvalidBag, match="Rank: "):
        Compiled(policy(rank="1 +"))


def test_what_it_looks_at() -> None:
    found = Compiled(policy(requirements="Tail || BOT.JobsLeft > 3 && Host.Speed > Job.i"))
    assert found.at_dispatch == {"bag": {"tail", "jobsleft"}, "host": {"speed"}, "job": {"i"}}
    assert found.parameters(["a", "I"]) == (1,)


# -- dispatch ------------------------------------------------------------------------------


def test_tasks_go_only_where_the_requirements_hold() -> None:
    table = Table()
    bag = table.submit(spec(4, policy=policy(requirements='Host.Name == "good"')))
    bad, good = table.enrol(host="bad"), table.enrol(host="good")
    assert gets(bad) == []
    assert gets(good) == [(bag, 0)]


def test_tags_are_attributes_and_those_of_its_owner_lose_their_prefix() -> None:
    table = Table()
    wanted = policy(requirements="Host.Cpu_MHz > 2000 && Host.speed >= 1.5")
    bag = table.submit(spec(4, policy=wanted, owner="ann"))
    tags = {"cpu_mhz": "2400.5", "bob:speed": "9"}
    bobs = table.enrol(host="bobs", tags=tags)
    anns = table.enrol(host="anns", tags={**tags, "ann:speed": "1.5"})
    assert gets(bobs) == []
    assert gets(anns) == [(bag, 0)]


def test_classes_by_the_parameters_that_a_policy_looks_at() -> None:
    table = Table()
    wanted = policy(requirements="Job.i % 2 == 0 || Host.Odd =?= true")
    bag = table.submit(spec(6, policy=wanted))
    assert gets(table.enrol(9, host="even"), 9) == [(bag, 0), (bag, 2), (bag, 4)]


def test_too_many_different_values_are_refused() -> None:
    table = Table()
    with pytest.raises(AssertionError, match="1,001 different values"):
        table.submit(spec(1001, policy=policy(requirements="Job.i > 3")))


def test_rank_decides_between_bags_of_one_owner() -> None:
    table = Table()
    low = table.submit(spec(2, policy=policy(rank="1")))
    high = table.submit(spec(2, policy=policy(rank="2")))
    hand = table.enrol(4)
    assert gets(hand, 4) == [(high, 0), (high, 1), (low, 0), (low, 1)]


def test_ranks_of_different_owners_are_not_compared() -> None:
    table = Table()
    first = table.submit(spec(1, owner="ann", policy=policy(rank="1")))
    bobs = table.submit(spec(1, owner="bob", policy=policy(rank="1000")))
    second = table.submit(spec(1, owner="ann", policy=policy(rank="2")))
    assert gets(table.enrol(3), 3) == [(second, 0), (bobs, 0), (first, 0)]


def test_rank_depends_on_the_host() -> None:
    table = Table()
    one = table.submit(spec(9, policy=policy(rank='Host.Name == "a" ? 1 : 0')))
    other = table.submit(spec(9, policy=policy(rank='Host.Name == "b" ? 1 : 0')))
    assert gets(table.enrol(host="a")) == [(one, 0)]
    assert gets(table.enrol(host="b")) == [(other, 0)]


def test_concurrency_is_a_running_minimum_down_the_ranking() -> None:
    table = Table()
    high = table.submit(spec(1, policy=policy(rank="2", concurrency="3")))
    low = table.submit(spec(9, policy=policy(rank="1", concurrency="8")))
    assert gets(table.enrol(8), 8) == [(high, 0), (low, 0), (low, 1)]


def test_concurrency_of_one_owner_limits_no_other() -> None:
    table = Table()
    anns = table.submit(spec(9, owner="ann", policy=policy(concurrency="2")))
    bobs = table.submit(spec(9, owner="bob"))
    both = table.enrol(6)
    assert gets(both, 6) == [(anns, 0), (anns, 1), (bobs, 0), (bobs, 1), (bobs, 2), (bobs, 3)]


def test_concurrency_does_not_count_what_others_have_there() -> None:
    table = Table()
    bobs = table.submit(spec(3, owner="bob"))
    both = table.enrol(6)
    assert gets(both, 6) == [(bobs, 0), (bobs, 1), (bobs, 2)]
    anns = table.submit(spec(9, owner="ann", policy=policy(concurrency="2")))
    assert gets(both, 6) == [(anns, 0), (anns, 1)]


def test_a_newcomer_is_not_offered_what_it_cannot_take() -> None:
    table = Table()
    bags = [table.submit(spec(9)) for _ in range(3)]
    hand = table.enrol(2)
    assert gets(hand, 9) == [(bags[0], 0), (bags[0], 1)]


def test_concurrency_of_single_tasks_limits_further_attempts() -> None:
    """A policy that looks at the replicas of a task may say another number than of its class."""
    table = Table()
    limit = "Job.NumberOfReplicas > 0 ? 1 : 4"
    table.submit(spec(2, policy=policy(concurrency=limit, replication="true", tail="true")))
    assert len(tasks(table.enrol(slots=4, key="key-first", host="a").ask(4))) == 2
    second = table.enrol(slots=4, key="key-second", host="b")
    second.sync(4)
    seconds = table.scheduler.state.settings.replicate_seconds
    found = [answer for answer in replies(table.later(seconds + 2), Answer) if answer.tasks]
    assert len(found) == 1
    assert len(tasks(found[0])) == 1, "both tasks are offered to it"


def test_concurrency_sends_more_than_there_are_slots() -> None:
    table = Table()
    bag = table.submit(spec(9, policy=policy(concurrency="2 * Pilot.Slots + 1")))
    assert len(gets(table.enrol(2), 2)) == 5
    assert bag


def test_an_attempt_past_its_deadline_is_sent_to_another_host_and_may_still_count() -> None:
    table = Table(lease_seconds=1e9)
    bag = table.submit(spec(1, policy=policy(deadline="30s")))
    slow, other = table.enrol(host="slow"), table.enrol(host="other")
    given = slow.ask(1)
    assert tasks(given) == [(bag, 0)]
    table.later(29)
    assert gets(other) == []
    table.later(2)
    assert gets(other) == [(bag, 0)]
    assert gets(slow, 2) == []  # it has it
    slow.sync(0, [end(given)])
    assert BagId(bag) not in table.scheduler.state.bags


def test_a_deadline_that_passes_tells_of_the_host_once() -> None:
    table = Table(lease_seconds=50)
    table.submit(spec(2, policy=policy(deadline="30s")))
    slow = table.enrol(host="slow")
    assert len(gets(slow)) == 1
    table.later(31)
    found = table.scheduler.state.hosts["slow"].history
    assert (found.done, found.failed, round(found.lost, 2)) == (0, 0, 1)
    table.later(60)  # and the pilot is lost
    assert (found.done, found.failed, round(found.lost, 2)) == (0, 0, 1)


@pytest.mark.parametrize("retries", [0, 1])
def test_a_repeat_that_fails_counts_and_is_repeated_while_there_are_retries(retries: int) -> None:
    """Nobody waits for the first attempt any more, though it has not ended."""
    table = Table(lease_seconds=1e9)
    bag = table.submit(spec(1, retries=retries, policy=policy(deadline="30s")))
    given = table.enrol(host="slow").ask(1)
    table.later(31)
    other = table.enrol(host="other")
    again = other.ask(1)
    assert tasks(again) == tasks(given) == [(bag, 0)]
    other.sync(0, [end(again, outcome="failed", exit_code=1)])
    if retries:
        assert gets(table.enrol(host="third")) == [(bag, 0)]
    else:
        assert BagId(bag) not in table.scheduler.state.bags


def test_a_bag_that_must_not_be_repeated_is_not() -> None:
    table = Table(lease_seconds=1e9)
    table.submit(spec(1, idempotent=False, policy=policy(deadline="30s")))
    slow, other = table.enrol(host="slow"), table.enrol(host="other")
    assert len(gets(slow)) == 1
    table.later(60)
    assert gets(other) == []


def test_deadlines_of_what_has_ended_are_forgotten() -> None:
    table = Table(chunk=4096, lease_seconds=1e9)
    table.submit(spec(5000, policy=policy(deadline="86400")))
    hand = table.enrol(slots=50)
    answer = hand.ask(50)
    for _ in range(90):
        ends = [end(answer, index) for index in range(50)]
        answer = next(one for one in replies(hand.sync(50, ends), Answer) if one.tasks)
    assert len(table.scheduler.state.replication.deadlines) <= 1024


# -- replicas ------------------------------------------------------------------------------


def draw(table: Table) -> None:
    table.now += 1.0
    table.handle(Ticked())
    while table.scheduler.state.replication.drawing:
        table.handle(DrawContinued())


def test_what_was_given_up_is_not_run_twice() -> None:
    """One attempt of it hangs, and another was its last."""
    table = Table(lease_seconds=1e9, most_losses=1)
    bag = table.submit(spec(2, breaker=0, policy=policy(replication="true", deadline="5")))
    hands = [table.enrol(host=f"h{number}") for number in range(4)]
    assert [gets(hand) for hand in hands[:2]] == [[(bag, 0)], [(bag, 1)]]
    third = hands[2]
    third.sync()
    (answer,) = [one for one in replies(table.later(7.0), Answer) if one.tasks]
    third.sync(0, [end(answer, outcome="host", exit_code=1)])
    lost = answer.tasks[0].task
    held = table.scheduler.state.bags[BagId(bag)]
    assert (list(held.places.failed), lost in held.places.live) == ([lost], True)
    for _ in range(5):
        draw(table)
    assert lost not in held.replicas.offers
    assert (bag, lost) not in gets(hands[3])


def test_replicas_only_in_the_tail_of_a_closed_bag_and_within_their_number() -> None:
    table = Table(lease_seconds=1e9)
    wanted = policy(replication="true", max_replicas="2")
    bag = table.submit(spec(2, open=True, policy=wanted))
    hands = [table.enrol(host=f"h{number}") for number in range(5)]
    assert [gets(hand) for hand in hands[:2]] == [[(bag, 0)], [(bag, 1)]]
    draw(table)
    assert gets(hands[2]) == []
    table.handle(CloseRequested(table.request(), BagId(bag)))
    draw(table)
    found = [gets(hand) for hand in hands[2:4]]
    draw(table)
    found += [gets(hand) for hand in hands[2:]]
    given = sorted(one for each in found for one in each)
    assert given == [(bag, 0), (bag, 1)]
    assert table.scheduler.state.bags[BagId(bag)].replicas.sent == 2


def test_replicas_where_the_policy_wants_them() -> None:
    """As in GridBot's Figure 3: only if the first one is on a host with a high error rate."""
    table = Table(lease_seconds=1e9)
    wanted = policy(
        replication="Job.NumberOfReplicas < 3 && Job.Replica1.Host.shaky =?= 1", max_replicas="3"
    )
    bag = table.submit(spec(2, policy=wanted))
    table_hands = [table.enrol(host="a", tags={"shaky": "1"}), table.enrol(host="b")]
    assert [gets(hand) for hand in table_hands] == [[(bag, 0)], [(bag, 1)]]
    draw(table)
    assert gets(table.enrol(4, host="c"), 4) == [(bag, 0)]


def test_a_tail_that_sticks_and_one_that_does_not() -> None:
    table = Table()
    ids = [
        table.submit(
            spec(4, policy=policy(preset="fast-tail", tail="Queue.Slots > 2", sticky_tail=s))
        )
        for s in (True, False)
    ]
    first = table.enrol(3, host="a")
    hand = table.enrol(3, host="b")
    gets(hand, 9)
    draw(table)
    bags = [table.scheduler.state.bags[BagId(id_)] for id_ in ids]
    assert [bag.replicas.tail for bag in bags] == [True, True]
    for one in (hand, first):
        table.handle(PilotLeft(table.request(), Leave(one.pilot, 1, "bye")))
    table.enrol(2, host="c")
    table.later(3)
    for bag in bags:
        match_cache.refresh(table.scheduler.state, table.now, bag)
    assert [bag.replicas.tail for bag in bags] == [True, False]


# -- the last chance -----------------------------------------------------------------------


def fails_for_good(table: Table, wanted: PolicySpec) -> int:
    """A bag of one task, which has failed on site a."""
    bag = table.submit(spec(1, policy=wanted))
    hand = table.enrol(host="a", site="a")
    hand.sync(0, [end(hand.ask(), outcome="failed")])
    return bag


@pytest.mark.parametrize("more", [{}, {"only_sites": ("a",)}, {"requirements": 'Host.Name == "a"'}])
def test_what_failed_for_good_is_tried_once_more_on_a_fail_over_site(
    more: dict[str, object],
) -> None:
    table = Table()
    bag = fails_for_good(table, policy(failover_sites=("b",), **more))
    assert gets(table.enrol(host="c", site="c")) == []
    hand = table.enrol(host="b", site="b")
    answer = hand.ask()
    assert tasks(answer) == [(bag, 0)]
    hand.sync(0, [end(answer, outcome="failed")])
    assert BagId(bag) not in table.scheduler.state.bags


def test_without_fail_over_sites_the_last_chance_is_anywhere() -> None:
    table = Table()
    bag = fails_for_good(table, policy(failover_sites=("b",)))
    hand = table.enrol(host="c", site="c")
    assert gets(hand) == []
    table.handle(PolicyRequested(table.request(), BagId(bag), policy()))
    assert gets(hand) == [(bag, 0)]


# -- changing it ---------------------------------------------------------------------------


def test_a_policy_is_changed_while_its_bag_runs() -> None:
    table = Table()
    bag = table.submit(spec(4, policy=policy(requirements="false")))
    hand = table.enrol(4)
    assert gets(hand, 4) == []
    changed = policy(requirements="Job.i < 2")
    found = table.handle(PolicyRequested(table.request(), BagId(bag), changed))
    assert only(found, Done).count == 1
    assert any(
        isinstance(one, Write) and one.change == SavePolicy(BagId(bag), changed) for one in found
    )
    assert gets(hand, 4) == [(bag, 0), (bag, 1)]


def test_what_is_no_policy_changes_nothing() -> None:
    table = Table()
    bag = table.submit(spec(4))
    found = table.handle(PolicyRequested(table.request(), BagId(bag), policy(rank="(")))
    assert [one for one in found if isinstance(one, Refuse)]
    assert len(gets(table.enrol(4), 4)) == 4


def test_attempts_that_fail_use_up_chances_though_another_is_still_out() -> None:
    """Otherwise a task that fails everywhere would be replicated for ever."""
    table = Table(lease_seconds=1e9)
    bag = table.submit(spec(1, retries=2, policy=policy(replication="true", max_replicas="2")))
    first = table.enrol(host="first").ask(1)
    assert tasks(first) == [(bag, 0)]
    hands = [table.enrol(host=f"h{number}") for number in range(9)]
    sent = 0
    for hand in hands:
        draw(table)
        for answer in [*replies(hand.sync(1), Answer), *replies(hand.sync(0), Answer)]:
            for index in range(len(answer.tasks)):
                sent += 1
                hand.sync(0, [end(answer, index, "failed")])
    assert sent == 3
    assert BagId(bag) in table.scheduler.state.bags  # the first one may yet do it
