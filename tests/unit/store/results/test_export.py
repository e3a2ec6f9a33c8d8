"""What is written can be read again, by others too."""

import csv
import io
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from covey.store.results.columns import columns
from covey.store.results.export import NEEDED, ExportedTable

TEXT = st.text(alphabet=st.sampled_from("ab ,\"\r\n;'\\é%"), max_size=6)
NUMBER = st.integers(-(10**20), 10**20) | st.floats(allow_nan=False, allow_infinity=False)
VALUE = NUMBER | TEXT
ANY = st.none() | st.booleans() | VALUE | st.lists(VALUE, max_size=2)


def page(values: list[Any], texts: list[str], reports: list[Any]) -> tuple[list[Any], Any]:
    """Columns as a record gives them, and the parameters."""
    count = len(values)
    given: dict[str, list[Any]] = {
        "task": list(range(count)),
        "state": ["failed" if index % 2 else "done" for index in range(count)],
        "exit": [index - 1 if index else None for index in range(count)],
        "signal": [index % 3 or None for index in range(count)],
        "seconds": [0.125] * count,
        "cpu_seconds": [2.0000004] * count,
        "memory_kb": [7] * count,
        "host": texts,
        "started": [1.7e9] * count,
        "ended": [1.7e9 + 0.25] * count,
        "cause": texts,
        "files": [0] * count,
        "output": texts,
        "result": [None if report is None else json.dumps({"r": report}) for report in reports],
    }
    return [given[key] for key in NEEDED], lambda tasks: [[values[task] for task in tasks]]


ROWS = st.lists(st.tuples(VALUE, TEXT, st.none() | ANY), min_size=1, max_size=8)


@given(ROWS)
def test_csv_is_what_the_csv_module_reads(rows: list[tuple[Any, str, Any]]) -> None:
    values, texts, reports = map(list, zip(*rows, strict=True))
    given_, parameters = page(values, texts, reports)
    sheet = ExportedTable(columns(["p"], ["r"]), "csv-raw", parameters)
    text = (sheet.head() + sheet.page(given_)).decode()
    read = list(csv.DictReader(io.StringIO(text, newline="")))
    assert [row["p"] for row in read] == list(map(str, values))
    assert [row["output"] for row in read] == texts
    assert [row["host"] for row in read] == texts
    assert {row["cpu_seconds"] for row in read} == {"2.000000"}
    for row, report in zip(read, reports, strict=True):
        if isinstance(report, str):
            assert row["r"] == report
        elif report is None:
            assert row["r"] == ""
        elif isinstance(report, list):
            assert json.loads(row["r"]) == report
        else:
            assert json.loads(row["r"]) == report


@given(ROWS)
def test_json_lines_are_what_json_reads(rows: list[tuple[Any, str, Any]]) -> None:
    values, texts, reports = map(list, zip(*rows, strict=True))
    given_, parameters = page(values, texts, reports)
    sheet = ExportedTable(columns(["p"], ["r"]), "jsonl", parameters)
    read = [json.loads(line) for line in (sheet.head() + sheet.page(given_)).split(b"\n")[:-1]]
    assert [row["p"] for row in read] == values
    assert [row["r"] for row in read] == reports
    assert [row["cause"] for row in read] == texts
    assert [row["exit"] for row in read] == [n - 1 if n else None for n in range(len(rows))]
    assert {row["cpu_seconds"] for row in read} == {2.0}
