"""Results as records, as a frame, and as a person sees them."""

import builtins
from typing import Any

import pandas as pd
import pytest

from covey.core.errors import CoveyError
from covey.frontend.columns import with_names
from covey.python.results import Failures, Results
from tests.unit.cli.builders import bag, row
from tests.unit.cli.source import group


def results() -> Results:
    rows = [
        row(0, result={"energy": 1.5}, output="<b>hi</b>"),
        row(1, outcome="failed", exit_code=-1, signal=9, cause="SIGKILL"),
        row(2, result={"energy": -2.0, "steps": 7}),
    ]
    return Results(bag(done=2, failed=1, result_names=["energy"]), rows)


def test_a_result_is_a_record_by_column() -> None:
    first = results()[0]
    assert (first["energy"], first["x"], first["state"], first["task"]) == (1.5, 0, "done", 0)
    assert first.ok
    assert first.parameters == {"x": 0}
    assert first.reported == {"energy": 1.5}
    assert first.seconds == 1.0
    assert dict(first)["host"] == "node1"
    assert len(first) == len(list(first))
    assert repr(first) == "<Result of task 0 (x=0): exit 0; energy=1.5>"
    with pytest.raises(KeyError, match="no column 'enrgy'; there are task, x"):
        first["enrgy"]
    assert first.get("enrgy") is None


def test_columns_are_those_of_the_files_with_what_was_reported_since() -> None:
    found = results()
    assert found.columns[:3] == ["task", "x", "state"]
    assert found.columns[-4:] == ["energy", "steps", "files", "output"]
    assert found.column("energy") == [1.5, None, -2.0]
    assert [record["steps"] for record in found.records()] == [None, None, 7]
    with pytest.raises(KeyError, match="no column 'enrgy'; there are task, x"):
        found.column("enrgy")


def test_a_part_of_the_results_is_results() -> None:
    last = results()[1:]
    assert isinstance(last, Results)
    assert [one.task for one in last] == [1, 2]
    assert not last[0].ok
    assert results()[-1].task == 2


def test_a_frame_has_whole_numbers_where_some_are_missing() -> None:
    frame = results().frame()
    assert list(frame.columns) == results().columns
    assert str(frame["exit"].dtype) == "Int64"
    assert frame["signal"].tolist()[1] == 9
    assert frame["energy"].sum() == -0.5
    assert len(Results(bag(), []).frame()) == 0


def test_without_pandas_there_is_a_way_on(monkeypatch: pytest.MonkeyPatch) -> None:
    original = builtins.__import__

    def refuse(name: str, *args: Any) -> Any:
        if name == "pandas":
            raise ImportError(name)
        return original(name, *args)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(CoveyError, match=r"pip install pandas.*results.records\(\)"):
        results().frame()


def test_a_person_sees_a_table_and_nothing_that_a_task_printed_is_believed() -> None:
    found = Results(bag(done=1), [row(0, output="<script>")])
    assert "<script>" in repr(found)
    assert "&lt;script&gt;" in found._repr_html_()
    assert "<script>" not in found._repr_html_()
    many = Results(bag(done=30), [row(task) for task in range(30)])
    assert repr(many).endswith("… 10 more")
    assert "… 10 more" in many._repr_html_()
    assert repr(Results(bag(), [])) == "(none)"
    long = Results(bag(done=1), [row(0, values=["y" * 10_000])])
    assert len(repr(long)) < 500
    assert len(long._repr_html_()) < 3_000
    assert long[0]["x"] == "y" * 10_000


def test_a_frame_and_a_page_of_the_same_bag_agree() -> None:
    view = with_names(bag(result_names=["a"]), [row(0, result={"b": 1, "a": 2})])
    assert view.result_names == ["a", "b"]
    assert pd.DataFrame(results().records())["x"].tolist() == results().column("x")


def test_failures_say_what_happened_and_where() -> None:
    found = Failures(bag(failed=2), [group(log="<i>\nlast\n"), group(cause="SIGKILL", log="")])
    assert found[0].cause == "exit 1: ValueError: bad"
    assert len(found[1:]) == 1
    assert repr(found).splitlines()[:4] == [
        "1 task: exit 1: ValueError: bad",
        "    on node1; for example task 2",
        "    | <i>",
        "    | last",
    ]
    assert "&lt;i&gt;" in found._repr_html_()
    assert repr(Failures(bag(), [])) == "bag 3 has no failed tasks"


def test_a_column_of_a_frame_has_one_type() -> None:
    view = bag(names=["lr", "id"], readings=["value", "text"], result_names=["ok", "day", "n"])
    rows = [
        row(0, values=["0.10", "007"], result={"ok": True, "day": "2024-05-01", "n": 1}),
        row(1, values=["1e-3", 8], result={"ok": None, "day": "2024-05-02"}),
    ]
    frame = Results(view, rows).frame()
    assert list(frame["lr"]) == [0.1, 0.001]
    assert list(frame["id"]) == ["007", "8"]
    assert str(frame["ok"].dtype) == "boolean"
    assert str(frame["n"].dtype) == "Int64"
    assert str(frame["day"].dtype).startswith("datetime64")
    assert str(frame["started"].dt.tz) == "UTC"


def test_numbers_with_words_among_them_are_text() -> None:
    view = bag(names=["lr"], readings=["value"])
    frame = Results(view, [row(0, values=["0.10"]), row(1, values=["default"])]).frame()
    assert list(frame["lr"]) == ["0.10", "default"]
