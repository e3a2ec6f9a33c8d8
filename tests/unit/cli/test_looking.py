"""The commands that look, against a source of known answers."""

import csv
import io
import json
from collections.abc import Callable

import pytest
from click.testing import CliRunner, Result

from covey.cli import places, results
from covey.cli.failure import explain
from covey.cli.main import covey
from covey.core.errors import NotFound
from covey.wire import BagView, Output, PilotView, ResultRow
from tests.unit.cli.builders import bag, row

Look = Callable[..., Result]


class FakeSource:
    """Bag 3 has ten tasks: 0 to 5 are done, but 2 and 4 failed."""

    def __init__(self) -> None:
        self.rows = [
            row(0, output="1.5"),
            row(1, output='say "hi", you'),
            row(2, outcome="failed", exit_code=1, stderr_bytes=9),
            row(3),
            row(4, outcome="failed", exit_code=-1, signal=9),
            row(5),
        ]
        self.view = bag(name="fits", done=4, failed=2)
        self.stderr = "Traceback\nValueError: bad\n"
        self.there: list[PilotView] = []

    def bags(self) -> list[BagView]:
        return [self.view]

    def bag(self, bag: int) -> BagView | None:
        return self.view if bag == self.view.id else None

    def results(
        self,
        bag: int,
        after: int = -1,
        limit: int = 1000,
        *,
        by_row: bool = False,
        failed_only: bool = False,
    ) -> list[ResultRow]:
        chosen = [
            one
            for one in self.rows
            if one.task > after and not (failed_only and one.outcome == "ok")
        ]
        return chosen[:limit]

    def attempts(self, bag: int, task: int) -> list[ResultRow]:
        return [one for one in self.rows if one.task == task]

    def output(self, bag: int, task: int) -> Output | None:
        for one in self.attempts(bag, task):
            err = self.stderr if one.stderr_bytes else ""
            return Output(
                task=task, attempt=one.attempt, outcome=one.outcome, stdout="out\n", stderr=err
            )
        return None

    def pilots(self, limit: int = 1000) -> list[PilotView]:
        return self.there


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> FakeSource:
    made = FakeSource()
    monkeypatch.setattr(places, "reader", lambda config: made)
    return made


@pytest.fixture
def look(source: FakeSource, monkeypatch: pytest.MonkeyPatch) -> Look:
    monkeypatch.setattr(places, "PAGE", 2)
    runner = CliRunner()

    def invoke(*words: str, status: int = 0) -> Result:
        ran = runner.invoke(covey, words)
        assert ran.exit_code == status, ran.output
        return ran

    return invoke


def test_bags(look: Look) -> None:
    head, line = look("bags").stdout.splitlines()
    assert head.split()[:4] == ["bag", "name", "status", "tasks"]
    assert line.split()[:6] == ["3", "fits", "running", "10", "4", "2"]
    assert line.endswith("echo {x}")
    assert json.loads(look("bags", "--json").stdout)[0]["id"] == 3


def test_no_bags_yet(look: Look, monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(config: object) -> places.Source:
        raise NotFound("")

    monkeypatch.setattr(places, "reader", nothing)
    assert look("bags").stderr == "covey: no bags here yet; start with: covey run -- COMMAND\n"
    assert json.loads(look("bags", "--json").stdout) == []


def test_show(look: Look) -> None:
    shown = dict(line.split("  ", 1) for line in look("show").stdout.splitlines())
    assert {name: text.strip() for name, text in shown.items()}["waiting"] == "4"
    assert json.loads(look("show", "latest", "--json").stdout)["name"] == "fits"


@pytest.mark.parametrize("reference", ["9", "fits"])
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


def test_logs_show_failures_first(look: Look) -> None:
    ran = look("logs", "--limit", "3")
    heads = [line for line in ran.stdout.splitlines() if line.startswith("==>")]
    assert heads == [
        "==> task 2 (x=2): exit 1 on node1",
        "==> task 4 (x=4): SIGKILL on node1",
        "==> task 0 (x=0): exit 0 on node1",
    ]
    assert "ValueError: bad" in ran.stdout
    assert "3 more have ended" in ran.stderr


def test_logs_of_one_task(look: Look) -> None:
    assert look("logs", "3", "1", "--stdout").stdout == "out\n"
    assert look("logs", "3", "2", "--stderr").stdout == "Traceback\nValueError: bad\n"
    assert look("logs", "3", "2").stdout.startswith("==> task 2 (x=2): exit 1")
    assert json.loads(look("logs", "latest", "2", "--json").stdout)["stdout"] == "out\n"


@pytest.mark.parametrize(("task", "told"), [("7", "has not ended yet"), ("10", "tasks 0 to 9")])
def test_logs_of_a_task_without_any(look: Look, task: str, told: str) -> None:
    assert told in str(look("logs", "3", task, status=1).exception)


def test_results_table(look: Look) -> None:
    ran = look("results")
    lines = ran.stdout.splitlines()
    assert lines[0].split() == [
        "task", "x", "state", "exit", "time", "cpu", "memory", "host", "output",
    ]  # fmt: skip
    assert len(lines) == 7
    assert "SIGKILL" in lines[5]
    assert "4 of 10 tasks have not ended yet" in ran.stderr


def test_results_csv(look: Look) -> None:
    rows = list(csv.DictReader(io.StringIO(look("results", "--format", "csv").stdout)))
    assert [one["x"] for one in rows] == ["0", "1", "2", "3", "4", "5"]
    assert rows[1]["output"] == 'say "hi", you'
    assert (rows[4]["state"], rows[4]["exit"], rows[4]["signal"]) == ("failed", "", "9")


def test_results_json(look: Look, source: FakeSource) -> None:
    lines = look("results", "--failed", "--format", "jsonl").stdout.splitlines()
    assert [json.loads(line)["task"] for line in lines] == [2, 4]
    assert [one["task"] for one in json.loads(look("results", "--json").stdout)] == list(range(6))
    assert len(json.loads(look("results", "--json", "--limit", "3").stdout)) == 3
    source.rows = []
    assert json.loads(look("results", "--json").stdout) == []


@pytest.mark.parametrize("name", ["out.csv", "out.jsonl", "out.json", "out.txt"])
def test_results_into_a_file(look: Look, tmp_path: object, name: str) -> None:
    path = f"{tmp_path}/{name}"
    ran = look("results", "-o", path)
    assert ran.stdout == ""
    assert f"6 results of bag 3 in {path}" in ran.stderr
    with open(path) as file:
        first = file.readline()
    starts = {"out.csv": "task,x,", "out.jsonl": '{"task":0,', "out.json": "[", "out.txt": "task "}
    assert first.startswith(starts[name])


def test_a_parameter_may_have_the_name_of_a_column() -> None:
    names = results.fields(bag(names=["host", "x"]))
    assert names[:3] == ["task", "host", "x"]
    assert "covey_host" in names
    assert len(names) == len(set(names))


def test_watch_of_a_bag_that_is_over(look: Look, source: FakeSource) -> None:
    source.view = bag(status="finished", total=6, done=4, failed=2, ended=1065.0)
    ran = look("watch", status=1)
    assert ran.stdout == "bag 3 finished: 4 tasks done, 2 failed in 1 m 05 s\n"
    told = ran.stderr.splitlines()
    assert told == [
        "  task 2 (x=2): exit 1 on node1: ValueError: bad",
        "  task 4 (x=4): SIGKILL on node1",
        "covey: see: covey logs 3   again: covey retry --failed 3",
    ]
    assert json.loads(look("watch", "--json", status=1).stdout)["failed"] == 2


def test_failures_that_look_alike_are_told_together(look: Look, source: FakeSource) -> None:
    source.rows = [row(n, outcome="failed", exit_code=1, stderr_bytes=1) for n in range(30)]
    source.view = bag(status="finished", total=30, failed=30, ended=1001.0)
    told = look("watch", status=1).stderr.splitlines()
    assert told[0] == "  task 0 (x=0): exit 1 on node1 (and 19 tasks like it): ValueError: bad"
    assert told[1] == "  … and 10 more failed"


def test_a_missing_file_gets_a_hint(look: Look, source: FakeSource) -> None:
    words = "python3: can't open file 'x.py': [Errno 2] No such file or directory"
    source.stderr = words
    source.rows = [row(0, outcome="failed", exit_code=2, stderr_bytes=1)]
    source.view = bag(status="finished", total=1, failed=1, ended=1001.0)
    assert "--chdir ." in look("watch", status=1).stderr


def test_pilots(look: Look, source: FakeSource) -> None:
    assert "no pilots now" in look("pilots").stderr
    source.there = [
        PilotView(
            id=number, host="node1", site="local", job="1", slots=4, status=status, running=2,
            enrolled=1.0, heard=2.0, tags={}, version="1",
        )
        for number, status in ((2, "active"), (1, "left"))
    ]  # fmt: skip
    assert len(look("pilots").stdout.splitlines()) == 2
    assert len(json.loads(look("pilots", "--all", "--json").stdout)) == 2
