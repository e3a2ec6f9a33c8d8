"""From options, and bag files, to a bag."""

from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from covey.bagfile import Gathered
from covey.cli.bags import run, submission
from covey.cli.bags.submission import OPTIONS, build
from covey.cli.main import covey
from covey.core.errors import InvalidBag
from covey.core.record.model import BagSpec, Need, PolicySpec
from covey.core.values.space import Axis, Product, Range, Values, Zip
from covey.whoami import user


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    return tmp_path


def parsed(*words: str) -> Gathered:
    """What the command line makes of these words."""
    found: list[Gathered] = []

    def keep(options: dict[str, Any], default_retries: int) -> Gathered:
        found.append(build(options, default_retries))
        raise click.exceptions.Exit(0)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "build", keep)
        covey.main(["run", *words], standalone_mode=False)
    return found[0]


def spec_of(*words: str) -> BagSpec:
    return parsed(*words).spec


def refused(*words: str) -> str:
    with pytest.raises((InvalidBag, click.UsageError)) as caught:
        parsed(*words)
    return str(caught.value)


def test_a_plain_command_is_one_task(here: Path) -> None:
    spec = spec_of("true", "-p", "x")
    assert (spec.argv, spec.retries, spec.idempotent) == (("true", "-p", "x"), 0, True)
    assert spec.env["PATH"] == "/usr/bin:/bin"
    assert build({"command": ("true",)}, 2).spec.retries == 2


def test_every_option_arrives(here: Path) -> None:
    (here / "fit.py").write_text("")
    spec = spec_of(
        "-p", "x=1..3", "-p", "y=a,b", "--open", "--input", "fit.py", "--output", "o*",
        "--output", "p", "--optional-output", "q", "--output-limit", "2MB", "--env", "A=1=2",
        "--env", "PATH", "--export", "--setup", "make", "--cores", "2", "--memory", "1.5GB",
        "--disk", "1 GB", "--gpus", "1", "--time", "5m", "--pin", "--retries", "3",
        "--overtimes", "0",
        "--retry-memory", "+50%", "--ok-exit", "0", "--ok-exit", "2", "--check", "test -s o",
        "--breaker", "0", "--not-idempotent", "--name", "n", "--label", "a=b=c", "--notes", "t",
        "--", "python3", "fit.py",
    )  # fmt: skip
    assert spec.space == Product((Axis("x", Range("1", "1", 3)), Axis("y", Values(("a", "b")))))
    need = Need(cores=2, memory_mb=1536, disk_mb=1024, gpus=1, limit_seconds=300.0)
    assert (spec.need, spec.pin, spec.open, spec.export) == (need, True, True, True)
    assert (spec.outputs, spec.optional_outputs, spec.output_mb) == (("o*", "p"), ("q",), 2)
    assert spec.env["A"] == "1=2"
    assert (spec.retries, spec.grow_memory, spec.overtimes, spec.breaker) == (3, 1.5, 0, 0)
    assert (spec.ok_codes, spec.check, spec.setup) == ((0, 2), "test -s o", "make")
    assert (spec.idempotent, spec.name, spec.labels) == (False, "n", {"a": "b=c"})
    assert (spec.notes, spec.argv) == ("t", ("python3", "fit.py"))


def test_every_option_sets_a_key_that_there_is() -> None:
    from covey.bagfile.format.keys import RESOURCES, RETRIES, TOP, VALIDATE
    from covey.bagfile.format.policy import POLICY

    tables = {"resources": RESOURCES, "retries": RETRIES, "validate": VALIDATE, "policy": POLICY}
    for choice in OPTIONS:
        if choice.key:
            known = TOP if len(choice.key) == 1 else tables[choice.key[0]]
            assert choice.key[-1] in known


def test_a_policy(here: Path) -> None:
    assert spec_of("true").policy == PolicySpec()
    assert spec_of("--policy", "frugal", "true").policy == PolicySpec(preset="frugal")
    spec = spec_of(
        "--policy", "fast-tail", "--policy", "rank = Host.Memory == 3", "--deadline", "30m",
        "--policy", "sticky_tail=True", "--policy", "avoid_hosts=a, b", "--only-sites", "c,d",
        "--policy", "max_replicas=3", "true",
    )  # fmt: skip
    assert spec.policy == PolicySpec(
        preset="fast-tail",
        rank="Host.Memory == 3",
        deadline="30m",
        sticky_tail=True,
        max_replicas="3",
        avoid_hosts=("a", "b"),
        only_sites=("c", "d"),
    )


def test_options_come_before_what_a_file_says_of_the_policy(here: Path) -> None:
    (here / "x.toml").write_text("command = 'true'\npolicy = 'fast-tail'\n")
    found = spec_of("x.toml", "--policy", "rank=3").policy
    assert found == PolicySpec(preset="fast-tail", rank="3")
    (here / "x.toml").write_text("command = 'true'\n[policy]\nrank = 1\nonly_sites = 'a'\n")
    found = spec_of("x.toml", "--policy", "frugal", "--only-sites", "b").policy
    assert found == PolicySpec(preset="frugal", rank="1", only_sites=("b",))


def test_expected_files_and_chdir(here: Path) -> None:
    assert "there is no file out" in spec_of("--expect-file", "out", "true").check
    assert spec_of("--chdir", ".", "true").chdir == str(here)


def test_zip_and_rows(here: Path) -> None:
    (here / "r.csv").write_text("a,b\n1,2\n")
    (here / "l.dat").write_text("x\n")
    assert isinstance(spec_of("--zip", "-p", "x=1..2", "-p", "y=3,4", "true").space, Zip)
    assert parsed("--rows", "r.csv", "-p", "c=1", "true").draft.names == ("a", "b", "c")
    assert parsed("--lines", "l.dat", "echo", "{line}").draft.names == ("line",)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "COMMAND"),
        (["-p", "x", "true"], "-p x: write it like -p x=1..10"),
        (["-p", "=1", "true"], "-p =1: write it like"),
        (["-p", "1x=1", "true"], "-p 1x=1: '1x' is not a name for a parameter"),
        (["-p", "task=1..3", "true"], "-p task=1..3: {task} is the task's number"),
        (["-p", "x=1..y", "true"], "-p x=1..y: 1..y is not a range"),
        (["-p", "x=1", "-p", "x=2", "true"], "given twice"),
        (["--time", "30m1h", "true"], "--time 30m1h: expected a time"),
        (["--memory", "2", "true"], "--memory 2: a size needs its unit"),
        (["--cores", "0", "true"], "--cores 0: expected a whole number from 1"),
        (
            ["--env", "NOPE_NOT", "true"],
            "--env NOPE_NOT: it is not set here; write",
        ),
        (["--env", "=1", "true"], "--env =1: write"),
        (["--label", "x", "true"], "--label NAME=VALUE"),
        (["--policy", "fast", "true"], "--policy fast: there is no preset 'fast'; did you mean"),
        (["--policy", "rnak=3", "true"], "--policy rnak=3: there is no such key; did you mean"),
        (["--policy", "rank=3 +", "true"], "--policy rank=3 +: line 1, column 4: expected"),
        (["--policy", "rank=", "true"], "--policy rank=: it is empty"),
        (["--policy", "sticky_tail=yes", "true"], "expected true or false, not 'yes'"),
        (["--policy", "frugal", "--policy", "fast-tail", "true"], "preset is given twice"),
        (["--deadline", "30M", "true"], "--deadline 30M: expected a time"),
        (["--chdir", "nowhere", "true"], "--chdir nowhere: there is no such directory"),
        (["--input", "nofile", "true"], "--input nofile: there is no file nofile"),
        (["--input", "x", "--chdir", ".", "true"], "--chdir .: 'inputs' needs a directory"),
        (["--output", "../x", "true"], "--output ../x: ../x is not in the task's directory"),
        (["--rows", "none.csv", "true"], "--rows none.csv: there is no file none.csv"),
        (["--rows", "a.csv", "--lines", "b", "true"], "not both"),
        (["echo", "\udcff"], "it is not text in UTF-8"),
        (["-p", "x=\udcff", "true"], "it is not text in UTF-8"),
        (["--env", "\udcff=1", "true"], "the name of a variable"),
        (["no-such-program"], "there is no command 'no-such-program'"),
        (["swep.toml"], "swep.toml: there is no such file; did you mean 'sweep.toml'?"),
    ],
)
def test_refusals_name_the_option(here: Path, words: list[str], told: str) -> None:
    (here / "sweep.toml").write_text("")
    assert refused(*words).startswith(told) or told in refused(*words)


SWEEP = """
command = "echo {x} {y}"
outputs = ["a"]
[parameters]
x = [1, 2]
y = 3
[resources]
memory = "1 GB"
time = "1m"
[environment]
A = "file"
B = "file"
[labels]
k = "file"
"""


def test_options_come_before_the_file(here: Path) -> None:
    (here / "sub").mkdir()
    (here / "sub" / "sweep.toml").write_text(SWEEP)
    plain = spec_of("sub/sweep.toml")
    assert plain == spec_of("-f", "sub/sweep.toml") == spec_of("--file", "sub/sweep.toml")
    found = spec_of(
        "--retries", "1", "sub/sweep.toml", "-p", "y=5,6", "-p", "z=7", "--memory", "2GB",
        "--env", "A=here", "--env", "PATH", "--label", "m=1", "--output", "b",
    )  # fmt: skip
    assert found.space == Product(
        (Axis("x", Values((1, 2))), Axis("y", Values((5, 6))), Axis("z", Values((7,))))
    )
    assert found.need == Need(memory_mb=2048, limit_seconds=60.0)
    assert (found.env["A"], found.env["B"], found.retries) == ("here", "file", 1)
    assert found.labels == {"k": "file", "m": "1"}
    assert found.outputs == ("a", "b")
    assert spec_of("sub/sweep.toml", "--", "echo", "{x}").argv == ("echo", "{x}")


def test_a_variable_of_the_file_can_be_inherited_instead(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A", "inherited")
    (here / "sweep.toml").write_text(SWEEP)
    assert spec_of("sweep.toml", "--env", "A").env["A"] == "inherited"


def test_paths_are_relative_to_where_they_were_written(here: Path) -> None:
    (here / "sub").mkdir()
    (here / "sub" / "s.toml").write_text("command = 'python3 fit.py'\ninputs = ['in.txt']")
    for name in ("sub/in.txt", "sub/fit.py", "own.txt"):
        (here / name).write_text(name)
    found = parsed("sub/s.toml", "--input", "own.txt")
    assert [(put.to, put.file.path) for put in found.puts] == [
        ("in.txt", str(here / "sub" / "in.txt")),
        ("own.txt", str(here / "own.txt")),
    ]
    assert found.spec.argv == ("python3", str(here / "sub" / "fit.py"))
    assert parsed("sub/s.toml", "--", "cat", "own.txt").spec.argv == ("cat", str(here / "own.txt"))


def test_a_file_is_taken_for_one_only_in_front(here: Path) -> None:
    assert spec_of("echo", "sweep.toml").argv == ("echo", "sweep.toml")
    assert "there is no command 'sweep.toml'" in refused("--", "sweep.toml")


def test_help_is_in_groups() -> None:
    told = CliRunner().invoke(run.run, ["--help"]).output
    places = [told.index(f"\n{group}:") for group in submission.GROUPS]
    assert places == sorted(places)
    assert told.index("Common options:") > places[-1]
    assert "[x>" not in told


def test_the_owner_is_who_submits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "ada")
    assert user() == "ada"
