"""Best rows stand against the best peer; pages keep what was not measured again."""

from pathlib import Path

import pytest

from bench.peers import pages
from bench.peers.environments import TOOL_LIST, Tool
from bench.peers.field import Field, best_rows
from bench.peers.peer import fill, tally
from bench.report import Column, Report, Row, Table

ROWS: list[Row] = [
    {"tool": "covey", "run": 1, "rate": 10.0},
    {"tool": "covey", "run": 2, "rate": 30.0},
    {"tool": "dask", "run": 1, "rate": 10.0},
    {"tool": "ray", "run": 1, "rate": 15.0},
    {"tool": "xargs", "run": "", "note": "not there"},
]


def test_the_best_run_of_each_tool_is_set_against_the_best_peer() -> None:
    found = {row["tool"]: row["ahead"] for row in best_rows(ROWS, "rate")}
    assert found == {"covey": 2.0, "dask": 10 / 15, "ray": 1.5}


def test_less_may_be_better() -> None:
    found = {row["tool"]: row["ahead"] for row in best_rows(ROWS, "rate", min)}
    assert found["covey"] == 1.0


def test_nothing_is_divided_by_a_peer_that_has_zero() -> None:
    rows: list[Row] = [
        {"tool": "covey", "run": 1, "failed": 0},
        {"tool": "dask", "run": 1, "failed": 0},
    ]
    assert all("ahead" not in row for row in best_rows(rows, "failed", min))


def test_a_task_has_its_number_in_its_command() -> None:
    assert fill(["echo", "{i}.{i}", "x"], 7) == ["echo", "7.7", "x"]


def test_what_is_not_known_to_have_succeeded_has_failed() -> None:
    assert tally([0, 3, None, 0]) == {"done": 4, "ok": 2, "failed": 2}


def test_a_page_keeps_its_head_and_the_cases_that_were_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "benchmarks.md"
    page.write_text(f"# Head\n\n{pages.MADE}\n\n## proc\n\nold proc\n\n## flaky\n\nold flaky\n")
    monkeypatch.setattr(pages, "PAGE", page)
    monkeypatch.setattr(pages, "CHARTS", tmp_path / "benchmarks")
    table = Table((Column("tool", "tool"), Column("rate", "rate", ".0f")), ROWS)
    table = table._replace(rows=ROWS + best_rows(ROWS, "rate"))
    pages.write({"date": "today", "cpu": "abacus"}, [Report("proc", "many", [table])])
    text = page.read_text()
    assert text.startswith("# Head\n")
    assert "old proc" not in text
    assert "old flaky" in text
    assert "abacus" in text
    assert (tmp_path / "benchmarks" / "proc.png").read_bytes().startswith(b"\x89PNG")


def test_a_peer_that_takes_long_is_run_once_and_we_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = {"covey": 100.0, "dask": 100.0, "ray": 10.0}
    clock = [0.0]

    def one(_self: Field, title: str, run: int, tool: Tool, _once: object) -> Row:
        clock[0] += seconds[tool.name]
        return {"run": run, "title": title}

    monkeypatch.setattr(Field, "_one", one)
    monkeypatch.setattr("bench.peers.field.time.monotonic", lambda: clock[0])
    field = Field.__new__(Field)
    field.tools = [tool for tool in TOOL_LIST if tool.name in seconds]
    field.runs = 3
    rows = field.rounds("proc", lambda link: {})
    runs = [(row["tool"], row["run"]) for row in rows]
    assert runs == [
        *(("covey", 1), ("dask", 1), ("ray", 1)),
        *(("covey", 2), ("ray", 2), ("covey", 3), ("ray", 3)),
    ]
