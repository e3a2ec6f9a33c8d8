"""Weights that services give: taken if they make sense, kept until there are others."""

import math

import pytest

from covey.core.broker.service_weights import MOST_SITES, problem_of
from covey.core.record.actions import Done, Note, Refuse, Reply
from covey.core.record.broker_rules import BrokerRules, WeightService
from covey.core.record.events import WeightsFailed, WeightsGiven
from tests.unit.core.placing import Grounds, counted, site
from tests.unit.core.table import spec


def grounds() -> Grounds:
    rules = BrokerRules(services=(WeightService(name="karnak"),))
    return Grounds(site("lake"), site("wood"), broker=rules)


def give(place: Grounds, weights: dict[str, float], service: str = "karnak") -> list[object]:
    request = place.request()
    actions = place.handle(WeightsGiven(request, service, weights, "a test"))
    answers = [one for one in actions if isinstance(one, Reply | Refuse)]
    return [one.message if isinstance(one, Reply) else one.detail for one in answers]


def test_they_count_at_once() -> None:
    place = grounds()
    assert give(place, {"lake": 0.0, "wood": 3.0}) == [Done(2)]
    place.submit(spec(10, broker="karnak"))
    assert counted(place.jobs) == {"wood": 10}
    given = place.scheduler.state.broker.given["karnak"]
    assert (given.at, given.source) == (place.now, "a test")


def test_a_service_that_nobody_named_is_refused() -> None:
    assert give(grounds(), {"lake": 1.0}, "karnack") == ["there is no service karnack"]


@pytest.mark.parametrize("weight", [-1.0, math.nan, math.inf, 1e13])
def test_weights_that_make_no_sense_are_refused(weight: float) -> None:
    place = grounds()
    give(place, {"lake": 1.0})
    [words] = give(place, {"lake": weight})
    assert "the weight of lake is" in str(words)
    assert place.scheduler.state.broker.given["karnak"].weights == {"lake": 1.0}


def test_there_are_bounds() -> None:
    assert "at most 10,000" in problem_of({str(n): 1.0 for n in range(MOST_SITES + 1)})
    assert "at most 100 characters" in problem_of({"x" * 101: 1.0})


def test_a_service_that_fails_is_noted_once_and_its_weights_stay() -> None:
    place = grounds()
    give(place, {"lake": 1.0})
    failed = WeightsFailed("karnak", "no route")
    actions = [*place.handle(failed), *place.handle(failed)]
    assert [one.detail for one in actions if isinstance(one, Note)] == ["karnak: no route"]
    place.submit(spec(10, broker="karnak"))
    assert counted(place.jobs) == {"lake": 10}
    place.now += 601.0
    place.submit(spec(10, broker="karnak"))
    state = place.scheduler.state
    problem = state.broker.decisions[max(state.bags)].choice.problem
    assert "601 s old" in problem
    assert problem.endswith("no route")
    give(place, {"lake": 1.0})
    assert not state.broker.problems


def test_an_answer_that_makes_no_sense_is_a_failure() -> None:
    place = grounds()
    place.handle(WeightsGiven(None, "karnak", {"lake": math.nan}, "http://karnak"))
    assert "the weight of lake" in place.scheduler.state.broker.problems["karnak"]
