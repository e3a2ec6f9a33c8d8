"""Which algorithm splits a bag's pilots; services and plugins; what is remembered of it."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from covey.core.broker import choices
from covey.core.broker.worth import SiteCandidate, Work, Worth
from covey.core.explain import broker_answers
from covey.core.record.actions import Refuse
from covey.core.record.broker_rules import BrokerRules, GivenWeights, WeightService
from covey.core.record.model import BagId, SiteSpec, SiteStatus
from tests.unit.core.placing import Grounds, counted, site
from tests.unit.core.table import end, spec

KARNAK = WeightService(name="karnak", most_age_seconds=100.0)


def grounds(*sites: SiteSpec, **rules: Any) -> Grounds:
    return Grounds(*sites, broker=BrokerRules(**rules))


def lake_and_wood(**rules: Any) -> Grounds:
    return grounds(site("lake", weight=1.0), site("wood", weight=3.0), **rules)


def give(place: Grounds, **weights: float) -> None:
    given = GivenWeights(weights=weights, at=place.now, source="its URL")
    place.scheduler.state.broker.given["karnak"] = given


def test_the_server_has_a_broker_and_a_bag_may_name_another() -> None:
    place = lake_and_wood(algorithm="static")
    place.submit(spec(40))
    assert counted(place.jobs) == {"lake": 10, "wood": 30}
    place.submit(spec(40, broker="room"))
    assert counted(place.jobs)["lake"] in (30, 31)


def test_a_broker_that_the_server_does_not_have_is_refused() -> None:
    place = lake_and_wood()
    with pytest.raises(AssertionError):
        place.submit(spec(4, broker="karnack"))
    [refused] = [one for one in place.actions if isinstance(one, Refuse)]
    assert "there is no broker 'karnack'; there are room, static" in refused.detail


def test_sites_are_drawn_by_weight() -> None:
    place = lake_and_wood(algorithm="random")
    place.submit(spec(400))
    assert 240 < counted(place.jobs)["wood"] < 360
    decision = place.scheduler.state.broker.decisions[BagId(1)]
    assert decision.choice.drawn
    assert sum(decision.pilots.values()) == 400


def test_weight_zero_gets_nothing_and_the_others_all() -> None:
    place = grounds(site("lake", weight=0.0), site("wood"))
    place.submit(spec(20))
    assert counted(place.jobs) == {"wood": 20}


def test_a_site_that_is_not_known_gets_few_pilots_at_a_time() -> None:
    place = grounds(site("lake"), site("wood"), algorithm="measured", probes=2)
    place.submit(spec(40))
    place.submit(spec(40))
    assert counted(place.jobs) == {"lake": 2, "wood": 2}
    place.waits(*place.jobs)
    place.later(60)
    assert counted(place.jobs) == {"lake": 2, "wood": 2}, "none of them has started"
    place.begin(place.jobs[0], 0)
    place.later(2)
    assert counted(place.jobs)["lake"] > 20
    assert counted(place.jobs)["wood"] == 2


def test_probes_are_a_part_of_what_a_site_may_have_but_one_at_least() -> None:
    place = grounds(
        site("lake", running=20), site("wood", running=3), algorithm="measured", probes=50
    )
    place.submit(spec(40))
    assert counted(place.jobs) == {"lake": 2, "wood": 1}


# -- services ------------------------------------------------------------------------------------


def test_a_service_says_what_sites_are_worth() -> None:
    place = lake_and_wood(services=(KARNAK,))
    give(place, lake=1.0, wood=1.0)
    place.submit(spec(20, broker="karnak"))
    assert counted(place.jobs) == {"lake": 10, "wood": 10}


def test_a_site_that_the_service_does_not_name_gets_nothing() -> None:
    place = lake_and_wood(services=(KARNAK,))
    give(place, lake=2.0)
    place.submit(spec(20, broker="karnak"))
    assert counted(place.jobs) == {"lake": 20}


@pytest.mark.parametrize("late", [False, True])
def test_without_fresh_weights_another_algorithm_takes_its_place(late: bool) -> None:
    service = WeightService(name="karnak", most_age_seconds=100.0, fallback="static")
    place = lake_and_wood(services=(service,))
    if late:
        give(place, lake=1.0)
        place.now += 101.0
    place.submit(spec(40, broker="karnak"))
    assert counted(place.jobs) == {"lake": 10, "wood": 30}
    choice = place.scheduler.state.broker.decisions[BagId(1)].choice
    assert (choice.algorithm, choice.instead_of) == ("static", "karnak")
    assert ("101 s old" if late else "no weights yet") in choice.problem


# -- plugins -------------------------------------------------------------------------------------


class Alphabet:
    """The first site by name gets all."""

    def weigh(self, work: Work, candidates: Sequence[SiteCandidate]) -> Mapping[str, float | Worth]:
        return {min(one.site for one in candidates): 1.0}


class Broken:
    def __init__(self, answer: object) -> None:
        self._answer = answer

    def weigh(self, work: Work, candidates: Sequence[SiteCandidate]) -> Any:
        if self._answer is None:
            raise RuntimeError("it does not work")
        return self._answer


def test_a_plugin_weighs_sites() -> None:
    place = lake_and_wood(algorithm="alphabet", plugins={"alphabet": Alphabet()})
    place.submit(spec(20))
    assert counted(place.jobs) == {"lake": 20}


@pytest.mark.parametrize(
    "answer",
    [
        None,
        7,
        {"lake": -1.0},
        {"lake": float("nan")},
        {"lake": "x"},
        {"lake": 1.7e308, "wood": 1.7e308},
        {"lake": Worth(1.0, "first")},  # type: ignore[arg-type]
        {"lake": Worth(1.0, 0, "many")},  # type: ignore[arg-type]
        {"lake": Worth(1.0, made_of=(("weight", "much"),))},  # type: ignore[arg-type]
    ],
)
def test_a_plugin_that_fails_takes_nobody_along(answer: object) -> None:
    place = lake_and_wood(algorithm="broken", plugins={"broken": Broken(answer)})
    place.submit(spec(20))
    assert counted(place.jobs) == {"lake": 10, "wood": 10}
    choice = place.scheduler.state.broker.decisions[BagId(1)].choice
    assert (choice.algorithm, choice.instead_of, bool(choice.problem)) == ("room", "broken", True)


# -- memory --------------------------------------------------------------------------------------


def test_decisions_for_bags_that_are_over_are_forgotten() -> None:
    place = lake_and_wood()
    place.submit(spec(1))
    hand = place.begin(place.jobs[0])
    assert place.scheduler.state.broker.decisions
    place.now += 1.0
    hand.ask(0, [end(place.latest(), 0)])
    place.later(2)
    assert not place.scheduler.state.broker.decisions


def test_the_latest_decisions_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choices, "MOST_DECISIONS", 3)
    place = grounds(site("lake"), algorithm="measured", probes=1)
    for _ in range(9):
        place.submit(spec(5))
    place.later(2)
    assert [len(place.jobs), len(place.scheduler.state.broker.decisions)] == [1, 3]


def test_weights_are_remembered_every_few_minutes() -> None:
    place = lake_and_wood(algorithm="static")
    place.later(choices.WEIGHTS_SECONDS * 2 + 2)
    history = place.scheduler.state.broker.history
    assert [weights for _, weights in history] == [{"lake": 1.0, "wood": 3.0}] * 3


def test_a_cheap_site_that_is_full_keeps_a_bag_from_a_dear_one() -> None:
    place = grounds(
        site("lake", price=1.0, running=2), site("wood", price=5.0), algorithm="price", probes=9
    )
    bag = place.submit(spec(100))
    for _ in range(3):
        for job in place.jobs:
            if not job.enrolled:
                place.begin(job)
        place.later(20.0)
    assert counted(place.jobs) == {"lake": 2}
    decision = place.scheduler.state.broker.decisions[BagId(bag)]
    assert decision.choice.worths["wood"].weight == 0.0
    place.turn_to(SiteStatus.PAUSED)
    place.later(20.0)
    assert counted(place.jobs)["wood"] > 0


def test_a_bag_that_is_late_uses_the_dear_site_beside_a_full_cheap_one() -> None:
    place = grounds(
        site("lake", price=1.0, running=1), site("wood", price=5.0), algorithm="price", probes=9
    )
    bag = place.submit(spec(100, finish_seconds=1000.0))
    place.measure(bag, 100.0)
    place.later(20.0)
    assert counted(place.jobs)["wood"] > 0
    state = place.scheduler.state
    answer = broker_answers.of_bag(state, place.now, state.bags[BagId(bag)])
    assert answer is not None
    texts = {share.site: share.text for share in answer.sites}
    assert texts["lake"].startswith("no pilots: it is full; weight 1 of 1 (room for 0 pilots")


def test_a_bag_whose_tasks_take_an_unknown_time_does_not_wait_at_a_full_site() -> None:
    place = grounds(
        site("lake", price=1.0, running=1), site("wood", price=5.0), algorithm="price", probes=9
    )
    place.submit(spec(10))
    assert counted(place.jobs) == {"lake": 1}
    place.submit(spec(10, finish_seconds=1000.0))
    assert counted(place.jobs)["wood"] > 0
