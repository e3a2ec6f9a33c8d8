"""[broker] and [broker.services.NAME] in covey.toml."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from covey.cli.main import covey
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
        ("karnak", {"uri": "x"}, "unknown key 'uri'; did you mean 'url'?"),
        ("karnak", {"url": "ftp://x"}, "must begin with http:// or https://"),
        ("karnak", {"every": "often"}, "every: expected a time"),
        ("karnak", {"timeout": 0}, "timeout must be longer than 0"),
        ("karnak", {"fallback": "karnak"}, "there are room, static, measured, least-loaded, price"),
        ("karnak", 7, "this must be a table"),
    ],
)
def test_what_is_wrong_is_refused(name: str, table: object, words: str) -> None:
    with pytest.raises(BadConfig, match=r"covey\.toml") as refused:
        services({name: table}, "covey.toml")
    assert words in str(refused.value)


def test_services_have_names() -> None:
    with pytest.raises(BadConfig, match="services have names"):
        services(7, "covey.toml")


def test_services_are_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "covey.toml").write_text(TOML)
    monkeypatch.chdir(tmp_path)
    shown = json.loads(CliRunner().invoke(covey, ["config", "show", "--json"]).stdout)
    every = shown["broker.services.karnak.every"]
    assert (every["value"], every["origin"]) == ("120s", str(tmp_path / "covey.toml"))
    assert shown["broker.services.mine.fallback"]["value"] == "measured"
