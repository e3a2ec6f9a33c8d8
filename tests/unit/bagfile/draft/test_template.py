"""Placeholders, and the files of this directory."""

from pathlib import Path

import pytest

from covey.bagfile.draft.template import (
    Scene,
    absolute_command,
    check_placeholders,
    seems_meant,
    tell_unused,
    unescaped,
)
from covey.core.errors import InvalidBag
from covey.core.values.placeholders import fill, names_of


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "x.csv").write_text("")
    (tmp_path / "fit.py").write_text("")
    (tmp_path / "tool").write_text("#!/bin/sh\n")
    (tmp_path / "tool").chmod(0o755)
    (tmp_path / "odd{seed}").write_text("")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_placeholders_are_plain_names() -> None:
    assert names_of("{a}{b}", "{a}", "{print $1}", "${c}", "{}", "{1}") == ["a", "b", "c"]


@pytest.mark.parametrize(
    "argv",
    [
        ["awk", "{print $1}"],
        ["awk", "{{print}}", "{seed}"],
        ["sh", "-c", "echo ${HOME}"],
        ["find", "-exec", "rm", "{}", ";"],
        ["echo", "{task}", "{seed}"],
        ["echo", "{{elephant}}"],
    ],
)
def test_other_braces_pass(argv: list[str]) -> None:
    check_placeholders(argv, ["seed"])


@pytest.mark.parametrize("typo", ["{sed}", "{Seed}", "{seeds}", "{tasks}"])
def test_typos_are_refused_with_the_right_name(typo: str) -> None:
    with pytest.raises(InvalidBag, match=r"write \{(seed|task)\}"):
        check_placeholders(["echo", typo], ["seed"])


def test_an_option_behind_the_command_is_told_of() -> None:
    with pytest.raises(InvalidBag, match="write -p n=VALUES before the command"):
        check_placeholders(["echo {n}", "-p", "n=1..2"], [])


@pytest.mark.parametrize(("names", "hint"), [(["seed"], "there are seed"), ([], "add -p m=")])
def test_unknown_names_are_refused(names: list[str], hint: str) -> None:
    with pytest.raises(InvalidBag, match="there is no parameter m") as caught:
        check_placeholders(["./f", "{m}"], names)
    assert hint in str(caught.value)
    assert "write {{m}}" in str(caught.value)


def test_escaped_names_reach_the_command_in_single_braces() -> None:
    assert unescaped("{{m}}-{seed}-${HOME}-{{x", ["seed"]) == "{m}-{seed}-${HOME}-{{x"
    assert unescaped("{{seed}}", ["seed"]) == "{{seed}}"  # as ever: {7}


@pytest.mark.parametrize("word", ["echo {n}", "echo 7", "./fit --seed {n}"])
def test_a_quoted_command_is_refused_with_both_ways_to_write_it(
    here: Path, told: list[str], word: str
) -> None:
    with pytest.raises(InvalidBag) as caught:
        absolute_command([word], Scene(str(here)), told.append)
    assert f"write: -- {word}" in str(caught.value)
    assert f"-- sh -c '{word}'" in str(caught.value)


@pytest.mark.parametrize(
    ("first", "hint"),
    [("#!/bin/bash", "bash ./go"), ("#!/usr/bin/env python3", "python3 ./go"), ("", "sh ./go")],
)
def test_a_script_that_is_not_executable_is_refused_with_what_runs_it(
    here: Path, told: list[str], first: str, hint: str
) -> None:
    (here / "go").write_text(f"{first}\necho\n")
    with pytest.raises(InvalidBag, match=f"not executable; write: {hint} ") as caught:
        absolute_command(["./go", "{n}"], Scene(str(here)), told.append)
    assert "chmod +x ./go" in str(caught.value)
    with pytest.raises(InvalidBag, match="not executable; write: "):
        absolute_command(["go"], Scene(str(here)), told.append)


@pytest.mark.parametrize("word", ["$seed", "--seed", "<seed>"])
def test_a_word_may_seem_to_mean_a_parameter(word: str) -> None:
    assert seems_meant(["echo", word], "seed")
    assert not seems_meant(["echo", word], "rate")


def test_a_note_on_what_nothing_uses(told: list[str]) -> None:
    tell_unused([], told.append)
    assert not told
    tell_unused(["a"], told.append)
    tell_unused(list("abcdefg"), told.append)
    assert told == [
        "note: nothing uses parameter a: write {a} for its value",
        "note: nothing uses any of the parameters a, b, c, d, e, …: write {a} for its value",
    ]


def test_files_of_this_directory_become_absolute(here: Path, told: list[str]) -> None:
    argv = ["python3", "fit.py", "./fit.py", "data/x.csv", "--in=data/x.csv", "data/", "-o", "out"]
    found = absolute_command(argv, Scene(), told.append)
    script, table = str(here / "fit.py"), str(here / "data" / "x.csv")
    assert found == (
        "python3", script, script, table, f"--in={table}", str(here / "data"), "-o", "out",
    )  # fmt: skip
    assert not told


def test_words_that_are_left_alone(here: Path, told: list[str]) -> None:
    argv = ("python3", "-m", "data", "odd{seed}", "missing.py", "/etc/passwd", "{seed}/fit.py", "")
    assert absolute_command(argv, Scene(), told.append) == argv


def test_with_chdir_only_what_is_not_there(here: Path, told: list[str]) -> None:
    argv = ("python3", "x.csv", "fit.py")
    assert absolute_command(argv, Scene(chdir=str(here)), told.append) == argv
    assert absolute_command(argv, Scene(chdir=str(here / "data")), told.append) == (
        "python3",
        "x.csv",
        str(here / "fit.py"),
    )


def test_a_program_of_this_directory(here: Path, told: list[str]) -> None:
    assert absolute_command(["./tool"], Scene(), told.append) == (str(here / "tool"),)
    assert not told
    assert absolute_command(["tool"], Scene(), told.append) == (str(here / "tool"),)
    assert len(told) == 1
    assert absolute_command(["{program}"], Scene(), told.append) == ("{program}",)


@pytest.mark.parametrize(
    ("program", "hint"),
    [
        ("no-such-program", "spelt right"),
        ("fit.py", "python3 fit.py"),
        ("echo 1 | wc", "sh -c 'echo 1 | wc'"),
    ],
)
def test_a_missing_program_is_refused_at_once(
    here: Path, told: list[str], program: str, hint: str
) -> None:
    with pytest.raises(InvalidBag, match="no command") as caught:
        absolute_command([program], Scene(), told.append)
    assert hint in str(caught.value)


def test_inputs_keep_their_names(here: Path, told: list[str]) -> None:
    scene = Scene(placed=frozenset({"fit.py", "data", "data/x.csv"}))
    argv = ("python3", "fit.py", "./fit.py", "data/x.csv", "--in=data/x.csv", "data/")
    assert absolute_command(argv, scene, told.append) == argv
    assert absolute_command(["./tool"], scene, told.append) == (str(here / "tool"),)
    assert told == [f"note: ./tool is not among the inputs; the tasks use the file {here / 'tool'}"]


def test_an_input_as_the_program(here: Path, told: list[str]) -> None:
    scene = Scene(placed=frozenset({"tool"}))
    assert absolute_command(["./tool"], scene, told.append) == ("./tool",)
    with pytest.raises(InvalidBag, match=r"write \./tool"):
        absolute_command(["tool"], scene, told.append)


def test_a_setup_may_install_the_program(here: Path, told: list[str]) -> None:
    assert absolute_command(["fits"], Scene(prepared=True), told.append) == ("fits",)


def test_words_are_relative_to_where_they_were_written(tmp_path: Path, told: list[str]) -> None:
    (tmp_path / "x.py").write_text("")
    scene = Scene(here=str(tmp_path))
    found = absolute_command(["python3", "x.py"], scene, told.append)
    assert found == ("python3", str(tmp_path / "x.py"))


def test_filling_in() -> None:
    assert fill("{a}-{b}-{c}", {"a": 1, "b": "x{a}"}) == "1-x{a}-{c}"
