"""docs/benchmarks.md and its charts, from the reports of one recorded run."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from bench.peers import charts
from bench.peers.environments import TOOL_LIST
from bench.peers.field import US
from bench.report import Report, Row, Table, render_table

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "benchmarks.md"
CHARTS = DOCS / "benchmarks"
MADE = "<!-- from here on written by `python -m bench.peers --record` -->"


class Shown(NamedTuple):
    """How a case becomes a chart: which figure, of which of its best rows."""

    key: str
    unit: str
    form: str = ",.0f"
    logarithmic: bool = False
    chosen: Callable[[Row], bool] = lambda row: True
    note: Callable[[Row], str] = lambda row: ""


def _failed(row: Row) -> str:
    return f"({row['failed']} failed)" if row.get("failed") else ""


def _again(row: Row) -> str:
    return "" if row.get("by_itself") == "yes" else "(submitted again)"


SHOWN = {
    "proc": Shown("rate", "tasks per second"),
    "func": Shown("rate", "calls per second"),
    "submit": Shown(
        "quiet",
        "seconds until a million distinct commands are accepted (less is better)",
        ".2f",
        True,
        lambda row: row["given"] == "distinct commands" and row["tasks"] in (10_000, 1_000_000),
    ),
    "latency": Shown(
        "median",
        "ms for one process task, median (less is better)",
        ".1f",
        False,
        lambda row: row["kind"] == "process",
    ),
    "scale": Shown(
        "first",
        "tasks per second, the first ones of a long queue",
        chosen=lambda row: row["queued"] in (3_000, 105_000),
    ),
    "fault-worker": Shown(
        "disturbed", "seconds with a worker killed (less is better)", ".1f", note=_failed
    ),
    "fault-server": Shown("reruns", "tasks run twice (less is better)", note=_again),
    "flaky": Shown("seconds", "makespan, s (less is better)", ".0f", note=_failed),
}


def chart(report: Report) -> charts.Chart:
    """The best row of each tool; those without one say why."""
    shown = SHOWN[report.name]
    rows = [row for table in report.tables for row in table.rows]
    best = [row for row in rows if str(row.get("run", "")).startswith("best")]
    bars = []
    for tool in TOOL_LIST:
        mine = [row for row in rows if row.get("tool") == tool.name]
        found = [row for row in best if row["tool"] == tool.name and shown.chosen(row)]
        if found:
            row = found[0]
            bars.append(charts.Bar(tool.name, row[shown.key], shown.note(row), tool.name == US))
        elif mine:
            bars.append(charts.Bar(tool.name, None, mine[0].get("note", "")))
    return charts.Chart(
        f"{report.name}: {report.title}", shown.unit, bars, shown.form, shown.logarithmic
    )


def shortened(table: Table) -> Table:
    """Only the best rows, and one for each tool that has none."""
    best = [row for row in table.rows if str(row.get("run", "")).startswith("best")]
    seen = {row["tool"] for row in best}
    others: dict[str, Row] = {}
    for row in table.rows:
        if row["tool"] not in seen:
            others.setdefault(row["tool"], row)
    return table._replace(rows=[*best, *others.values()])


def section(facts: dict[str, str], report: Report) -> str:
    told = ", ".join(f"{name} {value}" for name, value in facts.items() if name != "date")
    parts = [f"## {report.name}", report.title + "."]
    parts.append(f"![{report.name}](benchmarks/{report.name}.png)")
    parts += [render_table(shortened(table)) for table in report.tables]
    if report.notes:
        parts.append("\n".join(f"- {note}" for note in report.notes))
    parts.append(f"Measured {facts['date']}: {told}.")
    return "\n\n".join(parts) + "\n"


def write(facts: dict[str, str], reports: list[Report]) -> None:
    """What stands above the mark is left alone; sections of cases that were not run stay."""
    CHARTS.mkdir(exist_ok=True)
    for report in reports:
        (CHARTS / f"{report.name}.png").write_bytes(charts.draw(chart(report)))
    head, _, made = PAGE.read_text().partition(MADE)
    kept = _sections(made)
    kept |= {report.name: section(facts, report) for report in reports}
    PAGE.write_text(head + MADE + "\n\n" + "\n".join(kept[name] for name in SHOWN if name in kept))


def _sections(text: str) -> dict[str, str]:
    found = {}
    for part in text.split("\n## ")[1:]:
        name = part.partition("\n")[0].strip()
        found[name] = f"## {part.rstrip()}\n"
    return found
