"""Tables, bests and verdicts."""

from pathlib import Path

from bench.__main__ import as_json, record
from bench.measures import Floor, Floors
from bench.report import (
    Column,
    Report,
    Row,
    Table,
    at_least,
    at_most,
    best_of,
    floor_cells,
    render,
    render_table,
    unless_noisy,
    with_best,
    worst_of,
)

ROWS: list[Row] = [
    {"run": 1, "rate": 900.0, "noisy": True},
    {"run": 2, "rate": 700.0, "noisy": False},
    {"run": 3, "rate": 800.0, "noisy": False},
    {"run": 4, "note": "BROKEN"},
]
REPORT = Report("x", "a case", [Table((Column("run", "run"), Column("rate", "r", ",.0f")), ROWS)])
FACTS = {"date": "2026-11-15", "cpu": "abacus"}


def test_the_best_is_a_steady_run_if_there_is_one() -> None:
    assert with_best(ROWS, "rate")[-1]["run"] == "best (3)"
    assert best_of(ROWS, "rate", min) == 700
    assert best_of(ROWS[:1], "rate") == 900
    assert best_of(ROWS[3:], "rate") is None


def test_the_worst_is_of_all_runs() -> None:
    assert worst_of(ROWS, "rate") == 900
    assert worst_of(ROWS[3:], "rate") is None


def test_there_is_a_best_for_each_group() -> None:
    rows = [{**row, "size": row["run"] % 2} for row in ROWS]
    best = with_best(rows, "rate", max, ("size",))[len(rows) :]
    assert [row["run"] for row in best] == ["best (3)", "best (2)"]


def test_verdicts() -> None:
    assert at_least("x", 0.75, 0.75).met is True
    assert at_least("x", 0.7, 0.75).met is False
    assert at_most("x", 1.6, 1.5).met is False
    assert at_most("x", None, 1.5).met is None
    assert at_least("x", float("nan"), 1.0).met is None


def test_noisy_runs_alone_decide_nothing() -> None:
    verdict = at_least("x", 0.9, 0.75)
    assert unless_noisy(verdict, ROWS) == verdict
    assert unless_noisy(verdict, ROWS[:1]).met is None
    assert unless_noisy(verdict, ROWS[3:]).met is None


def test_a_table_leaves_out_empty_columns_and_aligns_numbers() -> None:
    columns = (Column("run", "run"), Column("rate", "tasks/s", ",.0f"), Column("note", "note"))
    text = render_table(Table(columns, [{"run": 1, "rate": 1234.4, "note": ""}]))
    assert text.splitlines() == ["| run | tasks/s |", "| --- | ------: |", "| 1   |   1,234 |"]


def test_noise_is_noted() -> None:
    assert floor_cells(Floors(Floor(1000), Floor(2000)))["note"] == "noisy"
    assert floor_cells(Floors(Floor(1000), Floor(1000)))["note"] == ""


def test_a_report_says_what_was_missed() -> None:
    text = render(REPORT._replace(verdicts=[at_least("ratio", 0.5, 0.75)], notes=["mind the gap"]))
    assert "### x: a case" in text
    assert "- MISSED ratio: 0.50 (at least 0.75)" in text
    assert "- mind the gap" in text


def test_records_are_appended(tmp_path: Path) -> None:
    path = tmp_path / "RESULTS.md"
    record(path, FACTS, [REPORT])
    once = path.read_text()
    record(path, FACTS, [REPORT])
    assert path.read_text().startswith(once)
    assert path.read_text().count("## 2026-11-15") == 2
    assert path.read_text().count("# Results") == 1
    record(path, FACTS, [REPORT, REPORT])
    assert path.read_text().count("## 2026-11-15") == 2
    assert path.read_text().count("### x") == 3


def test_json_holds_every_row() -> None:
    found = as_json(FACTS, [REPORT])
    assert isinstance(found, dict)
    assert found["cases"]["x"]["tables"] == [ROWS]
