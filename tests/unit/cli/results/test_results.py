"""The table of results: its columns, its forms, its pages."""

import csv
import io
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.cli.results import results
from covey.cli.shared import writers
from covey.core.errors import ServerAway
from covey.core.values.columns import HEADINGS, ColumnKind, find
from covey.frontend import columns, formats
from covey.store.results import columns as kept
from covey.store.results.columns import columns as recorded_columns
from covey.store.results.columns import value as recorded_value
from covey.wire import ResultQuery
from tests.unit.cli.builders import bag, row
from tests.unit.cli.source import FakeSource, Look, lines


@pytest.fixture
def reported(source: FakeSource) -> FakeSource:
    """Tasks that ended well report an energy, and one of them more."""
    for one in source.rows:
        if one.outcome == "ok":
            one.result = {"energy": one.task / 4}
    source.rows[3].result["shape"] = [2, 3]
    source.view.result_names = ["energy", "shape"]
    return source


def test_table(look: Look, reported: FakeSource) -> None:
    ran = look("results")
    table = [line.split() for line in ran.stdout.splitlines()]
    assert table[0] == [
        "task", "x", "state", "exit", "time", "cpu", "memory", "host", "energy", "shape", "cause",
    ]  # fmt: skip
    assert len(table) == 7
    assert table[4][-2:] == ["0.75", "[2,3]"]
    assert table[5][:4] == ["4", "4", "failed", "SIGKILL"]
    assert "4 of 10 tasks have not ended yet" in ran.stderr


def test_what_says_nothing_is_not_shown(look: Look, source: FakeSource) -> None:
    source.view = bag(done=6)
    assert "cause" not in look("results").stdout.splitlines()[0]
    source.view = bag(done=6, outputs=["*.txt"])
    assert "files" in look("results").stdout.splitlines()[0]


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_whole_files_come_ready_made(look: Look, source: FakeSource, form: str) -> None:
    assert look("results", "--format", form).stdout == f"{form} of 3\nin parts\n"
    look("results", "--format", form, "--where", "x > 1", "--sort", "-x", "--failed")
    assert source.asked[-1] == ResultQuery(failed_only=True, where=("x > 1",), sort="-x")


def test_csv_of_some_columns(look: Look, reported: FakeSource) -> None:
    out = look("results", "--format", "csv", "--columns", "x, shape,exit,signal,output").stdout
    table = list(csv.DictReader(io.StringIO(out)))
    assert [one["x"] for one in table] == ["0", "1", "2", "3", "4", "5"]
    assert table[1]["output"] == 'say "hi", you'
    assert table[3]["shape"] == "[2,3]"
    assert (table[4]["exit"], table[4]["signal"]) == ("", "9")


def test_jsonl_up_to_a_limit(look: Look, reported: FakeSource) -> None:
    ran = look("results", "--failed", "--format", "jsonl", "--limit", "1")
    assert [one["task"] for one in lines(ran.stdout)] == [2]
    assert len(reported.asked) == 1


def test_json(look: Look, reported: FakeSource) -> None:
    found = json.loads(look("results", "--json").stdout)
    assert [one["task"] for one in found] == list(range(6))
    assert found[3]["shape"] == [2, 3]
    assert found[4]["energy"] is None
    assert len(json.loads(look("results", "--json", "--limit", "3").stdout)) == 3
    reported.rows = []
    assert json.loads(look("results", "--json").stdout) == []


@pytest.mark.parametrize("name", ["out.csv", "out.jsonl", "out.json", "out.txt", "out.parquet"])
def test_into_a_file(look: Look, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    ran = look("results", "-o", str(path))
    assert ran.stdout == ""
    count = {"out.csv": 1, "out.jsonl": 2}.get(name, 6)  # lines that are ready-made
    assert f"{formats.count(count, 'result')} of bag 3 in {path} (" in ran.stderr
    starts = {"csv": b"csv of 3", "jsonl": b"jsonl of 3", "json": b"[", "txt": b"task "}
    assert path.read_bytes().startswith(starts.get(name.partition(".")[2], b"PAR1"))
    assert os.listdir(tmp_path) == [name]


CELLS = st.lists(st.lists(st.text('ab,"\n'), min_size=2, max_size=2), max_size=5)


@given(CELLS, st.integers(1, 20))
def test_rows_of_a_ready_made_file_are_counted(rows: list[list[str]], size: int) -> None:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([["x", "y"], *rows])
    data, file = text.getvalue().encode(), io.BytesIO()
    parts = [data[start : start + size] for start in range(0, len(data), size)]
    assert writers.write_ready_made(file, "csv", parts) == len(rows)
    assert file.getvalue() == data


def test_an_export_that_breaks_off_leaves_the_old_file(
    look: Look, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def torn(self: FakeSource, *rest: Any) -> Iterator[bytes]:
        yield b"half of it"
        raise ServerAway("it went away")

    monkeypatch.setattr(FakeSource, "export", torn)
    path = tmp_path / "out.csv"
    path.write_text("old")
    look("results", "-o", str(path), status=1)
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["out.csv"]


def test_into_what_is_no_file(look: Look) -> None:
    assert "results of bag 3 in /dev/null" in look("results", "-o", "/dev/null").stderr


def test_pages_are_asked_for_where_the_last_ended(look: Look, source: FakeSource) -> None:
    look("results", "--json")
    assert [query.after for query in source.asked] == [-1, 1, 3, 5]
    source.asked.clear()
    look("results", "--json", "--sort", "x")
    assert [query.offset for query in source.asked] == [0, 2, 4, 6]


def test_a_page_of_a_table(look: Look, source: FakeSource, monkeypatch: Any) -> None:
    monkeypatch.setattr(results, "PIPE_PAGE", 4)
    ran = look("results", "--page", "1")
    assert [line.split()[0] for line in ran.stdout.splitlines()] == ["task", "0", "1", "2", "3"]
    assert ran.stderr == "covey: 1 to 4 of 6; next: --page 2   all: -o FILE.csv\n"
    ran = look("results", "--page", "2")
    assert [line.split()[0] for line in ran.stdout.splitlines()] == ["task", "4", "5"]
    assert "next" not in ran.stderr
    told = look("results", "--page", "3").stderr
    assert told == "covey: there is no page 3 of these results; the last one is --page 2\n"


def test_a_terminal_gets_a_screenful(
    look: Look, source: FakeSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "_is_seen", lambda: True)
    monkeypatch.setattr(results, "_screenful", lambda: 3)
    ran = look("results", "--where", "x > 0")
    assert len(ran.stdout.splitlines()) == 4
    assert ran.stderr.startswith("covey: 1 to 3; next: --page 2")
    assert len(look("results", "--limit", "5").stdout.splitlines()) == 6


def test_a_narrow_terminal_leaves_out_what_is_least_wanted(
    reported: FakeSource,
) -> None:
    def names(width: int) -> list[str]:
        fitting = results._fitting(columns.seen(reported.view), reported.rows, width)
        return [field.name for field in fitting]

    every = names(1000)
    assert names(92) == [name for name in every if name != "cpu_seconds"]
    assert names(72) == ["task", "x", "state", "exit", "seconds", "energy", "shape", "cause"]
    reported.view.result_names = []
    assert names(60)[-1] == "output", "all that a task says"


def test_no_results(look: Look, source: FakeSource) -> None:
    source.rows = []
    assert look("results").stderr == "covey: bag 3 has no results yet\n"
    assert "no results of bag 3 match: x > 9" in look("results", "--where", "x > 9").stderr
    assert "no failed tasks" in look("results", "--failed").stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--columns", "enrgy"], "did you mean 'energy'?"),
        (["--columns", "nonsense"], "there are task, x, state"),
        (["--format", "parquet"], "-o results.parquet"),
        (["--page", "2", "--format", "csv"], "--page is for tables"),
        (["--follow", "--json"], "--format jsonl"),
        (["--follow", "--sort", "x"], "leave out --sort"),
    ],
)
def test_misuse(look: Look, reported: FakeSource, words: list[str], told: str) -> None:
    assert told in look("results", *words, status=2).stderr


def test_follow(look: Look, source: FakeSource, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows come in the order of their ends; the first page decides the columns."""
    source.rows, later = [], [row(1, row=7, result={"e": 2}), row(0, row=9, result={"e": 1})]
    source.view = bag()
    asked = FakeSource.results

    def one_more(self: FakeSource, *words: Any, **how: Any) -> Any:
        if later:
            source.rows.append(later.pop(0))
            source.view = bag(result_names=["e"], status="running" if later else "finished")
        return asked(self, *words, **how)

    monkeypatch.setattr(FakeSource, "results", one_more)
    found = lines(look("results", "--follow", "--format", "jsonl").stdout)
    assert [(one["task"], one["e"]) for one in found] == [(1, 2), (0, 1)]
    assert [query.after for query in source.asked] == [-1, 7, 9]
    table = look("results", "--follow").stdout.splitlines()
    assert [line.split()[0] for line in table] == ["task", "1", "0"]


def test_follow_ends_when_the_bag_is_paused(look: Look, source: FakeSource) -> None:
    source.view = bag(status="paused", reason="why not")
    ran = look("results", "--follow", "--format", "csv", "--columns", "task,x", status=1)
    assert ran.stdout.splitlines() == ["task,x", *(f"{n},{n}" for n in range(6))]
    assert "PAUSED: why not" in ran.stderr


NAMES: tuple[list[str], ...] = (
    ["x"],
    ["host", "task_", "covey_host"],
    ["energy", "result_energy", "state"],
    [],
)


@pytest.mark.parametrize("names", NAMES)
def test_columns_are_those_of_the_record(names: list[str]) -> None:
    """Its files, its comparisons and our tables must mean the same."""
    view = bag(names=names, result_names=["energy", "state", "x"])
    ended = row(
        3, values=list(range(len(names))), outcome="timeout", exit_code=-1, signal=15, cause="time",
        result={"energy": 0.5, "x": "y"}, files=2, wall_seconds=1.23456789,
    )  # fmt: skip
    ours = columns.fields(view)
    theirs = recorded_columns(names, view.result_names)
    assert [field.name for field in ours] == [column.name for column in theirs]
    for field, column in zip(ours, theirs, strict=True):
        assert field.value(ended) == recorded_value(column, ended), field.name


def test_a_column_may_be_asked_for_by_its_prefixed_name() -> None:
    (chosen,) = columns.choose(bag(names=["host"]), "covey_host")
    assert chosen.cell(row(values=["a"])) == "node1"
    with pytest.raises(click.UsageError):
        columns.choose(bag(), "covey_host")


@pytest.mark.parametrize("name", ["r.xlsx", "r.tsv", "r", "csv"])
def test_a_file_of_an_unknown_kind_is_refused(look: Look, tmp_path: Path, name: str) -> None:
    ran = look("results", "-o", str(tmp_path / name), status=2)
    assert ".csv, .jsonl, .ndjson, .json, .parquet, .pq, .txt, or add --format" in ran.stderr
    assert not list(tmp_path.iterdir())
    look("results", "-o", str(tmp_path / name), "--format", "table")
    look("results", "-o", "/dev/null")


@pytest.mark.parametrize("name", ["r.csv", "r.txt", "r.parquet"])
def test_a_folder_that_is_missing(look: Look, tmp_path: Path, name: str) -> None:
    path = tmp_path / "none" / name
    told = look("results", "-o", str(path), status=2).stderr
    assert f"-o {path}: there is no directory {path.parent}" in told


def test_a_bag_that_is_over_has_no_results_rather_than_none_yet(
    look: Look, source: FakeSource
) -> None:
    source.rows = []
    source.view = bag()
    assert look("results").stderr == "covey: bag 3 has no results yet\n"
    source.view = bag(status="cancelled")
    assert look("results").stderr == "covey: bag 3 is cancelled, and has no results\n"


def test_headings_are_understood_as_names_of_columns(look: Look) -> None:
    assert {name: heading for heading, name in HEADINGS.items()} == columns.TITLES
    head = look("results", "--columns", "task,time,memory", "--format", "csv").stdout.splitlines()[
        0
    ]
    assert head == "task,seconds,memory_kb"
    table = kept.columns([], [])
    assert find(table, "time").name == "seconds"
    assert find(kept.columns(["time"], []), "time").kind is ColumnKind.PARAMETER
