"""Tasks from standard input, and the environment of a task."""

import io
import json
from typing import Any

import click
import pytest

from covey.bagfile import Sheet, read_draft
from covey.cli.bags.submission import apply_options
from covey.cli.shared.standard_input import form_of, lines_of_input, spooled


class Stream(io.TextIOWrapper):
    def __init__(self, data: bytes, terminal: bool = False) -> None:
        super().__init__(io.BytesIO(data))
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal


def given(monkeypatch: pytest.MonkeyPatch, data: bytes, terminal: bool = False) -> None:
    monkeypatch.setattr("sys.stdin", Stream(data, terminal))


def test_braces_stand_for_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    given(monkeypatch, b"1\n2\n")
    options: dict[str, Any] = {"command": ("./f", "--n={}")}
    assert lines_of_input(options) == {"command": ("./f", "--n={line}"), "lines": "-"}
    assert lines_of_input({**options, "lines": "x.txt"}) == {"command": ("./f", "--n={line}")}


@pytest.mark.parametrize(
    "options",
    [
        {"command": ("./f", "{n}")},
        {"command": ("find", "-exec", "{}"), "parameters": ("n=1..3",)},
        {"command": ("find", "-exec", "{}"), "file": "bag.toml"},
    ],
)
def test_standard_input_is_left_alone_otherwise(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    given(monkeypatch, b"1\n")
    assert lines_of_input(options) == {}


def test_nobody_is_waited_for_at_a_keyboard(monkeypatch: pytest.MonkeyPatch) -> None:
    given(monkeypatch, b"", terminal=True)
    assert lines_of_input({"command": ("./f", "{}")}) == {}
    with pytest.raises(click.UsageError, match="with a pipe"):
        spooled("-")


def test_no_lines_are_no_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    given(monkeypatch, b"")
    with pytest.raises(click.UsageError, match="has no lines"):
        spooled("-")


@pytest.mark.parametrize(
    ("data", "form", "names"),
    [
        (b"a,b\n1,2\n", "csv", ("a", "b")),
        (json.dumps({"x": 1}).encode() + b"\n", "jsonl", ("x",)),
    ],
)
def test_rows_of_both_forms(
    monkeypatch: pytest.MonkeyPatch, data: bytes, form: str, names: tuple[str, ...]
) -> None:
    given(monkeypatch, data)
    sheet = Sheet()
    apply_options(sheet, {"rows": "-", "command": ("echo",)})
    draft = read_draft(sheet, {}, lambda text: None)
    assert (draft.names, draft.rows and draft.rows.form) == (names, form)
    assert draft.rows is not None
    assert form_of(draft.rows.path) == form


def environment(
    options: dict[str, Any], environ: dict[str, str], told: list[str]
) -> dict[str, str]:
    sheet = Sheet()
    apply_options(sheet, {"command": ("echo",), **options})
    return read_draft(sheet, environ, told.append).spec.env


def test_all_variables_but_secrets_and_our_own() -> None:
    told: list[str] = []
    environ = {
        "HOME": "/home/u",
        "MY_TOKEN": "x",
        "AWS_SECRET_ACCESS_KEY": "x",
        "COVEY_TOKEN_FILE": "/t",
        "PWD": "/",
        "BASH_FUNC_x%%": "() { :; }",
    }
    found = environment({"env_all": True, "env": ("N=1",)}, environ, told)
    assert found == {"HOME": "/home/u", "N": "1"}
    assert any("AWS_SECRET_ACCESS_KEY, MY_TOKEN" in line for line in told)
    named = environment({"env_all": True, "env": ("MY_TOKEN",)}, environ, [])
    assert named["MY_TOKEN"] == "x"


@pytest.mark.parametrize(
    "name", ["DB_PASS", "MYSQL_PWD", "GPG_PASSPHRASE", "GITHUB_PAT", "DOCKER_AUTH_CONFIG"]
)
def test_secrets_by_other_names_are_left_out_too(name: str) -> None:
    environ = {name: "x", "COMPASS": "north", "KEYBOARD": "us"}
    assert environment({"env_all": True}, environ, []) == {"COMPASS": "north", "KEYBOARD": "us"}


def test_variables_of_covey_itself_are_refused() -> None:
    with pytest.raises(Exception, match="COVEY_TOKEN_FILE is not passed on"):
        environment({"env": ("COVEY_TOKEN_FILE",)}, {"COVEY_TOKEN_FILE": "/t"}, [])
