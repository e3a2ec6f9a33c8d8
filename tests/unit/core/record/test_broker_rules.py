"""What a bag may name as its broker."""

from covey.core.record.broker_rules import ALGORITHMS, BrokerRules, WeightService


def test_names_are_algorithms_services_and_plugins() -> None:
    rules = BrokerRules(services=(WeightService(name="karnak"),), plugins={"mine": object()})
    assert rules.names() == (*ALGORITHMS, "karnak", "mine")
