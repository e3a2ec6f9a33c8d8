"""What a site's owners prefer goes first on their pilots, and has the first choice of the room."""

from typing import Any

import pytest

from covey.core.errors import InvalidBag
from covey.core.explain import bag_answers
from covey.core.explain.steps import finish
from covey.core.match import site_preference
from covey.core.record.model import BagId, PolicySpec, SiteSpec
from covey.pilot.protocol.messages import Answer
from tests.unit.core.placing import Grounds, site
from tests.unit.core.table import Hand, refusal, replies, spec

ANN_FIRST = 'User.Name == "ann"'


def bags_of(hand: Hand, want: int) -> list[int]:
    answers = [*replies(hand.sync(want), Answer), *replies(hand.sync(0), Answer)]
    return [task.bag for answer in answers for task in answer.tasks]


def shared(preference: str, **more: Any) -> SiteSpec:
    return site(shared=True, preference=preference, **more)


def test_the_preferred_bag_goes_first_whatever_its_age_and_rank() -> None:
    grounds = Grounds(shared(ANN_FIRST))
    bob = grounds.submit(spec(2, owner="bob", policy=PolicySpec(rank="1000")))
    ann = grounds.submit(spec(2, owner="ann", policy=PolicySpec(rank="-5")))
    there = grounds.begin(grounds.jobs[0], want=0)
    assert bags_of(there, 1) == [ann]
    elsewhere = grounds.enrol(1, host="mine")
    assert bags_of(elsewhere, 1) == [bob], "nobody prefers anything there"


def test_among_the_preferred_ranks_decide() -> None:
    grounds = Grounds(shared('member(Bag.Owner, {"ann", "eve"}) ? 1 : 0'))
    grounds.submit(spec(2, owner="bob"))
    low = grounds.submit(spec(2, owner="ann", policy=PolicySpec(rank="1")))
    high = grounds.submit(spec(2, owner="ann", policy=PolicySpec(rank="2")))
    hand = grounds.enrol(6, host="large", site="lake")
    assert bags_of(hand, 4) == [high, high, low, low]


@pytest.mark.parametrize("preference", ["undefined", '"much"', "1/0", "Bag.Nothing"])
def test_what_is_no_number_prefers_nobody(preference: str) -> None:
    grounds = Grounds(shared(preference))
    old = grounds.submit(spec(2, owner="bob"))
    grounds.submit(spec(2, owner="ann"))
    assert bags_of(grounds.enrol(1, site="lake"), 1) == [old]


def test_names_without_a_prefix_are_the_bags() -> None:
    grounds = Grounds(shared('Owner == "ann"'))
    grounds.submit(spec(2, owner="bob"))
    ann = grounds.submit(spec(2, owner="ann"))
    assert bags_of(grounds.enrol(1, site="lake"), 1) == [ann]


def test_what_changes_is_looked_at_again() -> None:
    grounds = Grounds(shared("-Bag.JobsLeft"))
    large = grounds.submit(spec(5, owner="bob"))
    small = grounds.submit(spec(3, owner="ann"))
    hand = grounds.enrol(4, site="lake")
    assert bags_of(hand, 4) == [small, small, small, large]
    grounds.later(site_preference.LOOK_SECONDS)
    smaller = grounds.submit(spec(2, owner="eve"))
    assert bags_of(grounds.enrol(1, host="next", site="lake"), 1) == [smaller]


def test_the_preferred_has_the_first_choice_of_the_room() -> None:
    grounds = Grounds()
    grounds.submit(spec(2, owner="bob"))
    grounds.submit(spec(2, owner="ann"))
    grounds.save(site(preference=ANN_FIRST, running=3))
    assert sorted(job.wanted_by for job in grounds.jobs) == ["ann", "ann", "bob"]


def test_whoever_waits_is_told() -> None:
    grounds = Grounds(shared(ANN_FIRST, running=1))
    bob = grounds.submit(spec(2, owner="bob"))
    ann = grounds.submit(spec(9, owner="ann"))
    grounds.begin(grounds.jobs[0])
    state = grounds.scheduler.state
    told = finish(bag_answers.of_bag(state, grounds.now, state.bags[BagId(bob)]))
    [reason] = [one for one in told.reasons if one.kind == "preference"]
    assert f"lake prefers bag {ann}" in reason.text
    told = finish(bag_answers.of_bag(state, grounds.now, state.bags[BagId(ann)]))
    assert not any(one.kind == "preference" for one in told.reasons)


def test_one_that_cannot_be_read_is_refused() -> None:
    grounds = Grounds()
    assert "preference" in refusal(grounds.save(site(preference="1 +"))).detail
    assert not grounds.scheduler.state.sites


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Host.Name", "it cannot use Host"),
        ("Job.Memory > 5", "it cannot use Job"),
        ("User.Salary", "there is no User.salary"),
        ("Bag.JobsLeft + Queue.Slots + Site.Price + time()", ""),
        ('Owner == "ann"', ""),
    ],
)
def test_what_it_looks_at_must_be_there(text: str, words: str) -> None:
    assert site_preference.problem(text)[: len(words) or None] == words


def test_a_preference_that_is_none_has_no_problem_but_an_error() -> None:
    with pytest.raises(InvalidBag, match="preference"):
        site_preference.problem("ann first")
