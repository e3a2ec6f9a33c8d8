"""`covey init` and `covey schema`."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from covey.bagfile import example, schema
from covey.cli.main import covey


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def ran(*words: str) -> Result:
    return CliRunner().invoke(covey, words)


def test_init_writes_an_example(here: Path) -> None:
    assert ran("init").exit_code == 0
    assert (here / "bag.toml").read_text() == example("bag.toml")
    told = ran("init", "sweep.toml").output
    assert "covey run sweep.toml" in told
    assert "covey run sweep.toml" in (here / "sweep.toml").read_text()


def test_init_never_overwrites(here: Path) -> None:
    (here / "bag.toml").write_text("mine")
    found = ran("init")
    assert found.exit_code == 2
    assert "bag.toml exists already" in found.output
    assert (here / "bag.toml").read_text() == "mine"


@pytest.mark.parametrize("name", ["x.txt", "no/such/x.toml", "covey.toml"])
def test_init_refuses_other_places(here: Path, name: str) -> None:
    assert ran("init", name).exit_code == 2


def test_json(here: Path) -> None:
    assert json.loads(ran("init", "--json").output) == {"file": str(here / "bag.toml")}
    assert json.loads(ran("schema").output) == schema()
    assert ran("schema", "--json").output == ran("schema").output
