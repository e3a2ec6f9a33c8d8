"""What each algorithm says that a site is worth."""

import pytest

from covey.core.broker import algorithms
from covey.core.broker.worth import SiteCandidate, Work
from covey.core.record.broker_rules import BrokerRules
from covey.core.sites.measures import UNKNOWN, SiteMeasures

RULES = BrokerRules()


def measured(wait: float, speed: float | None = None, **more: object) -> SiteMeasures:
    return SiteMeasures(jobs=5, wait_median=wait, speed=speed, **more)  # type: ignore[arg-type]


def site(name: str, measures: SiteMeasures = UNKNOWN, **fields: object) -> SiteCandidate:
    values = {"slots": 1, "room": 10, "allowance": 10, "probes": 2, **fields}
    return SiteCandidate(site=name, measures=measures, **values)  # type: ignore[arg-type]


def work(places: float = 100.0, **fields: object) -> Work:
    return Work(tasks=places, places=places, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("minutes", "factor"), [(0.0, 1.0), (0.5, 1.0), (1.0, 1.0), (10.0, 0.8), (1e5, 0.0), (1e9, 0.0)]
)
def test_the_factor_of_a_wait(minutes: float, factor: float) -> None:
    assert algorithms.wait_factor(RULES, 60 * minutes) == pytest.approx(factor)


def test_base_and_divisor_can_be_chosen() -> None:
    rules = BrokerRules(log_base=2.0, log_divisor=10.0)
    assert algorithms.wait_factor(rules, 60 * 8.0) == pytest.approx(0.7)


def test_measured_is_parallelism_times_speed_times_the_factor() -> None:
    candidates = [
        site("lake", measured(600.0, 1.5), slots=4, allowance=10),
        site("wood", measured(600.0, 1.5, total_cores=8), slots=4, allowance=10),
    ]
    found = algorithms.by_measures(RULES, work(), candidates)
    assert found["lake"].weight == pytest.approx(40 * 1.5 * 0.8)
    assert found["wood"].weight == pytest.approx(8 * 1.5 * 0.8), "it has no more cores"
    assert dict(found["lake"].made_of)["f"] == pytest.approx(0.8)


def test_where_the_wait_is_endless_only_what_others_have_no_room_for_goes() -> None:
    candidates = [site("lake", measured(60.0 * 1e6)), site("wood", measured(0.0))]
    found = algorithms.by_measures(RULES, work(), candidates)
    assert found["lake"].tier > found["wood"].tier
    assert found["lake"].weight > 0


def test_an_unknown_site_gets_probes_before_others() -> None:
    found = algorithms.by_measures(
        RULES, work(), [site("lake", probes=2), site("wood", measured(0))]
    )
    assert found["lake"].tier < found["wood"].tier
    assert (found["lake"].most, found["wood"].most) == (2, None)


def test_work_for_one_pilot_goes_to_a_site_that_is_known() -> None:
    found = algorithms.by_measures(RULES, work(1), [site("lake"), site("wood", measured(0))])
    assert found["lake"].tier > found["wood"].tier
    only = algorithms.by_measures(RULES, work(1), [site("lake")])
    assert only["lake"].weight > 0


def test_probes_that_are_stuck_count_with_the_time_that_they_have_waited() -> None:
    stuck = SiteMeasures(jobs=2, waiting=2, wait_median=6000.0, wait_at_least=True)
    found = algorithms.by_measures(RULES, work(), [site("lake", stuck, probes=0)])
    assert found["lake"].weight == pytest.approx(10 * 0.6)
    assert found["lake"].most == 0
    assert "none of the 2" in found["lake"].reason


def test_weight_zero_of_the_configuration_excludes_a_site_from_every_algorithm() -> None:
    candidates = [site("lake", measured(0.0), weight=0.0), site("wood", measured(0.0))]
    for name, algorithm in algorithms.ALGORITHMS.items():
        found = algorithm(RULES, work(), candidates)
        assert (found["lake"].weight, found["wood"].weight > 0) == (0.0, True), name


def test_static_weights_are_those_of_the_configuration() -> None:
    found = algorithms.by_static_weight(RULES, work(), [site("lake", weight=3.0), site("wood")])
    assert (found["lake"].weight, found["wood"].weight) == (3.0, 1.0)


def test_the_sites_with_the_shortest_wait_come_first() -> None:
    rules = BrokerRules(nearest=1)
    candidates = [
        site("lake", measured(600.0)),
        site("wood", measured(60.0, start_overhead=30.0)),
        site("hill", measured(100.0)),
    ]
    found = algorithms.by_wait(rules, work(), candidates)
    assert [name for name, worth in found.items() if worth.tier == 0] == ["wood"]


# -- price ---------------------------------------------------------------------------------------


def dear_and_cheap() -> list[SiteCandidate]:
    return [site("cheap", measured(0.0), price=1.0), site("dear", measured(0.0), price=5.0)]


def used(work: Work, candidates: list[SiteCandidate]) -> list[str]:
    found = algorithms.by_price(RULES, work, candidates)
    return [name for name, worth in found.items() if worth.weight > 0]


def test_without_a_time_the_cheapest_is_enough() -> None:
    assert used(work(100, seconds=60.0), dear_and_cheap()) == ["cheap"]


@pytest.mark.parametrize(("left", "names"), [(1000.0, ["cheap"]), (500.0, ["cheap", "dear"])])
def test_as_many_of_the_cheapest_as_are_done_in_time(left: float, names: list[str]) -> None:
    """100 tasks of a minute: a site of ten pilots does them in ten minutes."""
    assert used(work(100, seconds=60.0, seconds_left=left), dear_and_cheap()) == names


def test_a_site_whose_wait_is_too_long_is_not_enough() -> None:
    candidates = [site("cheap", measured(900.0), price=1.0), site("dear", measured(0.0), price=5.0)]
    assert used(work(100, seconds=60.0, seconds_left=1000.0), candidates) == ["cheap", "dear"]


def test_if_all_together_are_too_slow_all_are_used() -> None:
    assert used(work(1000, seconds=60.0, seconds_left=61.0), dear_and_cheap()) == ["cheap", "dear"]
