"""Rows files: read here as the server reads them."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.bagfile.draft.rowsfile import count_rows, read_names, read_rows, text_columns
from covey.bagfile.format.parts import RowsFile
from covey.core.errors import InvalidBag
from covey.core.values.space import Scalar
from covey.store.results.row_tables import RowTable, index


def rows_of(path: Path, form: str) -> tuple[tuple[str, ...], list[list[Scalar]]]:
    file = RowsFile(str(path), form, path.name)
    return read_names(file), list(read_rows(file))


def served(path: Path, form: str) -> tuple[tuple[str, ...], list[list[Scalar]]]:
    found = index(path, form)
    return found.names, RowTable(path, form, found).read(0, found.count)


GOOD = [
    ("csv", "a,b\n1,2\n"),
    ("csv", "\ufeffa,b b,c-c\r\n1,,x\r\n\r\n01,0.10,1e3\r\n"),
    ("csv", '"a",b\n"x\ny","q""q"\n  \n3,4'),
    ("csv", "a\nx\n\ny\n"),
    ("csv", "\na,b\n1,2\n"),
    ("jsonl", '{"a": 1, "b": "x"}\n\n{"b": null, "a": true}\n'),
    ("jsonl", '{"a": 1.5, "b c": 99999999999999999999}'),
    ("lines", "a b\n\n 7 \n7\r\n  \nx"),
]


@pytest.mark.parametrize(("form", "text"), GOOD)
def test_like_the_server(tmp_path: Path, form: str, text: str) -> None:
    path = tmp_path / "rows"
    path.write_bytes(text.encode())
    assert rows_of(path, form) == served(path, form)


CELLS = st.lists(st.sampled_from(["1", "01", "x", '"a,b"', '"c\nd"', "", " ", "é"]), max_size=3)


@given(st.lists(CELLS, max_size=6), st.sampled_from(["csv", "lines"]), st.sampled_from("\n|\r\n"))
def test_like_the_server_whatever_it_is(
    tmp_path_factory: pytest.TempPathFactory, rows: list[list[str]], form: str, end: str
) -> None:
    path = tmp_path_factory.getbasetemp() / "rows"
    end = "\n" if end == "|" else end
    lines = [",".join(cells) for cells in rows]
    path.write_bytes("\n".join(["a,b", *lines] if form == "csv" else lines).encode())
    try:
        expected = served(path, form)
    except InvalidBag:
        expected = None
    try:
        found = rows_of(path, form)
    except InvalidBag:
        found = None
    if expected is not None:
        assert found == expected
    else:
        assert found is None


@pytest.mark.parametrize(
    ("form", "text", "told"),
    [
        ("csv", "", "no rows"),
        ("csv", "a,b\n", "rows: there are no rows"),
        ("lines", "", "no rows"),
        ("csv", "a b,1c\n", "is not a name for a parameter"),
        ("csv", "a,task\n", "task's number"),
        ("csv", "a b,a-b\n", "both called a_b"),
        ("csv", "a,b\n1\n", "row 1 has 1 columns, not 2"),
        ("csv", 'a,b\n"x', "a quote is never closed"),
        ("csv", '"a', "first row"),
        ("jsonl", "x\n", "row 1: each line must be one JSON object"),
        ("jsonl", '{"a": 1}\n{"b": 1}\n', "row 2: Object contains unknown field"),
        ("jsonl", '{"a": [1]}\n', "row 1: a: Expected"),
        ("jsonl", "", "no rows"),
        ("csv", "\xff", "UTF-8"),
        ("lines", "\xff", "UTF-8"),
    ],
)
def test_refusals(tmp_path: Path, form: str, text: str, told: str) -> None:
    path = tmp_path / "rows"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(InvalidBag, match=told):
        rows_of(path, form)


def test_a_missing_file_has_a_suggestion(tmp_path: Path) -> None:
    (tmp_path / "cases.csv").write_text("a\n1\n")
    with pytest.raises(InvalidBag, match=r"did you mean .*cases\.csv"):
        read_names(RowsFile(str(tmp_path / "case.csv"), "csv", "case.csv"))


@pytest.mark.parametrize("middle", [0, 20_000])
@pytest.mark.parametrize("odd", ["first", "last", "none"])
def test_the_same_columns_are_text(tmp_path: Path, middle: int, odd: str) -> None:
    path = tmp_path / "rows.csv"
    first, last = ("007" if odd == "first" else "7"), ("007" if odd == "last" else "7")
    lines = ["a,b", f"{first},x", *(["0,1"] * middle), f"{last},2"]
    path.write_text("\n".join(lines))
    file, served_names = RowsFile(str(path), "csv", "rows.csv"), index(path, "csv").text_names
    assert {("a", "b")[place] for place in text_columns(file)} == set(served_names)
    assert ("a" in served_names) is (odd != "none")
    assert count_rows(file, 10**9) == middle + 2
    assert count_rows(file, 10) >= 10 or middle == 0
