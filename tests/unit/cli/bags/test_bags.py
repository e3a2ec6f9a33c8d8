"""The commands that look, against a source of known answers."""

import json
import time

import pytest
from msgspec.structs import replace

from covey.cli.shared.failure import explain
from covey.core.errors import NotFound
from covey.core.record.input_files import InputSummary, InputVersionView
from covey.frontend import bag_places
from covey.wire import ClassView, Estimate, HostView, PilotView, Straggler
from tests.unit.cli.builders import bag
from tests.unit.cli.source import FakeSource, Look


def test_bags(look: Look) -> None:
    head, line = look("bags").stdout.splitlines()
    assert head.split()[:4] == ["bag", "name", "status", "tasks"]
    assert line.split()[:6] == ["3", "fits", "running", "10", "4", "2"]
    assert line.endswith("echo {x}")
    assert json.loads(look("bags", "--json").stdout)[0]["id"] == 3


def test_no_bags_yet(look: Look, monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(config: object) -> bag_places.BagSource:
        raise NotFound("")

    monkeypatch.setattr(bag_places, "reader", nothing)
    told = look("bags", "--dir", "/none/there").stderr
    assert told == "covey: no bags here yet (/none/there); start with: covey run -- COMMAND\n"
    assert json.loads(look("bags", "--json").stdout) == []


def test_show(look: Look) -> None:
    shown = dict(line.split("  ", 1) for line in look("show").stdout.splitlines())
    assert {name: text.strip() for name, text in shown.items()}["waiting"] == "4"
    assert json.loads(look("show", "latest", "--json").stdout)["name"] == "fits"


def facts(look: Look) -> dict[str, str]:
    lines = (line.split("  ", 1) for line in look("show").stdout.splitlines())
    return {name: text.strip() for name, text in lines}


def test_show_says_what_tasks_need_and_took(look: Look, source: FakeSource) -> None:
    one = ClassView(cores=1, memory_mb=0, disk_mb=0, gpus=0, limit_seconds=0.0)
    source.view = bag(classes=[one])
    assert (facts(look)["each task"], facts(look)["retries"]) == ("1 core", "0")
    large = ClassView(
        cores=4, memory_mb=2048, disk_mb=10, gpus=1, limit_seconds=3600.0, ended=7,
        mean_seconds=90.0,
    )  # fmt: skip
    source.view = bag(classes=[one, large], retries=1, overtimes=3, grow_time=3.0)
    shown = facts(look)
    told = "1; over its time limit a task gets x3 the time, up to 3 times"
    assert shown["retries"] == told
    assert shown["class 0"] == "1 core"
    assert shown["class 1"] == (
        "4 cores, 2.0 GB memory, 10.0 MB disk, 1 GPU, at most 1 h 00 m; 7 took 1 m 30 s on average"
    )
    source.view = bag(classes=[replace(one, mean_seconds=90.0)])
    assert facts(look)["each task"] == "1 core; the latest took 1 m 30 s on average"


def test_many_classes_are_shown_as_a_range(look: Look, source: FakeSource) -> None:
    source.view = bag(
        classes=[
            ClassView(cores=1 + k % 2, memory_mb=512 * k, disk_mb=0, gpus=0, limit_seconds=60.0 * k)
            for k in range(1, 20)
        ]
    )
    told = "each task   1 to 2 cores, 512.0 MB to 9.5 GB memory, at most 1 m 00 s to 19 m 00 s"
    assert f"{told} (19 combinations)" in look("show").stdout


def test_show_says_what_the_owner_said_and_what_comes(look: Look, source: FakeSource) -> None:
    source.view = bag(
        labels={"project": "ising"}, notes="first\nsecond", outputs=["*.npy"], open=True,
        result_names=["energy"], estimate=Estimate(likely=300.0, low=240.0, high=360.0),
        stragglers=[
            Straggler(task=7, values=[0.5], host="node3", seconds=720.0, typical_seconds=40.0)
        ],
    )  # fmt: skip
    shown = facts(look)
    assert shown["labels"] == "project=ising"
    assert shown["notes"] == "second", "a line each"
    assert shown["files"] == "*.npy (get them: covey pull 3)"
    assert shown["values"] == "energy"
    assert shown["tasks"] == "10, and more may be appended"
    assert shown["left"] == "4–6 min, probably 5 m 00 s"
    assert shown["late"] == "task 7 (x=0.5) on node3 runs for 12 m 00 s, others took 40 s"


@pytest.mark.parametrize("command", ["show", "bags", "watch"])
def test_a_paused_bag_is_loud(look: Look, source: FakeSource, command: str) -> None:
    source.view = bag(status="paused", reason="30 failed in a row on 4 hosts", failed=2)
    ran = look(command, status=int(command == "watch"))
    assert "PAUSED" in ran.stdout
    assert ran.stderr.splitlines()[-2:] == [
        "covey: bag 3 is PAUSED: 30 failed in a row on 4 hosts",
        "covey: look: covey failures 3   go on: covey resume 3   give up: covey cancel 3",
    ]


@pytest.mark.parametrize("reference", ["9", "fitz"])
def test_a_bag_that_is_not_there(look: Look, reference: str) -> None:
    ran = look("show", reference, status=1)
    assert isinstance(ran.exception, NotFound)
    assert f"there is no bag {reference}" in str(ran.exception).replace("'", "")
    assert explain(ran.exception, verbose=False) == 1


def test_tasks(look: Look) -> None:
    lines = [line.split() for line in look("tasks").stdout.splitlines()]
    assert lines[0][:3] == ["task", "x", "state"]
    assert [words[0] for words in lines[1:]] == [str(number) for number in range(10)]
    assert lines[3][2:5] == ["failed", "exit", "1"]
    assert lines[7] == ["6", "waiting"]


@pytest.mark.parametrize(
    ("state", "numbers"), [("done", [0, 1, 3, 5]), ("failed", [2, 4]), ("waiting", [6, 7, 8, 9])]
)
def test_tasks_by_state(look: Look, state: str, numbers: list[int]) -> None:
    found = json.loads(look("tasks", "3", "--state", state, "--json").stdout)
    assert [line["task"] for line in found] == numbers
    assert {line["state"] for line in found} == {state}


def test_tasks_say_that_there_are_more(look: Look) -> None:
    assert "there are more" in look("tasks", "--limit", "3").stderr
    assert "there are more" not in look("tasks", "--limit", "10").stderr
    assert look("tasks", "--state", "running").stderr == "covey: bag 3 has no running tasks\n"


def pilot(number: int, status: str) -> PilotView:
    return PilotView(
        id=number, host="node1", site="local", job="1", slots=4, status=status, running=2,
        tags={"OS": "Linux 5", "me:lib": "2.1", "gpus": "", "cores": "4"}, version="1",
        enrolled=1.0, heard=2.0, memory_mb=2048, gpus=1,
        reason="asked to end" if status == "left" else "",
    )  # fmt: skip


def test_pilots(look: Look, source: FakeSource) -> None:
    assert "no pilots now" in look("pilots").stderr
    source.there = [pilot(2, "active"), pilot(1, "left")]
    head, line = look("pilots").stdout.splitlines()
    assert head.split() == [
        "pilot", "host", "status", "site", "owner", "slots", "running", "memory", "gpus", "since",
        "heard", "tags",
    ]  # fmt: skip
    assert line.split()[:7] == ["2", "node1", "active", "local", "anybody", "4", "2"]
    assert line.split()[7:10] == ["2.0", "GB", "1"]
    assert line.endswith("  me:lib=2.1 cores=4"), "the tags that are asked most"
    assert len(json.loads(look("pilots", "--all", "--json").stdout)) == 2
    assert "asked to end" in look("pilots", "--all").stdout.splitlines()[-1]
    assert "no pilots match" in look("pilots", "--where", "host=node2").stderr


def host(name: str, **facts: object) -> HostView:
    known = {
        "host": name, "site": "local", "slots": 4, "pilots": 1, "running": 3, "first": 1.0,
        "heard": 2.0, "done": 1000, "failed": 7, "tags": {"OS": "Linux 5", "cores": "4"},
    }  # fmt: skip
    return HostView(**{**known, **facts})  # type: ignore[arg-type]


def test_hosts(look: Look, source: FakeSource) -> None:
    assert "no hosts yet" in look("hosts").stderr
    banned = {"ann": time.time() + 600.5}
    source.known = [host("node1", error_rate=0.07, banned=banned), host("node2", tags={})]
    head, first, _ = look("hosts").stdout.splitlines()
    assert head.split() == [
        "host", "site", "slots", "pilots", "running", "done", "failed", "errors", "heard",
        "banned", "tags",
    ]  # fmt: skip
    assert first.split()[:8] == ["node1", "local", "4", "1", "3", "1,000", "7", "7%"]
    assert "  ann 10 m" in first
    assert first.endswith("  cores=4")


def test_all_tags_of_hosts(look: Look, source: FakeSource) -> None:
    source.known = [host("node1"), host("node2", tags={})]
    lines = look("hosts", "--tags").stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["host", "node1", "OS", "cores", "node2"]
    assert lines[2] == "    OS     Linux 5"


@pytest.mark.parametrize(
    ("test", "found"),
    [
        ("OS=Linux*", ["node1"]),
        ("host=node?", ["node1", "node2"]),
        ("OS=Linux", []),
        ("GPU=", ["node1", "node2"]),
    ],
)
def test_hosts_by_tag(look: Look, source: FakeSource, test: str, found: list[str]) -> None:
    source.known = [host("node1"), host("node2", tags={})]
    shown = json.loads(look("hosts", "--json", "--where", test).stdout)
    assert [one["host"] for one in shown] == found


def test_a_test_that_is_none(look: Look, source: FakeSource) -> None:
    assert "NAME=VALUE" in look("hosts", "--where", "Linux", status=2).stderr


def test_no_two_columns_of_tasks_are_called_the_same(look: Look, source: FakeSource) -> None:
    source.view = bag(names=["host"], done=6)
    assert look("tasks").stdout.split("\n")[0].split() == [
        "task", "host", "state", "ended", "time", "covey_host",
    ]  # fmt: skip


def test_versions_of_the_inputs_are_shown(look: Look, source: FakeSource) -> None:
    assert "inputs" not in look("tasks").stdout + look("show").stdout
    version = InputVersionView(version=2, at=1000.0, files=7, names=[".covey-script", "data/x"])
    summary = InputSummary(host="laptop", paths=["/a/fit.py"], count=3, versions=[version])
    source.view = bag(name="fits", done=4, failed=2, inputs=summary)
    source.rows[1].inputs_version = 2
    shown = look("show").stdout
    assert "/a/fit.py and 2 more (on laptop)" in shown
    assert "the script, data/x and 5 more" in shown
    lines = look("tasks").stdout.splitlines()
    assert [line.split()[-1] for line in lines[:4]] == ["inputs", "1", "2", "1"]
    assert lines[2].endswith("version 2")
    found = json.loads(look("tasks", "--json").stdout)
    assert [one["inputs_version"] for one in found[:3]] == [1, 2, 1]
