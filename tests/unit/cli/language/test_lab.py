"""`covey lab`: list, show, run."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from covey.cli.main import covey
from covey.core.errors import BadConfig

TINY = """
title = "Tiny"
seeds = 2
[[sites]]
name = "a"
pilots = 4
[[bags]]
name = "x"
tasks = 8
time = "1m"
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.toml").write_text(TINY)
    return tmp_path


def ran(*words: str, status: int = 0) -> Result:
    found = CliRunner().invoke(covey, ("lab", *words))
    assert found.exit_code == status, (found.output, found.exception)
    return found


def test_list_and_show(here: Path) -> None:
    assert "gridbot-fig9 " in ran("list").output
    names = [one["name"] for one in json.loads(ran("list", "--json").output)]
    assert names == [
        "first",
        "gridbot-fig8",
        "gridbot-fig9",
        "gridbot-fig9-connected",
        "gwpilot-table6-long",
        "gwpilot-table6-short",
    ]
    assert ran("show", "first").output.startswith("title = ")
    assert "there is no world 'last'" in ran("show", "last", status=2).output


def test_run_prints_a_table(here: Path) -> None:
    lines = ran("run", "tiny.toml").output.splitlines()
    assert lines[0] == "Tiny"
    assert lines[1].split()[:2] == ["turnaround", "(min)"]
    assert lines[2].split()[:2] == ["x", "2.01"]


def test_run_for_programs_and_into_a_directory(here: Path) -> None:
    told = json.loads(ran("run", "tiny.toml", "--seeds", "3", "--json", "--out", "out/lab").output)
    assert told["seeds"] == 3
    assert [one["seed"] for one in told["rows"][0]["runs"]] == [1, 2, 3]
    assert json.loads((here / "out/lab/tiny.json").read_text()) == told
    assert (here / "out/lab/tiny.md").read_text().startswith("# Tiny\n")
    assert (here / "out/lab/tiny.svg").read_text().startswith("<svg ")


def test_a_bag_that_does_not_finish_is_a_failure(here: Path) -> None:
    hopeless = TINY.replace("seeds = 2", 'seeds = 1\nlimit = "10m"')
    (here / "tiny.toml").write_text(hopeless + 'policy = { requirements = "false" }\n')
    assert "not over within the limit" in ran("run", "tiny.toml", status=1).output


def test_mistakes(here: Path) -> None:
    (here / "tiny.toml").write_text(TINY + "tame = 3\n")
    found = CliRunner().invoke(covey, ("lab", "run", "tiny.toml"))
    assert isinstance(found.exception, BadConfig)
    words = "tiny.toml: there is no key 'tame' in bags[0]; did you mean 'time'?"
    assert str(found.exception) == words
