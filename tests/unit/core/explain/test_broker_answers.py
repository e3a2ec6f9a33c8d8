"""Why a site got so many pilots and another one none, in words."""

from typing import Any

from covey.core.broker.worth import Worth
from covey.core.explain import broker_answers
from covey.core.explain.answers import BrokerAnswer
from covey.core.record.broker_rules import BrokerRules, GivenWeights, WeightService
from covey.core.record.model import BagId, SiteSpec
from covey.questions.site_questions import WeightsOfSites
from tests.unit.core.placing import Grounds, site
from tests.unit.core.table import spec


def grounds(*sites: SiteSpec, **rules: Any) -> Grounds:
    return Grounds(*sites, broker=BrokerRules(**rules))


def answer(place: Grounds, bag: int) -> BrokerAnswer:
    state = place.scheduler.state
    found = broker_answers.of_bag(state, place.now, state.bags[BagId(bag)])
    assert found is not None
    return found


def texts(found: BrokerAnswer) -> dict[str, str]:
    return {share.site: share.text for share in found.sites}


def test_nothing_was_split_yet() -> None:
    place = grounds()
    bag = place.submit(spec(4))
    state = place.scheduler.state
    assert broker_answers.of_bag(state, place.now, state.bags[BagId(bag)]) is None


def test_weights_and_what_they_were_made_of() -> None:
    place = grounds(
        site("lake", weight=3.0), site("wood"), site("hill", weight=0.0), algorithm="static"
    )
    bag = place.submit(spec(40))
    place.now += 300.0
    found = answer(place, bag)
    assert found.text == "40 pilots for 40 tasks without one, 5 min ago, by static"
    assert [(share.site, share.pilots) for share in found.sites] == [
        ("lake", 30),
        ("wood", 10),
        ("hill", 0),
    ]
    assert texts(found) == {
        "lake": "weight 3 of 4 (weight = 3 in the configuration)",
        "wood": "weight 1 of 4 (weight = 1 in the configuration)",
        "hill": "no pilots: its weight is 0 in the configuration",
    }


def test_measured_weights_say_when_they_were_measured() -> None:
    place = grounds(site("lake", running=10), site("wood"), algorithm="measured")
    first = place.submit(spec(4))
    words = texts(answer(place, first))["wood"]
    assert "no pilot has started there yet: 2 may be started to try it" in words
    for job in place.jobs:
        place.begin(job, 0)
    place.now += 60.0
    second = place.submit(spec(20))
    found = answer(place, second)
    words = texts(found)["lake"]
    assert "(10 slots × speed 1 × f = 1, for a wait of 0 s); measured 60 s ago" in words


def test_a_site_that_is_not_drawn_says_so() -> None:
    place = grounds(site("lake", weight=1e9), site("wood", weight=1e-9), algorithm="random")
    found = answer(place, place.submit(spec(3)))
    assert "by random: a site is drawn for each pilot, by weight" in found.text
    assert texts(found)["wood"].startswith("no pilots: it was not drawn; weight 1e-09 of 1e+09")


def test_a_site_of_a_later_tier_waits_for_the_others_to_be_full() -> None:
    place = grounds(site("lake"), site("wood"), algorithm="least-loaded", nearest=1)
    for job in place.jobs:
        place.begin(job)
    found = answer(place, place.submit(spec(1)))
    assert "one site has a shorter wait; no pilot has started there yet" in texts(found)["wood"]


def test_weights_of_a_service_have_a_source_and_an_age() -> None:
    place = grounds(site("lake"), site("wood"), services=(WeightService(name="karnak"),))
    given = GivenWeights(weights={"lake": 2.0}, at=place.now - 120.0, source="its URL")
    place.scheduler.state.broker.given["karnak"] = given
    found = answer(place, place.submit(spec(3, broker="karnak")))
    assert found.text.endswith("by karnak: weights of its URL, given 2 min ago")
    assert texts(found) == {
        "lake": "weight 2 of 2 (2 given by the service)",
        "wood": "no pilots: the broker does not name it",
    }
    place.scheduler.state.broker.given.clear()
    later = answer(place, place.submit(spec(3, broker="karnak")))
    assert later.text.endswith("by measured instead of karnak: it has given no weights yet")


def test_a_site_tells_of_the_bags_of_one_owner() -> None:
    place = grounds(site("lake"))
    place.submit(spec(2, owner="ann"))
    place.submit(spec(3, owner="bob"))
    state = place.scheduler.state
    shares = broker_answers.of_site(state, place.now, "lake", None)
    assert [(one.bag, one.share.pilots) for one in shares] == [(1, 2), (2, 3)]
    assert [one.bag for one in broker_answers.of_site(state, place.now, "lake", "bob")] == [2]


def test_a_bag_that_has_asked_for_no_pilot_tells_its_broker() -> None:
    place = grounds()
    bag = place.submit(spec(4, broker="static"))
    assert answer(place, bag).text == "static; it has not been asked for pilots of this bag yet"


def test_a_full_site_says_so_after_its_weight() -> None:
    place = grounds(site("lake", running=1), site("wood"), algorithm="static")
    words = texts(answer(place, place.submit(spec(9))))["lake"]
    assert (
        words == "weight 1 of 2 (weight = 1 in the configuration); it has room for no more than 1"
    )


def test_a_price_is_no_factor() -> None:
    place = grounds(site("lake", price=0.5, running=1))
    state = place.scheduler.state
    [lake] = broker_answers.table(state, place.now, "price").sites
    assert lake.text == "no pilot has started there yet: 1 may be started to try it"
    worth = Worth(1.0, made_of=(("price", 0.5), ("room", 1), ("slots", 2)))
    assert broker_answers._made_of(worth) == "room for 1 pilot × 2 slots, at a price of 0.5"


def test_a_site_that_cannot_be_used_says_so_in_the_table() -> None:
    place = grounds(site("lake"), site("wood"))
    state = place.scheduler.state
    state.sites["lake"].unanswered = "no route"
    found = WeightsOfSites("static", None).answer(state, place.now)
    assert isinstance(found, BrokerAnswer)
    words = {one.site: one.text for one in found.sites}
    assert words["lake"] == "it does not answer: no route"
    assert words["wood"] == "weight = 1 in the configuration"


def test_the_table_of_weights() -> None:
    place = grounds(site("lake", weight=2.0), site("wood"))
    state = place.scheduler.state
    found = broker_answers.table(state, place.now, "static")
    assert {one.site: one.weight for one in found.sites} == {"lake": 2.0, "wood": 1.0}
    assert found.text == "static"
