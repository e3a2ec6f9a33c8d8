"""Rows of files: whatever a file looks like, its rows are counted and read right, or refused with
words that say where."""

import csv
import hashlib
import io
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from covey.core.errors import InvalidBag, NotFound, StoreFailed
from covey.core.record.actions import LoadRows
from covey.core.record.events import RowsFailed, RowsLoaded
from covey.core.record.model import BagId, Rows
from covey.core.values.scalars import scalar
from covey.core.values.space import Scalar
from covey.rowfiles import pieces
from covey.store.files.blobs import Blobs
from covey.store.results import row_tables as module
from covey.store.results.row_tables import RowLoader, RowTable, TableFiles, index


@pytest.fixture(params=[8, 100, 32 << 10])
def block(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(pieces, "BLOCK_BYTES", request.param)
    return int(request.param)


def table_of(folder: Path, content: bytes, form: str) -> RowTable:
    path = folder / "rows"
    path.write_bytes(content)
    return RowTable(path, form, index(path, form))


def rows_of(folder: Path, content: bytes, form: str) -> list[list[Scalar]]:
    table = table_of(folder, content, form)
    found = table.read(0, table.index.count)
    assert len(found) == table.index.count
    return found


# -- lines ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "values"),
    [
        (b"a\nb\nc\n", ["a", "b", "c"]),
        (b"a\nb\nc", ["a", "b", "c"]),
        (b"a\r\nb\r\nc", ["a", "b", "c"]),
        (b"\xef\xbb\xbfa\nb\n", ["a", "b"]),
        (b"\n\na\n\n \t\nb\r\n\r\n\n", ["a", "b"]),
        (b"1\n01\n0.5\n  x y  \n", [1, "01", 0.5, "  x y  "]),
        ("größe\n\u2028\n\u00a0\n".encode(), ["größe", "\u2028", "\u00a0"]),
        (b"x" * 500 + b"\ny\n" + b"z" * 500, ["x" * 500, "y", "z" * 500]),
        (b"\n" * 300 + b"a\n" + b"\n" * 300 + b"b", ["a", "b"]),
    ],
)
@pytest.mark.usefixtures("block")
def test_lines(tmp_path: Path, content: bytes, values: list[Scalar]) -> None:
    assert rows_of(tmp_path, content, "lines") == [[value] for value in values]


@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(content=st.text("ab1\r\n \té\x0b\x1c\u2028", max_size=60))
@pytest.mark.usefixtures("block")
def test_any_lines(tmp_path: Path, content: str) -> None:
    """As one would count them by hand."""
    lines = [line.removesuffix("\r") for line in content.split("\n")]
    expected = [[scalar(line)] for line in lines if line.strip(" \t\r\v\f")]
    if not expected:
        with pytest.raises(InvalidBag, match="no rows"):
            index_of(tmp_path, content.encode(), "lines")
    else:
        assert rows_of(tmp_path, content.encode(), "lines") == expected


# -- CSV -----------------------------------------------------------------------------------

CELLS = st.text("ab\"',\r\n \té;01.-", max_size=6) | st.integers().map(str) | st.floats().map(str)


@st.composite
def csv_tables(draw: st.DrawFn) -> tuple[list[list[str]], dict[str, Any]]:
    width = draw(st.integers(1, 4))
    row = st.lists(CELLS, min_size=width, max_size=width)
    rows = draw(st.lists(row, min_size=1, max_size=12))
    quoting = st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC])
    how = {"quoting": draw(quoting), "lineterminator": draw(st.sampled_from(["\n", "\r\n"]))}
    if how == {"quoting": csv.QUOTE_MINIMAL, "lineterminator": "\n"}:
        # Python's writer leaves a lone CR without quotes then, and its reader refuses that.
        rows = [[cell.replace("\r", "") for cell in row] for row in rows]
    return rows, how


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(table=csv_tables(), data=st.data())
@pytest.mark.usefixtures("block")
def test_any_csv_reads_back(
    tmp_path: Path, table: tuple[list[list[str]], dict[str, Any]], data: st.DataObject
) -> None:
    rows, how = table
    text = io.StringIO(newline="")
    writer = csv.writer(text, **how)
    writer.writerow([f"name{number}" for number in range(len(rows[0]))])
    writer.writerows(rows)
    expected = [[scalar(cell) for cell in row] for row in rows]
    found = table_of(tmp_path, text.getvalue().encode(), "csv")
    assert found.index.names == tuple(f"name{number}" for number in range(len(rows[0])))
    assert found.index.count == len(rows)
    assert found.read(0, len(rows)) == expected
    first = data.draw(st.integers(0, len(rows)))
    stop = data.draw(st.integers(first, len(rows) + 2))
    assert found.read(first, stop) == expected[first:stop]


@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(content=st.text('ab,"\r\n ', max_size=40))
@pytest.mark.usefixtures("block")
def test_csv_written_by_hand(tmp_path: Path, content: str) -> None:
    """What is accepted is what Python's own reader finds in the whole."""
    given_ = "x,y\n" + content
    try:
        found = rows_of(tmp_path, given_.encode(), "csv")
    except InvalidBag:
        return
    rows = list(csv.reader(io.StringIO(given_, newline="\n"), strict=True))[1:]
    assert found == [row for row in rows if len(row) == 2]
    assert all(len(row) == 2 or not "".join(row).strip() for row in rows)


@pytest.mark.usefixtures("block")
def test_csv_as_it_comes(tmp_path: Path) -> None:
    content = b'\xef\xbb\xbf alpha ,run-id,"a note"\r\n\r\n'
    content += b'0.10,1,"says ""hi"",\r\nand goes"\r\n   \r\n2,,x'
    table = table_of(tmp_path, content, "csv")
    assert table.index.names == ("alpha", "run_id", "a_note")
    assert table.read(0, 9) == [["0.10", 1, 'says "hi",\r\nand goes'], [2, "", "x"]]


@pytest.mark.usefixtures("block")
def test_a_quote_inside_a_plain_cell(tmp_path: Path) -> None:
    content = b'size,what\n5" wide,pipe\n6" wide,"pipe, long"\n7,x\n'
    assert rows_of(tmp_path, content, "csv") == [
        ['5" wide', "pipe"],
        ['6" wide', "pipe, long"],
        [7, "x"],
    ]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "no rows"),
        (b"\n\n", "no rows"),
        (b"a,b\n", "no rows"),
        (b"a,b\n1,2\n\n1,2,3\n", r"row 2 has 3 columns, not 2 \(a, b\)"),
        (b"a,b\n1,2\n1\n", "row 2 has 1 columns, not 2"),
        (b"a,b\n" + b"1,2\n" * 9000 + b"1,2,3\n", "row 9001 has 3 columns"),
        (b'a,b\n1,2\n1,"2\n', "row 2: a quote is never closed"),
        (b'a,b\n1,"2"3\n', "row 1: ',' expected"),
        (b"a,b\n1,2\r3,4\n", "row 1: new-line character seen"),
        (b"a,b\n1,2\n1,\xff\n", "row 2 is not text in UTF-8"),
        (b"a,b\n1,2\n1,\0\n", "row 2 has a NUL byte"),
        (b"\xff\xfea\0,\0b\0\n\0", "row 1"),
        (b"a,b,a\n1,2,3\n", "'a' and 'a' are both called a"),
        (b"a b,a-b\n1,2\n", "'a b' and 'a-b' are both called a_b"),
        (b"a,1b\n1,2\n", r"column '1b' is not a name for a parameter"),
        (b"a,\n1,2\n", "column '' is not a name"),
        (b"a;b\n1;2\n", "separated by commas"),
        (b"task,b\n1,2\n", "{task} is the task's number"),
        (b'"a\n1,2\n', "the first row, with the names"),
        (b"a,b\n1," + b"2" * 200_000 + b"\n", "row 1: field larger than field limit"),
        (b"a,b\n1,2\n" + b"x" * (5 << 20), "row 2 is longer than"),
        (b"x" * (5 << 20), "first row is longer than"),
    ],
    ids=lambda value: repr(value[:30]),
)
def test_csv_that_cannot_be_used(tmp_path: Path, block: int, content: bytes, words: str) -> None:
    with pytest.raises(InvalidBag, match=words):
        index_of(tmp_path, content, "csv")


def index_of(folder: Path, content: bytes, form: str) -> None:
    path = folder / "rows"
    path.write_bytes(content)
    index(path, form)


# -- JSON Lines ----------------------------------------------------------------------------


@pytest.mark.usefixtures("block")
def test_jsonl(tmp_path: Path) -> None:
    content = (
        b'\n{"a b": 1, "class": "x"}\r\n \n{"class": "\xc3\xa9\\n", "a b": 0.5}\n'
        b'{"a b": true, "class": null}\n{"a b": 123456789012345678901, "class": "1"}'
    )
    table = table_of(tmp_path, content, "jsonl")
    assert table.index.names == ("a_b", "class")
    expected = [[1, "x"], [0.5, "é\n"], ["true", ""], ["123456789012345678901", "1"]]
    assert table.read(0, 9) == expected


@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    rows=st.lists(
        st.fixed_dictionaries(
            {
                "x": st.text(st.characters(codec="utf-8"), max_size=5)
                | st.integers(-(2**63) + 1, 2**63 - 1),
                "y": st.floats(allow_nan=False, allow_infinity=False),
            }
        ),
        min_size=1,
        max_size=12,
    ),
    ascii_only=st.booleans(),
    data=st.data(),
)
@pytest.mark.usefixtures("block")
def test_any_jsonl_reads_back(
    tmp_path: Path, rows: list[dict[str, Any]], ascii_only: bool, data: st.DataObject
) -> None:
    text = "\n".join(json.dumps(row, ensure_ascii=ascii_only) for row in rows)
    table = table_of(tmp_path, text.encode(), "jsonl")
    names = list(rows[0])
    first = data.draw(st.integers(0, len(rows)))
    assert table.read(first, len(rows)) == [[row[name] for name in names] for row in rows[first:]]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "no rows"),
        (b"{}\n{}\n", "no columns"),
        (b'{"a": 1}\n\n{"b": 2}\n', "row 2: Object missing required field 'a'|unknown field 'b'"),
        (b'{"a": 1}\n{"a": 1, "b": 2}\n', "row 2: Object contains unknown field 'b'"),
        (b'{"a": [1]}\n', "row 1: a: Expected .*got 'array'"),
        (b'{"a": 1}\n[1]\n', "row 2: Expected 'object', got 'array'"),
        (b'{"a": 1}\n{"a"\n', "row 2: each line must be one JSON object"),
        (b'{"a":\n 1}\n', "row 1: each line must be one JSON object"),
        (b'{"a": 1}\n{"a": 1} {"a": 2}\n', "row 2: each line must be one JSON object"),
        (b'{"a": NaN}\n', "row 1: each line must be one JSON object"),
        (b'{"a": 1}\n{"a": "\xff"}\n', "row 2 is not text in UTF-8"),
        (b'{"x.y": 1}\n', "column 'x.y' is not a name"),
        (b'{"a": 1}\n{"a": ' + b"[" * 50_000 + b"\n", "row 2: "),
    ],
    ids=lambda value: repr(value[:30]),
)
def test_jsonl_that_cannot_be_used(tmp_path: Path, block: int, content: bytes, words: str) -> None:
    with pytest.raises(InvalidBag, match=words):
        index_of(tmp_path, content, "jsonl")


def test_an_unknown_form(tmp_path: Path) -> None:
    with pytest.raises(InvalidBag, match="forms: csv, jsonl, lines"):
        index_of(tmp_path, b"x", "xlsx")


# -- among the blobs -----------------------------------------------------------------------


@pytest.fixture
def blobs(tmp_path: Path) -> Blobs:
    return Blobs(tmp_path / "files")


@pytest.fixture
def files(blobs: Blobs) -> TableFiles:
    return TableFiles(blobs)


def put(blobs: Blobs, data: bytes) -> str:
    digest = hashlib.sha256(data).hexdigest()
    assert blobs.put_piece(digest, 0, len(data), data).complete
    return digest


MANY = b"".join(b"%d,%d\n" % (number, number * number) for number in range(50_000))


def test_described_and_read(blobs: Blobs, files: TableFiles) -> None:
    digest = put(blobs, b"n,square\n" + MANY)
    rows = files.describe(digest, "csv")
    size = rows.row_bytes
    assert len(MANY) // 50_000 < size < 30, "as long as the last rows are"
    told = Rows(digest=digest, form="csv", names=("n", "square"), count=50_000, row_bytes=size)
    assert rows == told
    assert files.read(rows, 49_998, 50_010) == [[n, n * n] for n in (49_998, 49_999)]
    point = files.point(rows)
    for row in (0, 49_999, 25_000, 25_001, 3):
        assert point(row) == [row, row * row]
    for row in (-1, 50_000):
        with pytest.raises(IndexError):
            point(row)


def test_one_long_row_is_told(blobs: Blobs, files: TableFiles) -> None:
    digest = put(blobs, b"short\n" * 1000 + b"x" * 1_000_000 + b"\n" + b"short\n" * 100_000)
    assert files.describe(digest, "lines").row_bytes > 100_000


def test_the_same_file_in_two_forms(blobs: Blobs, files: TableFiles) -> None:
    digest = put(blobs, b"a,b\n1,2\n")
    assert files.describe(digest, "csv").count == 1
    assert files.read(files.describe(digest, "lines"), 0, 5) == [["a,b"], ["1,2"]]


def test_an_index_is_made_once(
    blobs: Blobs, files: TableFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = put(blobs, MANY)
    rows = files.describe(digest, "lines")
    monkeypatch.setattr(module, "index", lambda path, form: pytest.fail("indexed again"))
    assert files.describe(digest, "lines") == rows
    again = TableFiles(Blobs(blobs.folder))
    assert again.describe(digest, "lines") == rows
    assert again.read(rows, 7, 8) == [["7,49"]]


@pytest.mark.parametrize("spoilt", [b"", b"garbage", None])
def test_a_spoilt_index_is_made_again(blobs: Blobs, spoilt: bytes | None) -> None:
    digest = put(blobs, MANY)
    rows = TableFiles(blobs).describe(digest, "lines")
    place = blobs.path(digest).with_name(blobs.path(digest).name + ".lines.index")
    if spoilt is None:
        place.unlink()
    else:
        place.write_bytes(spoilt)
    assert TableFiles(blobs).describe(digest, "lines") == rows
    assert len(place.read_bytes()) > 50


def test_many_ask_at_once_and_one_indexes(
    blobs: Blobs, files: TableFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = put(blobs, MANY)
    real, made, found = module.index, [], []

    def noted(path: Path, form: str) -> module.Index:
        made.append(form)
        return real(path, form)

    monkeypatch.setattr(module, "index", noted)

    def ask() -> None:
        found.append(files.describe(digest, "lines").count)

    askers = [threading.Thread(target=ask) for _ in range(8)]
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join()
    assert found == [50_000] * 8
    assert made == ["lines"]


def test_what_is_not_here(blobs: Blobs, files: TableFiles) -> None:
    digest = put(blobs, MANY)
    rows = files.describe(digest, "lines")
    blobs.collect(set(), -10)
    for call in (
        lambda: files.describe(digest, "lines"),
        lambda: files.read(rows, 0, 1),
        lambda: files.point(rows)(0),
    ):
        with pytest.raises(NotFound):
            call()
    assert list(blobs.folder.glob("*/*")) == []


def test_a_file_that_changed(blobs: Blobs, files: TableFiles) -> None:
    digest = put(blobs, MANY)
    rows = files.describe(digest, "lines")
    blobs.path(digest).write_bytes(MANY.replace(b"7", b"\n"))
    with pytest.raises(StoreFailed, match="was changed after the bag was submitted"):
        files.read(rows, 0, 50_000)


# -- the port ------------------------------------------------------------------------------


@pytest.fixture
def posted() -> list[Any]:
    return []


@pytest.fixture
def loader(files: TableFiles, posted: list[Any]) -> Iterator[RowLoader]:
    made = RowLoader(files, posted.append)
    yield made
    made.close()


def test_rows_are_loaded_in_order(
    blobs: Blobs, files: TableFiles, loader: RowLoader, posted: list[Any]
) -> None:
    rows = files.describe(put(blobs, MANY), "lines")
    for first in (0, 40_000, 3):
        loader.load(LoadRows(BagId(7), first, rows, first, first + 2))
    loader.close()
    assert posted == [
        RowsLoaded(BagId(7), 0, [["0,0"], ["1,1"]]),
        RowsLoaded(BagId(7), 40_000, [["40000,1600000000"], ["40001,1600080001"]]),
        RowsLoaded(BagId(7), 3, [["3,9"], ["4,16"]]),
    ]


def test_what_cannot_be_loaded_is_said(
    blobs: Blobs,
    files: TableFiles,
    loader: RowLoader,
    posted: list[Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = files.describe(put(blobs, MANY), "lines")
    loader.load(LoadRows(BagId(7), 0, rows, 49_999, 50_001))
    loader.close()
    loader = RowLoader(files, posted.append)
    blobs.collect(set(), -10)
    loader.load(LoadRows(BagId(7), 1, rows, 0, 1))
    loader.close()
    loader = RowLoader(files, posted.append)
    monkeypatch.setattr(files, "read", lambda *args: 1 // 0)
    loader.load(LoadRows(BagId(7), 2, rows, 0, 1))
    loader.close()
    assert [type(event) for event in posted] == [RowsFailed] * 3
    reasons = [event.reason for event in posted]
    assert "fewer" in reasons[0]
    assert "not on this server" in reasons[1]
    assert "ZeroDivisionError" in reasons[2]


@pytest.mark.parametrize(("form", "mark"), [("tsv", b"\t"), ("semicolons", b";")])
def test_other_separators(tmp_path: Path, form: str, mark: bytes) -> None:
    content = b'a,b\n1,x y\n,\n2,"p,q"\n'.replace(b",", mark)
    quoted = f"p{mark.decode()}q"
    assert rows_of(tmp_path, content, form) == [[1, "x y"], ["", ""], [2, quoted]]


def test_columns_that_only_look_like_numbers_are_text(tmp_path: Path) -> None:
    content = b"id,lr,day\n100,0.10,2024-05-01\n007,1e-3,2024-05-02\n"
    assert table_of(tmp_path, content, "csv").index.text_names == ("id", "day")
