"""A few tasks of a bag: the right ones, and at once."""

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.bagfile import Draft, select
from covey.bagfile.draft import selection
from covey.bagfile.draft.points import count_tasks, values_of
from covey.core.errors import InvalidBag
from covey.core.record.model import Segment
from covey.core.record.task_numbers import check_segment, readings_in
from covey.core.values.columns import Column, ColumnKind
from covey.core.values.comparisons import holds, understand
from covey.core.values.scalars import read
from covey.core.values.space import Scalar, size
from tests.unit.bagfile.reading import draft

SWEEP = """
command = "true {a} {b} {c} {d}"
zip = ["b", "c"]
[parameters]
a = "1..4"
b = [10, 20, 30]
c = ["x", "y", "z"]
d = "1..0..-0.25"
"""


def tasks(found: Draft) -> list[list[Scalar]]:
    check_segment(Segment(space=found.spec.space, rows=None))
    return list(values_of(found, 10_000))


def words(found: Draft) -> str:
    assert found.taken is not None
    return found.taken.words


def of_rows(here: Path, rows: str, more: str = "") -> Draft:
    (here / "r.csv").write_text(rows)
    return draft(f"command = 'true {{n}} {{m}}'\nrows = 'r.csv'\n{more}", here)


def expected(whole: Draft, first: int | None, where: list[str]) -> list[list[Scalar]]:
    """Task by task, as `covey results` would look at them."""
    readings = readings_in(Segment(space=whole.spec.space))
    columns = [
        Column(name, ColumnKind.PARAMETER, name, place, reading)
        for place, (name, reading) in enumerate(zip(whole.names, readings, strict=True))
    ]
    tests = understand(where, columns)
    found = []
    for values in values_of(whole, 10_000):
        seen = [read(one, reading) for one, reading in zip(values, readings, strict=True)]
        if all(holds(one, seen[one.column.place], values[one.column.place]) for one in tests):
            found.append(values)
    return found[:first]


COMPARISONS = st.one_of(
    st.builds("{} {} {}".format, st.sampled_from("ad"), st.sampled_from(["<", "<=", ">", ">="]),
              st.sampled_from(["0", "0.25", "0.5", "2", "3.5", "9", "-1"])),
    st.builds("{} {} {}".format, st.sampled_from("ad"), st.sampled_from(["=", "==", "!=", "~"]),
              st.sampled_from(["0", "0.5", "2", "'2'", "x"])),
    st.sampled_from(["b in 10,30", "b != 20", "c = y", "c != 'x'", "c > x", "a in 1,4", "a in 3"]),
)  # fmt: skip


@given(st.lists(COMPARISONS, max_size=3), st.one_of(st.none(), st.integers(1, 70)))
def test_as_if_each_task_were_looked_at(where: list[str], first: int | None) -> None:
    whole = draft(SWEEP)
    wanted = expected(whole, first, where)
    if not wanted:
        with pytest.raises(InvalidBag, match="none of 60 tasks meets"):
            select(whole, first, where)
        return
    found = select(whole, first, where)
    assert tasks(found) == wanted
    if where or first:
        assert found.taken is not None
        assert (found.taken.tasks, found.taken.total) == (len(wanted), 60)


def test_words() -> None:
    assert words(select(draft(SWEEP), 3, ())) == "3 of 60 tasks"
    assert words(select(draft(SWEEP), 1000, ())) == "60 of 60 tasks"
    assert words(select(draft("command = 'true'"), 3, ())) == "1 of 1 task"
    assert select(draft(SWEEP), None, ()).taken is None


def test_values_keep_their_spelling() -> None:
    found = select(draft("command = 'true {a}'\n[parameters]\na = '0.10,0.2,1e-1'"), 1, ["a < 0.2"])
    assert tasks(found) == [["0.10"]]


@pytest.mark.parametrize(
    ("first", "where", "told"),
    [
        (0, (), "expected 1 task or more, not 0"),
        (-3, (), "not -3"),
        (None, ("alpha < 1",), "there is no parameter 'alpha'. Parameters: a, b, c, d"),
        (None, ("bb < 1",), "there is no parameter 'bb'; did you mean 'b'?"),
        (None, ("a < 1 and b = 2",), "is not one value"),
        (None, ("a",), "'a' is not a comparison"),
        (None, ("a < b",), "not with another column"),
        (5, ("a > 4", "b = 10"), "none of 60 tasks meets a > 4 && b = 10"),
    ],
)
def test_refusals(first: int | None, where: tuple[str, ...], told: str) -> None:
    with pytest.raises(InvalidBag) as caught:
        select(draft(SWEEP), first, where)
    assert told in str(caught.value)


def test_a_bag_without_parameters() -> None:
    with pytest.raises(InvalidBag, match="no parameters"):
        select(draft("command = 'true'"), None, ["a = 1"])


def test_names_that_only_look_like_numbers_are_text() -> None:
    text = "command = 'true {a}'\n[parameters]\na = ['007', '10', '9']"
    with pytest.raises(InvalidBag, match="a is text"):
        select(draft(text), None, ["a > 8"])
    assert tasks(select(draft(text), None, ["a > '1'"])) == [["10"], ["9"]]


LARGE = """
command = "true {a} {b} {c}"
[parameters]
a = "1..10000000"
b = "1..100"
c = "x,y"
"""


@pytest.mark.parametrize(
    ("first", "where", "wanted", "count"),
    [
        (3, (), [[1, 1, "x"], [1, 1, "y"], [1, 2, "x"]], 3),
        (2, ("a > 9999998", "c = y"), [[9999999, 1, "y"], [9999999, 2, "y"]], 2),
        (None, ("a == 7777777", "b <= 2", "c = x"), [[7777777, 1, "x"], [7777777, 2, "x"]], 2),
        (None, ("a < 5000001",), [], 5_000_000 * 200),
        (1, ("a ~ 77",), [[77, 1, "x"]], 1),
    ],
)
def test_large_spaces_answer_at_once(
    first: int | None, where: tuple[str, ...], wanted: list[list[Scalar]], count: int
) -> None:
    whole = draft(LARGE)
    began = time.process_time()
    found = select(whole, first, where)
    assert time.process_time() - began < 1.0
    assert size(found.spec.space) == count
    if wanted:
        assert tasks(found) == wanted


def test_ten_million_tasks() -> None:
    whole = draft("command = 'true {a}'\n[parameters]\na = '1..10000000'")
    began = time.process_time()
    found = select(whole, 3, ())
    assert (tasks(found), words(found)) == ([[1], [2], [3]], "3 of 10,000,000 tasks")
    assert size(select(whole, 5_000_000, ()).spec.space) == 5_000_000
    assert time.process_time() - began < 1.0


def test_there_is_an_end_to_what_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "MOST_LOOKED", 50)
    whole = draft("command = 'true {a}'\n[parameters]\na = '1..100'")
    with pytest.raises(InvalidBag, match="there are more than 50 values of a; no more are read"):
        select(whole, None, ["a != 3"])
    assert len(tasks(select(whole, 4, ["a != 3"]))) == 4
    assert len(tasks(select(whole, None, ["a > 3"]))) == 97


def test_there_is_an_end_to_what_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "MOST_LISTED", 50)
    with pytest.raises(InvalidBag, match="more than 50 tasks"):
        select(draft(SWEEP), 51, ())
    with pytest.raises(InvalidBag, match="more than 50 tasks"):
        select(draft("command = 'true {a}'\n[parameters]\na = '1..100'"), None, ["a != 3"])


ROWS = "n,code\n1,007\n2,010\n3,12\n4,x\n"


@pytest.mark.parametrize(
    ("first", "where", "wanted"),
    [
        (3, (), [[1, "007", 1], [1, "007", 2], [2, "010", 1]]),
        (None, ("n > 2",), [[3, 12, 1], [3, 12, 2], [4, "x", 1], [4, "x", 2]]),
        (None, ("n > 2", "m = 2"), [[3, 12, 2], [4, "x", 2]]),
        (1, ("code = '12'",), [[3, 12, 1]]),
        (None, ("code in 007,x && m < 2",), [[1, "007", 1], [4, "x", 1]]),
    ],
)
def test_rows(
    tmp_path: Path, first: int | None, where: tuple[str, ...], wanted: list[list[Scalar]]
) -> None:
    found = select(of_rows(tmp_path, ROWS, "[parameters]\nm = [1, 2]"), first, where)
    assert found.rows is None
    assert [list(map(str, one)) for one in tasks(found)] == [list(map(str, x)) for x in wanted]
    assert words(found) == f"{len(wanted)} of 8 tasks"


def test_rows_stay_in_their_file_if_all_are_taken(tmp_path: Path) -> None:
    found = select(of_rows(tmp_path, ROWS, "[parameters]\nm = [1, 2]"), None, ["m = 2"])
    assert found.rows is not None
    assert (count_tasks(found), words(found)) == (4, "4 of 8 tasks")


def test_columns_of_rows_are_text_if_one_value_is(tmp_path: Path) -> None:
    whole = of_rows(tmp_path, ROWS, "[parameters]\nm = [1, 2]")
    with pytest.raises(InvalidBag, match="code is text"):
        select(whole, 1, ["code > 8"])


def test_many_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "MOST_LOOKED", 50)
    whole = of_rows(tmp_path, "n,m\n" + "".join(f"{n},x\n" for n in range(100)))
    found = select(whole, 3, ["n != 1"])
    assert [values[0] for values in tasks(found)] == [0, 2, 3]
    assert words(found) == "3 of more than 50 tasks"
    with pytest.raises(InvalidBag, match=r"there are more than 50 rows in r.csv; no more are read"):
        select(whole, None, ["n > 90"])
    with pytest.raises(InvalidBag, match="no more are read"):
        select(whole, 3, ["n > 90"])
