"""What is written can be read again, by others too."""

import csv
import io
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from covey.store.results.columns import columns
from covey.store.results.export import ExportedTable

TEXT = st.text(alphabet=st.sampled_from("ab ,\"\r\n;'\\é%"), max_size=6)
NUMBER = st.integers(-(10**20), 10**20) | st.floats(allow_nan=False, allow_infinity=False)
VALUE = NUMBER | TEXT
ANY = st.none() | st.booleans() | VALUE | st.lists(VALUE, max_size=2)


def page(values: list[Any], texts: list[str], reports: list[Any]) -> tuple[list[Any], Any]:
    """Columns as a record gives them, and the parameters."""
    count = len(values)
    given: list[Any] = [
        list(range(count)),
        [index % 2 for index in range(count)],
        [index - 1 for index in range(count)],
        [index % 3 for index in range(count)],
        [0.125] * count,
        [2.0000004] * count,
        [7] * count,
        texts,
        [1.7e9] * count,
        [1.7e9 + 0.25] * count,
        texts,
        [None if report is None else json.dumps({"r": report}) for report in reports],
        [0] * count,
        texts,
    ]
    return given, lambda tasks: [[values[task] for task in tasks]]


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
