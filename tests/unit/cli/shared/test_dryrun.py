"""`--dry-run`: everything is shown, nothing is done."""

import json
from collections.abc import Iterable
from pathlib import Path

import pytest
from click.testing import CliRunner

from covey.bagfile import Description, describe, description
from covey.cli.bags.submission import build
from covey.cli.main import covey
from covey.cli.shared.dryrun import ask_known, lines_of
from covey.client.client import Client

SWEEP = """
name = "sweep"
command = "python3 fit.py {case} {n}"
rows = "cases.csv"
inputs = ["fit.py", "in/{case}.txt", {from = "fit.py", to = "again.py"}, "https://example.org/x"]
outputs = ["out"]
optional_outputs = ["log"]
setup = "make"
[parameters]
n = "1..5"
[resources]
memory = "1 GB"
time = "1m"
[[resources.when]]
n = "4.."
memory = "2 GB"
[[resources.when]]
case = ["b", "c"]
n = [1, 2]
cores = 4
[retries]
count = 1
memory = "x2"
[validate]
check = "test -s out"
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sweep.toml").write_text(SWEEP)
    (tmp_path / "cases.csv").write_text("case\na\nb\n")
    (tmp_path / "fit.py").write_text("x" * 2048)
    (tmp_path / "in").mkdir()
    for name in "ab":
        (tmp_path / "in" / f"{name}.txt").write_text(name)
    return tmp_path


def described() -> Description:
    return describe(build({"file": "sweep.toml"}, 0))


def test_counts_and_classes(here: Path) -> None:
    found = described()
    assert (found.tasks, found.counted, found.names) == (10, 10, ["case", "n"])
    assert [(one.tasks, one.cores, one.memory_mb, one.when) for one in found.classes] == [
        (4, 1, 1024, ""),
        (4, 1, 2048, "n >= 4"),
        (2, 4, 1024, "case = b, c and n = 1, 2"),
    ]
    assert [task.values for task in found.first[:2]] == [
        {"case": "a", "n": 1},
        {"case": "a", "n": 2},
    ]
    assert found.first[1].command == ["python3", "fit.py", "a", "2"]
    assert [(file.bytes, file.places) for file in found.uploads] == [
        (9, []),
        (2048, ["fit.py", "again.py"]),
        (1, ["in/a.txt"]),
        (1, ["in/b.txt"]),
    ]
    assert found.urls == ["https://example.org/x"]


def test_classes_are_counted_up_to_a_point(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(description, "MOST_COUNTED", 7)
    found = described()
    assert (found.tasks, found.counted) == (10, 7)
    assert sum(one.tasks for one in found.classes) == 7
    assert "(of the first 7 tasks)" in lines_of(found)


def test_what_people_read(here: Path) -> None:
    told = "\n".join(lines_of(described()))
    for part in (
        "bag sweep: 10 tasks; nothing is submitted",
        "task 0 (case=a, n=1): python3 fit.py a 1",
        "… and 5 more",
        "4 files, 2 kB",
        "cases.csv (rows)",
        "fit.py as fit.py, again.py",
        "fetched by each host: https://example.org/x",
        "returns   out, log (if there); at most 1.0 GB a task",
        "setup     make",
        "check     test -s out",
        "retries   1; after running out of memory, with x2 the memory",
        "pauses after 30 failures",
    ):
        assert part in told
    assert lines_of(described())[7].startswith("… and")


def test_the_broker_and_when_the_bag_should_be_done(here: Path) -> None:
    told = "\n".join(lines_of(described()))
    assert "broker" not in told
    for broker, words in (
        ("price", "finish in 2 h after its submission"),
        ("static", "finish in 2 h after its submission (the broker static does not use it)"),
    ):
        flags = {"file": "sweep.toml", "broker": broker, "finish_in": "2h"}
        lines = lines_of(describe(build(flags, 0)))
        assert f"broker    {broker}" in lines
        assert words in [line.replace("2 h 00 m", "2 h") for line in lines]


def test_the_policy_in_force(here: Path) -> None:
    assert lines_of(described())[-1] == "policy    throughput (the default)"
    options = ("fast-tail", "only_sites=a", "failover_sites=b", "rank=1 +\n  2", "sticky_tail=true")
    found = describe(build({"file": "sweep.toml", "policy": options}, 0))
    told = "\n".join(lines_of(found))
    for part in (
        "policy    fast-tail\n",
        '  requirements = member(Site.Name, {"a"})  (key only_sites)\n',
        "  rank = 1 + 2  (owner)\n",
        "  concurrency = Tail ? Pilot.Slots : undefined  (preset fast-tail)\n",
        "  max_replicas = 3  (preset fast-tail)\n",
        "  tail = !Open && JobsUnsent < Queue.Slots  (default)\n",
        "  a bag in its tail stays there\n",
        "  tasks that fail for good are tried once more on b",
    ):
        assert part in told


class HasOne(Client):
    """A server that lacks everything but the first file."""

    def __init__(self) -> None:
        super().__init__("http://localhost:1", "token")

    def missing(self, digests: Iterable[str]) -> list[str]:
        return list(digests)[1:]


def test_what_the_server_has(here: Path) -> None:
    gathered = build({"file": "sweep.toml"}, 0)
    found = describe(gathered)
    assert {file.known for file in found.uploads} == {None}
    ask_known(found, gathered, HasOne())
    assert [file.known for file in found.uploads] == [True, False, False, False]
    told = "\n".join(lines_of(found))
    assert "the server has 1 of them already" in told
    assert "cases.csv (rows) (there already)" in told


def test_nothing_is_done(here: Path) -> None:
    before = sorted(here.rglob("*"))
    for words in (["run", "sweep.toml", "--dry-run", "--json"], ["submit", "--dry-run", "true"]):
        found = CliRunner().invoke(covey, words)
        assert found.exit_code == 0, found.output
    assert sorted(here.rglob("*")) == before
    found = CliRunner().invoke(covey, ["run", "--dry-run", "--json", "-f", "sweep.toml"])
    assert json.loads(found.output)["tasks"] == 10


def test_a_bad_row_is_told(here: Path) -> None:
    (here / "cases.csv").write_text("case,x\na,1\nb\n")
    found = CliRunner().invoke(covey, ["run", "--dry-run", "--rows", "cases.csv", "true"])
    assert "cases.csv: row 2 has 1 columns, not 2" in str(found.exception)


def test_only_some_of_the_tasks(here: Path) -> None:
    ran = CliRunner().invoke(covey, ["run", "sweep.toml", "--dry-run", "--first", "2"])
    assert ran.stdout.startswith("bag sweep: 2 of 10 tasks; nothing is submitted\n")
    found = describe(build({"file": "sweep.toml", "where": ("case = b && n > 3",)}, 0))
    assert [(task.task, task.values) for task in found.first] == [
        (0, {"case": "b", "n": 4}),
        (1, {"case": "b", "n": 5}),
    ]
    assert sum(one.tasks for one in found.classes) == 2
    places = [place for file in found.uploads for place in file.places]
    assert "in/b.txt" in places
    assert "in/a.txt" not in places, "only what these tasks need"
    ran = CliRunner().invoke(covey, ["run", "sweep.toml", "--dry-run", "--json", "--first", "3"])
    assert json.loads(ran.stdout)["taken"] == {"tasks": 3, "total": 10, "more": False}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--where", "cas = b"], "--where: there is no parameter 'cas'; did you mean 'case'?"),
        (["--where", "n > 9"], "--where: none of 10 tasks meets n > 9"),
        (["--first", "0"], "--first: expected 1 task or more, not 0"),
    ],
)
def test_tasks_that_there_are_not(here: Path, words: list[str], told: str) -> None:
    ran = CliRunner().invoke(covey, ["submit", "sweep.toml", "--dry-run", *words])
    assert told in str(ran.exception)
