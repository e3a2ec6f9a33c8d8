"""Bag files with a real server and real pilots: what is written is what happens."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

SWEEP = """
name = "sweep"
command = "python3 fit.py {case} {n}"
rows = "cases.csv"
inputs = ["fit.py", "data/", "cases/{case}.json"]
outputs = ["out-{case}-*.dat"]
setup = "echo prepared > $COVEY_SETUP/p"

[parameters]
m = "1..2"

[environment]
EXTRA = "more"

[validate]
files = ["out-{case}-{n}.dat"]
check = "test $n -lt 3"
"""
FIT = """
import json, os, sys
case, n = sys.argv[1:]
value = json.load(open(f"cases/{case}.json"))
open(f"out-{case}-{n}.dat", "w").write(str(value))
told = {"value": value, "data": open("data/x").read(), "extra": os.environ["EXTRA"]}
told["setup"] = open(os.environ["COVEY_SETUP"] + "/p").read().strip()
print(json.dumps(told))
"""


class Place:
    """A directory in which somebody works."""

    def __init__(self, here: Path) -> None:
        self.here = here
        kept = {name: value for name, value in os.environ.items() if not name.startswith("COVEY_")}
        self.env = {**kept, "HOME": str(here), "XDG_CONFIG_HOME": str(here)}
        self.env["XDG_CACHE_HOME"] = str(here / "cache")

    def covey(self, *words: str, status: int = 0) -> "subprocess.CompletedProcess[str]":
        ran = subprocess.run(
            [sys.executable, "-P", "-m", "covey", *words],
            cwd=self.here, env=self.env, text=True, stdin=subprocess.DEVNULL,
            capture_output=True, timeout=60, check=False,
        )  # fmt: skip
        assert ran.returncode == status, f"{words}\n{ran.stdout}\n{ran.stderr}"
        return ran

    def results(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.covey("results", "--json").stdout)
        return found


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    for name, text in {
        "sweep.toml": SWEEP, "fit.py": FIT, "data/x": "hi", "cases/a.json": "1",
        "cases/b.json": "2", "cases.csv": "case,n\na,1\nb,2\n",
    }.items():  # fmt: skip
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    yield made
    made.covey("stop")


def test_the_example_runs_as_it_is(place: Place) -> None:
    place.covey("init", "first.toml")
    assert "15 tasks done" in place.covey("run", "first.toml").stdout
    assert {row["steps"] for row in place.results()} == {100, 1000, 10000}
    assert all(isinstance(row["place"], int) for row in place.results())


def test_a_sweep_with_files(place: Place) -> None:
    ran = place.covey("run", "sweep.toml")
    assert "uploaded" in ran.stderr
    assert [(row["case"], row["n"], row["m"], row["value"]) for row in place.results()] == [
        ("a", 1, 1, 1),
        ("a", 1, 2, 1),
        ("b", 2, 1, 2),
        ("b", 2, 2, 2),
    ]
    row = place.results()[0]
    assert (row["data"], row["extra"], row["setup"]) == ("hi", "more", "prepared")
    ran = place.covey("run", "sweep.toml", "--check", "test $case = a", status=1)
    assert "uploaded" not in ran.stderr  # everything is there already
    assert "2 tasks done, 2 failed" in ran.stdout
    shown = json.loads(place.covey("run", "sweep.toml", "--dry-run", "--json").stdout)
    assert [file["known"] for file in shown["uploads"]] == [True] * 5


def test_a_missing_file_is_an_output_failure(place: Place) -> None:
    ran = place.covey("run", "--expect-file", "none", "-p", "x=1..2", "true", status=1)
    assert "there is no file none" in ran.stdout + ran.stderr


def test_open_bags(place: Place) -> None:
    place.covey("submit", "--open", "-p", "seed=1..3", "--", "echo", "{seed}")
    place.covey("append", "latest", "-p", "seed=4..5")
    (place.here / "more.csv").write_text("seed\n6\n7\n")
    assert "7 tasks" in place.covey("append", "latest", "--rows", "more.csv").stderr
    assert "seed" in place.covey("append", "latest", "-p", "sed=1", status=2).stderr
    place.covey("close", "latest")
    place.covey("watch", "latest")
    assert [row["seed"] for row in place.results()] == [1, 2, 3, 4, 5, 6, 7]
    place.covey("append", "latest", "-p", "seed=8", status=2)


def test_a_policy_decides(place: Place) -> None:
    (place.here / "first.toml").write_text(
        f"""
command = ["sh", "-c", "echo {{n}} >> {place.here}/order"]
[parameters]
n = "1..6"
[policy]
requirements = "Host.NumCpus >= 1 && Job.n <= 6"
rank = "Job.n"
deadline = "1h"
"""
    )
    place.covey("run", "first.toml", "--slots", "1", "--policy", "frugal")
    assert (place.here / "order").read_text().split() == ["6", "5", "4", "3", "2", "1"]
    told = place.covey("run", "first.toml", "--policy", "rank=Job.n +", status=2).stderr
    assert "--policy rank=Job.n +: line 1, column 8: expected an expression" in told


def test_a_few_tasks_first(place: Place) -> None:
    ran = place.covey("run", "sweep.toml", "--first", "1")
    assert "submitting 1 of 4 tasks" in ran.stderr
    assert [(row["task"], row["case"], row["m"]) for row in place.results()] == [(0, "a", 1)]
    ran = place.covey("submit", "sweep.toml", "--where", "m == 2 && case = b")
    assert "submitting 1 of 4 tasks" in ran.stderr
    place.covey("watch")
    assert [(row["task"], row["case"], row["m"]) for row in place.results()] == [(0, "b", 2)]
    place.covey("run", "sweep.toml", "--where", "m > 2", status=2)
