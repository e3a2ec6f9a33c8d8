"""Resources that parameters of tasks say, with a real server and real pilots."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import covey
from covey.core.record.model import BagSpec, Need
from covey.core.values.space import Axis, Values
from tests.integration.python_place import Place, working_in

TOLD = ["sh", "-c", 'echo "{\\"mb\\": $COVEY_MEMORY_MB, \\"cores\\": $COVEY_CORES}"']


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    yield from working_in(tmp_path, monkeypatch)


def rows_of(place: Place, bag: str = "latest") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(place.covey("results", bag, "--json"))
    return sorted(found, key=lambda row: row["task"])


def test_each_row_has_its_own(place: Place) -> None:
    lines = [f"c{k},{1 + k % 2},{100 + k % 3}MB,{30 + k % 4}" for k in range(24)]
    table = place.here / "cases.csv"
    table.write_text("\n".join(["case,ncores,mem,walltime", *lines, ""]))
    asked = ("--cores", "{ncores}", "--memory", "{mem}", "--time", "{walltime}", "--slots", "2")
    place.covey("run", "--rows", "cases.csv", *asked, "--", *TOLD)
    found = [(row["mb"], row["cores"]) for row in rows_of(place)]
    assert found == [(100 + k % 3, 1 + k % 2) for k in range(24)]
    shown = json.loads(place.covey("show", "--json"))
    assert len(shown["classes"]) == 12
    assert "class 11" in place.covey("show")
    lines[16] = "x,1,2 GX,30"
    table.write_text("\n".join(["case,ncores,mem,walltime", *lines, ""]))
    with pytest.raises(subprocess.CalledProcessError) as caught:
        place.covey("run", "--rows", "cases.csv", *asked, "--", *TOLD)
    assert caught.value.returncode == 2


def test_appended_tasks_are_told_what_they_have(place: Place) -> None:
    bag = covey.submit(
        TOLD, parameters={"m": [100, 200]}, resources={"memory": "{m} MB"}, open=True
    )
    bag.append(parameters={"m": [300, 100]})
    (place.here / "more.csv").write_text("m\n400\n")
    place.covey("append", "latest", "--rows", "more.csv")
    with pytest.raises(covey.InvalidBag, match="row 2: memory: expected a size"):
        bag.append(rows=_file(place, "m\n400\nmany\n"))
    bag.close()
    bag.wait(60)
    assert bag.results(sort="task").column("mb") == [100, 200, 300, 100, 400]
    assert len(json.loads(place.covey("show", "--json"))["classes"]) == 4


def _file(place: Place, text: str) -> str:
    (place.here / "bad.csv").write_text(text)
    return "bad.csv"


def test_long_tasks_go_first_and_a_retry_has_more_than_the_tasks_own(place: Place) -> None:
    """The last row has the longest time, and too little memory: it runs until that is noticed."""
    hog = (
        "import os, time; x = b'x' * ({mb} << 20)\n"
        "while {mb} > int(os.environ['COVEY_MEMORY_MB']): time.sleep(0.01)\nprint({mb})"
    )
    bag = covey.submit(
        [sys.executable, "-c", hog],
        rows=[{"mb": 1, "mem": "300 MB", "t": 60 + k} for k in range(4)]
        + [{"mb": 220, "mem": "120 MB", "t": 600}],
        resources={"memory": "{mem}", "time": "{t}"},
        retries={"count": 2, "memory": "x3"},
    )
    assert bag.wait(60).progress().done == 5
    told = place.covey("explain", "latest", "4")
    assert "ended  attempt 1.1 on" in told  # the first of all
    assert "over its limit of 120 MB" in told


def test_the_server_reads_what_others_send(place: Place) -> None:
    """A submission without a bag file: the server finds the classes itself, whatever it is told."""
    client = covey.connect().client()
    space = Axis("m", Values(("1 GB", "2 GB", "1024 MB")))
    spec = BagSpec(
        argv=("true",),
        space=space,
        need_from={"memory": "{m}"},
        task_needs=(Need(cores=9000),) * 2000,
    )
    bag = client.submit(spec).bag
    view = client.bag(bag)
    assert view is not None
    assert [one.memory_mb for one in view.classes] == [1024, 2048]
    bad = BagSpec(argv=("true",), space=Axis("m", Values(("x",))), need_from={"memory": "{m}"})
    with pytest.raises(covey.Refused, match="m=x: memory: expected a size"):
        client.submit(bad)
