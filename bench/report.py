"""What a case found, and how it is shown: Markdown tables, on the screen as in RESULTS.md."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from bench.measures import Floors

Row = dict[str, Any]


class Column(NamedTuple):
    """`form` is a format specification for the numbers in it."""

    key: str
    title: str
    form: str = ""


class Table(NamedTuple):
    columns: tuple[Column, ...]
    rows: list[Row]
    caption: str = ""


class Verdict(NamedTuple):
    """A requirement, and whether it was met; None where nothing was measured."""

    text: str
    met: bool | None


class Report(NamedTuple):
    name: str
    title: str
    tables: list[Table]
    verdicts: Sequence[Verdict] = ()
    notes: Sequence[str] = ()


RUN = Column("run", "run")
NOTE = Column("note", "note")
FLOORS = (
    Column("floor_before", "floor before", ",.0f"),
    Column("floor_after", "floor after", ",.0f"),
)


def floor_cells(floors: Floors) -> Row:
    return {
        "floor_before": floors.before.rate,
        "floor_after": floors.after.rate,
        "noisy": floors.noisy,
        "note": "noisy" if floors.noisy else "",
    }


def good(rows: Sequence[Row], key: str) -> list[Row]:
    """Rows that have this figure; broken runs do not."""
    return [row for row in rows if key in row]


def steady(rows: Sequence[Row]) -> Sequence[Row]:
    """The rows that were not noisy, if there are any."""
    return [row for row in rows if not row.get("noisy")] or rows


def with_best(
    rows: list[Row], key: str, choose: Callable[..., Row] = max, same: Sequence[str] = ()
) -> list[Row]:
    """The rows, followed by the best for each value of `same`, by one figure. A noisy run is the
    best only of noisy ones."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in good(rows, key):
        groups.setdefault(tuple(row[name] for name in same), []).append(row)
    best = [choose(steady(group), key=lambda row: row[key]) for group in groups.values()]
    return rows + [{**row, "run": f"best ({row['run']})"} for row in best]


def best_of(rows: Sequence[Row], key: str, choose: Callable[..., Any] = max) -> float | None:
    """The best figure, of steady runs if there are any."""
    found = [row[key] for row in steady(good(rows, key))]
    return choose(found) if found else None


def worst_of(rows: Sequence[Row], key: str) -> float | None:
    """The largest figure of all runs, for what must never happen."""
    return max((row[key] for row in good(rows, key)), default=None)


def at_least(what: str, found: float | None, bound: float, form: str = ".2f") -> Verdict:
    if found is None or found != found:
        return Verdict(f"{what}: not measured (at least {bound:{form}})", None)
    return Verdict(f"{what}: {found:{form}} (at least {bound:{form}})", found >= bound)


def at_most(what: str, found: float | None, bound: float, form: str = ".2f") -> Verdict:
    if found is None or found != found:
        return Verdict(f"{what}: not measured (at most {bound:{form}})", None)
    return Verdict(f"{what}: {found:{form}} (at most {bound:{form}})", found <= bound)


def unless_noisy(verdict: Verdict, rows: Sequence[Row]) -> Verdict:
    """A rate that only noisy runs have shown is neither met nor missed."""
    if any(not row.get("noisy", True) for row in rows):
        return verdict
    return Verdict(f"{verdict.text}; noisy runs only", None)


# -- text ----------------------------------------------------------------------------------


def render(report: Report) -> str:
    parts = [f"### {report.name}: {report.title}"]
    for table in report.tables:
        if table.caption:
            parts.append(table.caption)
        parts.append(render_table(table))
    lines = [f"- {_mark(verdict.met)} {verdict.text}" for verdict in report.verdicts]
    lines += [f"- {note}" for note in report.notes]
    if lines:
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def _mark(met: bool | None) -> str:
    return {True: "met", False: "MISSED", None: "unknown"}[met]


def render_table(table: Table) -> str:
    """Columns in which no row has anything are left out."""
    columns = [c for c in table.columns if any(r.get(c.key) not in (None, "") for r in table.rows)]
    cells = [[column.title for column in columns]]
    cells += [[cell(row.get(column.key), column.form) for column in columns] for row in table.rows]
    widths = [max(len(line[k]) for line in cells) for k in range(len(columns))]
    numeric = [bool(column.form) for column in columns]
    lines = [_line(line, widths, numeric) for line in cells]
    rule = ["-" * (w - 1) + ":" if n else "-" * w for w, n in zip(widths, numeric, strict=True)]
    lines.insert(1, _line(rule, widths, numeric))
    return "\n".join(lines)


def cell(value: object, form: str) -> str:
    if value is None:
        return ""
    return format(value, form) if form and not isinstance(value, str) else str(value)


def _line(cells: Sequence[str], widths: Sequence[int], numeric: Sequence[bool]) -> str:
    padded = [
        text.rjust(width) if right else text.ljust(width)
        for text, width, right in zip(cells, widths, numeric, strict=True)
    ]
    return "| " + " | ".join(padded) + " |"
