"""How fast tasks run at sites, and how well the slots there are filled."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.core.record.actions import SaveSiteHistory, Write
from covey.core.record.events import CancelRequested, DrainRequested
from covey.core.record.model import BagId
from covey.core.sites.site_history import MEASURED, SPEED_SECONDS, Cell, Speed, fit
from covey.core.sites.site_measures import measures_of
from covey.pilot.protocol.messages import OK, Answer, End
from tests.unit.core.placing import Grounds, site
from tests.unit.core.table import replies, spec

UNMEASURED = Speed(0.0, 0.0)


def speed(grounds: Grounds, name: str) -> float | None:
    return measures_of(grounds.scheduler.state, grounds.now, name).speed


def filling(grounds: Grounds, name: str = "lake") -> float | None:
    return measures_of(grounds.scheduler.state, grounds.now, name).filling_rate


def run(grounds: Grounds, bag: int, name: str, seconds: float, times: int = MEASURED) -> None:
    """So many tasks end well at that site, one after the other."""
    job = next(job for job in grounds.jobs if job.site == name)
    hand = grounds.begin(job, want=0)
    ends: list[End] = []
    for _ in range(times):
        answers = replies(hand.sync(1, ends), Answer)
        (task,) = [task for answer in answers for task in answer.tasks]
        ends = [End(hand.epoch, task.sequence, bag, task.task, OK, wall_seconds=seconds)]
    hand.sync(0, ends)


def two_sites(tasks: int = 40) -> tuple[Grounds, int]:
    grounds = Grounds(site("lake"), site("wood"))
    return grounds, grounds.submit(spec(tasks))


def test_without_a_comparison_no_speed_is_known() -> None:
    grounds, bag = two_sites()
    run(grounds, bag, "lake", 10.0)
    grounds.later(2 * SPEED_SECONDS)
    assert speed(grounds, "lake") is None


def test_tasks_of_one_bag_tell_which_site_is_faster() -> None:
    grounds, bag = two_sites()
    run(grounds, bag, "lake", 10.0)
    run(grounds, bag, "wood", 40.0)
    grounds.later(2 * SPEED_SECONDS)
    assert speed(grounds, "lake") == pytest.approx(2.0)
    assert speed(grounds, "wood") == pytest.approx(0.5)


def test_a_few_tasks_say_nothing() -> None:
    grounds, bag = two_sites()
    run(grounds, bag, "lake", 10.0)
    run(grounds, bag, "wood", 40.0, MEASURED - 1)
    grounds.later(2 * SPEED_SECONDS)
    assert speed(grounds, "wood") is None


def test_what_a_bag_has_shown_outlives_it_and_the_server() -> None:
    grounds, bag = two_sites()
    run(grounds, bag, "lake", 10.0)
    run(grounds, bag, "wood", 40.0)
    grounds.handle(CancelRequested(grounds.request(), BagId(bag)))
    assert BagId(bag) not in grounds.scheduler.state.bags
    grounds.handle(DrainRequested())
    after = Grounds(site("lake"), site("wood"), snapshot=grounds.after())
    assert speed(after, "lake") == pytest.approx(2.0)
    assert speed(after, "wood") == pytest.approx(0.5)


def test_filling_is_the_share_of_the_slots_with_a_task() -> None:
    grounds = Grounds(site(slots=4))
    grounds.submit(spec(1))
    (job,) = grounds.jobs
    hand = grounds.begin(job, want=4)
    assert filling(grounds) is None
    for _ in range(12):
        grounds.later(5)
        hand.sync(4)
    assert filling(grounds) == pytest.approx(1.0 / job.slots, rel=0.2)


def test_what_is_remembered_is_not_written_all_the_time() -> None:
    grounds = Grounds(site())
    grounds.submit(spec(1))
    hand = grounds.begin(grounds.jobs[0])
    for _ in range(60):
        grounds.later(5)
        hand.sync(1)
    saved = [
        one.change
        for one in grounds.actions
        if isinstance(one, Write) and isinstance(one.change, SaveSiteHistory)
    ]
    assert 3 <= len(saved) <= 6


speeds = st.dictionaries(st.sampled_from("abcdef"), st.floats(-3.0, 3.0), min_size=2)


@given(speeds, st.lists(st.floats(-2.0, 8.0), min_size=1, max_size=5), st.floats(3.0, 100.0))
def test_true_speeds_are_found(
    truth: dict[str, float], lengths: list[float], weight: float
) -> None:
    classes = [
        [Cell(name, weight, length - log) for name, log in truth.items()] for length in lengths
    ]
    found = fit(dict.fromkeys(truth, UNMEASURED), classes)
    middle = math.fsum(truth.values()) / len(truth)
    for name, log in truth.items():
        assert found[name].log == pytest.approx(log - middle, abs=1e-6)
        assert found[name].weight == pytest.approx(weight * len(lengths))


@given(speeds, st.floats(1.0, 100.0))
def test_without_news_what_is_known_stays(known: dict[str, float], weight: float) -> None:
    before = {name: Speed(log, weight) for name, log in known.items()}
    assert fit(before, []) == before


def test_sites_that_share_no_bag_are_compared_by_those_between() -> None:
    """lake ran bags with wood, wood others with hill."""
    names = ("lake", "wood", "hill")
    one = [Cell("lake", 100.0, math.log(10.0)), Cell("wood", 100.0, math.log(20.0))]
    other = [Cell("wood", 100.0, math.log(100.0)), Cell("hill", 100.0, math.log(200.0))]
    found = fit(dict.fromkeys(names, UNMEASURED), [one, other])
    assert [found[name].log for name in names] == pytest.approx(
        [math.log(2.0), 0.0, -math.log(2.0)], abs=0.02
    )
