"""[broker] and [broker.services.NAME] in covey.toml."""

from pathlib import Path

import pytest

from covey.config import load
from covey.config_broker import services
from covey.core.errors import BadConfig
from covey.core.record.broker_rules import BrokerRules, WeightService

TOML = """
[broker]
algorithm = "karnak"
nearest = 2

[broker.services.karnak]
url = "https://karnak.example.org/weights"
every = "2m"
timeout = 3
age = "1h"
fallback = "static"

[broker.services.mine]
"""
KARNAK = WeightService(
    name="karnak",
    url="https://karnak.example.org/weights",
    every_seconds=120.0,
    timeout_seconds=3.0,
    most_age_seconds=3600.0,
    fallback="static",
)


def test_the_broker_is_read(tmp_path: Path) -> None:
    (tmp_path / "covey.toml").write_text(TOML)
    config = load({}, {}, tmp_path).config
    rules = config.broker.rules({}, config.services)
    expected = BrokerRules(
        algorithm="karnak", nearest=2, services=(KARNAK, WeightService(name="mine"))
    )
    assert rules == expected


def test_the_defaults_are_those_of_core(tmp_path: Path) -> None:
    assert load({}, {}, tmp_path).config.broker.rules({}) == BrokerRules()


@pytest.mark.parametrize(
    ("name", "table", "words"),
    [
        ("random", {}, "is no algorithm's"),
        ("a b", {}, "a service's name has letters"),
        ("karnak", {"uri": "x"}, "uri"),
        ("karnak", {"url": "ftp://x"}, "must begin with http:// or https://"),
        ("karnak", {"every": "often"}, "often"),
        ("karnak", {"timeout": 0}, "longer than 0"),
        ("karnak", {"fallback": "karnak"}, "there are room, static, measured, least-loaded, price"),
        ("karnak", 7, "Expected `object`"),
    ],
)
def test_what_is_wrong_is_refused(name: str, table: object, words: str) -> None:
    with pytest.raises(BadConfig, match=r"covey\.toml") as refused:
        services({name: table}, "covey.toml")
    assert words in str(refused.value)


def test_services_have_names() -> None:
    with pytest.raises(BadConfig, match="services have names"):
        services(7, "covey.toml")
