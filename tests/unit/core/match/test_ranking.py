"""What is kept of policies' answers, and when they are asked again."""

import pytest
from msgspec.structs import replace

from covey.core.match import match_cache
from covey.core.match.policies import Places
from covey.core.record.events import PolicyRequested
from covey.core.record.model import BagId, PilotId
from covey.core.state.match_records import Match
from tests.unit.core.match.test_policies import gets, policy
from tests.unit.core.table import Hand, Table, end, spec


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[object, ...]]:
    """What policies say whenever one is evaluated."""
    found: list[tuple[object, ...]] = []
    judged = match_cache.judged

    def noting(places: Places, values: tuple[object, ...]) -> Match | None:
        found.append(values)
        return judged(places, values)

    monkeypatch.setattr(match_cache, "judged", noting)
    return found


def work(hand: Hand, want: int = 1) -> list[int]:
    """Ask, and do what comes; whose tasks they were."""
    answer = hand.ask(want)
    hand.sync(0, [end(answer, number) for number in range(len(answer.tasks))])
    return [task.bag for task in answer.tasks]


def test_what_has_not_changed_is_not_asked_again(asked: list[tuple[object, ...]]) -> None:
    table = Table()
    for rank in range(5):
        table.submit(spec(9, policy=policy(rank=f"{rank} + Host.ErrorRate")))
    hand = table.enrol()
    best = work(hand)
    assert len(asked) == 5
    asked.clear()
    assert work(hand) == best
    assert asked == []


def test_equal_policies_are_asked_once(asked: list[tuple[object, ...]]) -> None:
    table = Table()
    for _ in range(5):
        table.submit(spec(9, policy=policy(requirements='Host.Name == "host"')))
    work(table.enrol())
    assert len(asked) == 1


def test_policies_that_write_the_same_under_other_names_are_not_equal() -> None:
    table = Table()
    table.submit(spec(1, policy=policy(requirements='Host.Name != "host"')))
    ranked = table.submit(spec(1, policy=policy(rank='Host.Name != "host"')))
    assert work(table.enrol(2), 2) == [ranked]


def test_equal_policies_that_look_at_their_bags_are_asked_for_each() -> None:
    table = Table()
    small, large = (table.submit(spec(count, policy=policy(rank="JobsLeft"))) for count in (2, 3))
    hand = table.enrol()
    assert [work(hand) for _ in range(3)] == [[large], [small], [large]]


def test_a_tag_that_changes_asks_those_who_look_at_it(asked: list[tuple[object, ...]]) -> None:
    table = Table()
    fast = table.submit(spec(9, policy=policy(rank="Host.pace")))
    named = table.submit(spec(9, policy=policy(rank='Host.Name == "host" ? 5 : 0')))
    hand = table.enrol(tags={"pace": "1"})
    assert work(hand) == [named]
    asked.clear()
    pilot = table.scheduler.state.pilots[PilotId(hand.pilot)]
    pilot.record = replace(pilot.record, tags={"pace": "9"})
    assert work(hand) == [fast]
    assert asked == [(9,)]


def test_statistics_are_a_second_old_at_most_and_failures_count_at_once() -> None:
    table = Table()
    table.submit(spec(30, policy=policy(rank="Host.JobsToday")))
    state = table.scheduler.state
    hand = table.enrol()
    work(hand)
    pilot = next(iter(state.pilots.values()))
    assert match_cache.face_of(state, table.now, pilot, "").host["JobsToday"] == 0
    table.now += 1.0
    assert match_cache.face_of(state, table.now, pilot, "").host["JobsToday"] == 1
    work(hand)
    answer = hand.ask(1)
    hand.sync(0, [end(answer, 0, "failed", 1)])
    assert match_cache.face_of(state, table.now, pilot, "").host["JobsToday"] == 2


def test_a_changed_policy_is_asked_at_once() -> None:
    table = Table()
    first = table.submit(spec(9, policy=policy(rank="2")))
    second = table.submit(spec(9, policy=policy(rank="1")))
    hand = table.enrol()
    assert work(hand) == [first]
    table.handle(
        PolicyRequested(table.request(), BagId(first), policy(rank="JobsLeft < 0 ? 9 : 0"))
    )
    assert work(hand) == [second]


def test_places_between_owners_go_by_age_and_nobody_is_left_out() -> None:
    table = Table()
    low = table.submit(spec(1, owner="ann", policy=policy(rank="1")))
    other = table.submit(spec(1, owner="bob"))
    shut = table.submit(spec(1, owner="ann", policy=policy(requirements="false", rank="9")))
    high = table.submit(spec(1, owner="ann", policy=policy(rank="2")))
    given = gets(table.enrol(9), 9)
    assert given == [(high, 0), (other, 0), (low, 0)]
    assert shut not in {bag for bag, _ in given}
