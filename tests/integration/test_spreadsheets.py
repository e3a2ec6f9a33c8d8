"""A CSV file of results does not make a spreadsheet run what a task wrote; numbers stay numbers."""

import csv
import io
import json
from collections.abc import Iterator
from typing import Any

import pytest

from covey.core.record.model import BagSpec
from covey.core.values.space import Axis, Values
from tests.faults.world import World, open_world

REPORTS: list[dict[str, Any]] = [
    {"x": "=1+1", "n": -1.5},
    {"x": "+cmd|' /C calc'!A0", "n": -2},
    {"x": "-1+1", "n": 1e-7},
    {"x": "@SUM(A1)", "n": 0},
    {"x": "\t=1", "n": -1e-300},
    {"x": "\r=1", "n": "-12.5e3"},
    {"x": "harmless = 1", "n": "+7"},
    {"x": "-", "n": "-.5"},
]
SAFE = ["'=1+1", "'+cmd|' /C calc'!A0", "'-1+1", "'@SUM(A1)", "'\t=1", "'\r=1"]
SAFE += ["harmless = 1", "'-"]
NUMBERS = ["-1.5", "-2", "1e-07", "0", "-1e-300", "-12.5e3", "+7", "-.5"]


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with open_world() as found:
        found.serve("--slots", "2")
        yield found


@pytest.fixture(scope="module")
def bag(world: World) -> int:
    """Each task reports what its parameter says, under a name that is a formula, too."""
    texts = Values(tuple(json.dumps({**one, "=evil": 1}) for one in REPORTS))
    client = world.client()
    spec = BagSpec(argv=("printf", "%s\n", "{report}"), space=Axis("report", texts), name="x")
    made = client.submit(spec).bag
    client.close()
    view = world.wait_over(made)
    assert view.done == len(REPORTS)
    return made


def table(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline="")))


@pytest.mark.parametrize("more", [[], ["--columns", "x,n,=evil"], ["--follow"]], ids=str)
def test_formulas_are_text_and_numbers_are_numbers(world: World, bag: int, more: list[str]) -> None:
    ran = world.covey("results", str(bag), "--format", "csv", "-o", "out.csv", *more)
    assert ran.returncode == 0, ran.stderr
    found = table((world.root / "out.csv").read_bytes().decode())
    found.sort(key=lambda row: SAFE.index(row["x"]))
    assert [row["x"] for row in found] == SAFE
    assert [float(row["n"]) for row in found] == list(map(float, NUMBERS))
    assert "'=evil" in found[0]


def test_it_can_be_turned_off(world: World, bag: int) -> None:
    for more in ([], ["--columns", "task,x,n,=evil"]):
        options = ["--format", "csv", "--raw", "-o", "raw.csv", *more]
        ran = world.covey("results", str(bag), *options)
        assert ran.returncode == 0, ran.stderr
        found = table((world.root / "raw.csv").read_bytes().decode())
        assert [row["x"] for row in found] == [one["x"] for one in REPORTS]
        assert "=evil" in found[0]
    assert "--raw is for CSV" in world.covey("results", str(bag), "--raw").stderr


def test_plain_http_is_for_this_machine_only(world: World) -> None:
    ran = world.covey("serve", "--dir", "other", "--public", "http://covey.example.org")
    assert ran.returncode == 2
    assert "http is allowed on this machine only, because secrets are sent: use https" in ran.stderr
