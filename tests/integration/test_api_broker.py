"""The broker over HTTP: weights of sites now and before, and weights that services give."""

from collections.abc import Iterator

import pytest

from covey.core.errors import NotFound, Refused
from covey.core.record.broker_rules import BrokerRules, WeightService
from covey.core.record.events import Ticked
from covey.core.record.model import BagSpec, Role, SiteSpec
from covey.core.values.space import Axis, Range
from tests.integration.api_harness import API, Place

SITES = (
    SiteSpec(name="lake", driver="slurm", weight=3.0),
    SiteSpec(name="wood", driver="slurm", users=("ann",)),
)
WEIGHTS = "/broker/services/karnak/weights"


@pytest.fixture
def place() -> Iterator[Place]:
    made = Place()
    made.sites = SITES
    made.broker = BrokerRules(algorithm="static", services=(WeightService(name="karnak"),))
    made.start()
    try:
        yield made
    finally:
        made.stop()


def test_weights_now_and_before(place: Place) -> None:
    client = place.client()
    answer = client.site_weights()
    assert {one.site: one.weight for one in answer.sites} == {"lake": 3.0, "wood": 1.0}
    assert client.site_weights("measured").algorithm == "measured"
    with pytest.raises(NotFound, match="there is no broker 'nobody'; there are room, static"):
        client.site_weights("nobody")
    place.do(lambda: place._handle(Ticked()))
    assert [then.weights for then in client.past_weights()] == [{"lake": 3.0, "wood": 1.0}]


def test_only_sites_that_the_caller_may_use_are_seen(place: Place) -> None:
    place.do(lambda: place._handle(Ticked()))
    place.client().give_weights("karnak", {"lake": 1.0, "wood": 2.0})
    bob = place.client(place.token(Role.USER, "bob"))
    answer = bob.site_weights()
    assert [one.site for one in answer.sites] == ["lake"]
    assert answer.services[0].weights == {"lake": 1.0}
    assert [list(then.weights) for then in bob.past_weights()] == [["lake"]]


def test_sites_that_are_gone_or_unknown_are_shown_to_admins_only(place: Place) -> None:
    client = place.client()
    client.save_site("pond", {"driver": "slurm", "users": ["ann"]})
    place.do(lambda: place._handle(Ticked()))
    client.give_weights("karnak", {"lake": 1.0, "pond": 2.0, "elsewhere": 3.0})
    client.remove_site("pond")
    assert "pond" not in {one.name for one in client.sites()}
    bob = place.client(place.token(Role.USER, "bob"))
    assert "pond" in client.past_weights()[0].weights
    assert list(bob.past_weights()[0].weights) == ["lake"]
    assert list(client.site_weights().services[0].weights) == ["lake", "pond", "elsewhere"]
    assert bob.site_weights().services[0].weights == {"lake": 1.0}


def test_a_service_gives_weights(place: Place) -> None:
    client = place.client()
    assert client.give_weights("karnak", {"lake": 1.0, "wood": 0.0}, "a cron job") == 2
    [service] = client.site_weights("karnak").services
    assert (service.name, service.source, service.problem) == ("karnak", "a cron job", "")
    number = client.submit(
        BagSpec(argv=("true",), space=Axis("i", Range("0", "1", 9)), owner="ann", broker="karnak")
    ).bag
    broker = client.explain(number).answer.broker  # type: ignore[union-attr]
    assert broker is not None
    assert "by karnak: weights of a cron job" in broker.text
    assert {one.site for one in broker.sites if one.pilots} == {"lake"}
    assert "the service gives it no weight" in broker.sites[-1].text
    [share] = client.explain_site("lake").answer.shares
    assert (share.bag, share.algorithm) == (number, "karnak")


def test_what_makes_no_sense_is_refused(place: Place) -> None:
    client = place.client()
    with pytest.raises(NotFound, match="there is no service nobody"):
        client.give_weights("nobody", {"lake": 1.0})
    with pytest.raises(Refused, match="the weight of lake is -1"):
        client.give_weights("karnak", {"lake": -1.0})
    ann = place.token(Role.USER, "ann")
    assert "admin" in place.refuses(403, "PUT", API + WEIGHTS, {"weights": {}}, ann)
