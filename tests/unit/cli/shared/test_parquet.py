"""Parquet files: the types of their columns, and that they are whole or not there."""

import builtins
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from covey.cli.shared import parquet
from covey.frontend import columns
from covey.wire import ResultRow
from tests.unit.cli.builders import bag, row


def written(path: Path, values: list[Any], group: int = 2) -> Any:
    """The table with a column `v` of these reported values."""
    view = bag(result_names=["v"])
    rows = iter([row(n, result={} if v is None else {"v": v}) for n, v in enumerate(values)])
    before, parquet.GROUP_ROWS = parquet.GROUP_ROWS, group
    try:
        assert parquet.write(str(path), columns.fields(view), rows) == len(values)
    finally:
        parquet.GROUP_ROWS = before
    return pyarrow.parquet.read_table(path)


@pytest.mark.parametrize(
    ("values", "kind", "kept"),
    [
        ([1, 2, 3], "int64", [1, 2, 3]),
        ([1, 2, 2.5], "double", [1.0, 2.0, 2.5]),
        ([1, 2, 3, 4, 2.5, 5], "double", [1.0, 2.0, 3.0, 4.0, 2.5, 5.0]),
        ([1, 2, "none"], "string", ["1", "2", "none"]),
        ([0.5, 1.5, None, "none"], "string", ["0.5", "1.5", None, "none"]),
        ([None, None, None, 4], "int64", [None, None, None, 4]),
        ([None, None, 0.5], "double", [None, None, 0.5]),
        ([True, False, None], "bool", [True, False, None]),
        ([True, False, 1], "string", ["true", "false", "1"]),
        ([[1], {"a": 2}, 3], "string", ["[1]", '{"a":2}', "3"]),
        ([2**63, 1], "string", [str(2**63), "1"]),
        ([None, None, None], "string", [None, None, None]),
        ([], "string", []),
    ],
)
def test_types_widen(tmp_path: Path, values: list[Any], kind: str, kept: list[Any]) -> None:
    table = written(tmp_path / "t.parquet", values)
    assert str(table.schema.field("v").type) == kind
    assert table.column("v").to_pylist() == kept
    assert os.listdir(tmp_path) == ["t.parquet"]


def test_our_own_columns_have_the_same_types_whatever_is_in_them(tmp_path: Path) -> None:
    kinds = {field.name: str(field.type) for field in written(tmp_path / "t", []).schema}
    assert kinds == {
        field.name: str(field.type) for field in written(tmp_path / "u", [1]).schema
    } | {
        "v": "string",
        "x": "string",
    }
    assert (kinds["task"], kinds["exit"], kinds["seconds"]) == ("int64", "int64", "double")
    assert (kinds["host"], kinds["output"]) == ("string", "string")


@settings(max_examples=30, deadline=None)
@given(
    st.lists(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text("ab1")
    )
)
def test_no_value_is_lost(tmp_path_factory: pytest.TempPathFactory, values: list[Any]) -> None:
    table = written(tmp_path_factory.mktemp("p") / "t", values, group=1)
    found = table.column("v").to_pylist()
    assert [value is None for value in found] == [value is None for value in values]
    if str(table.schema.field("v").type) == "double":
        assert found == [None if value is None else float(value) for value in values]


def test_rows_are_written_in_groups(tmp_path: Path) -> None:
    written(tmp_path / "t", list(range(5)))
    assert pyarrow.parquet.ParquetFile(tmp_path / "t").num_row_groups == 3


def test_what_breaks_off_leaves_nothing(tmp_path: Path) -> None:
    def rows() -> Iterator[ResultRow]:
        yield row(0)
        raise OSError("the server went away")

    with pytest.raises(OSError, match="went away"):
        parquet.write(str(tmp_path / "t"), columns.fields(bag()), rows())
    assert os.listdir(tmp_path) == []


def test_without_pyarrow_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(click.ClickException, match=r"pip install 'covey\[parquet\]'"):
        parquet.modules()
