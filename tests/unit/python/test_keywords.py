"""Keywords mean what a bag file means."""

import enum
import inspect
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import covey
from covey.bagfile import Sheet, parse_sheet, read_draft
from covey.bagfile.format.keys import TOP
from covey.core.errors import InvalidBag
from covey.core.record.model import BagSpec
from covey.core.values.space import indexer, names, size
from covey.python.keywords import in_order, plain, read_keywords


def spec_of(sheet: Sheet) -> BagSpec:
    return read_draft(sheet, {}, lambda text: None).spec


def said(**given: Any) -> BagSpec:
    return spec_of(read_keywords(given))


def points(spec: BagSpec) -> list[dict[str, object]]:
    point = indexer(spec.space)
    return [dict(zip(names(spec.space), point(i), strict=True)) for i in range(size(spec.space))]


def complaint(**given: Any) -> str:
    with pytest.raises(InvalidBag) as caught:
        said(**{"command": "true", **given})
    return str(caught.value)


def test_every_key_of_a_bag_file_is_a_keyword_and_no_other() -> None:
    taken = inspect.signature(covey.submit).parameters
    assert set(taken) == {*TOP, "file", "key", "first", "where"}


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ("memory", "; write: resources={'memory': …}"),
        ("memory_mb", "; write: resources={'memory': …}"),
        ("limit", "; write: resources={'time': …}"),
        ("JobRequirements", "; write: policy={'requirements': …}"),
        ("params", "; did you mean 'parameters'?"),
        ("xyzzy", ""),
    ],
)
def test_an_unknown_keyword_is_told_with_what_was_meant(given: str, hint: str) -> None:
    keywords: Any = {given: "1"}
    with pytest.raises(TypeError) as caught:
        covey.submit("true", **keywords)
    assert str(caught.value) == f"submit() has no keyword '{given}'{hint}"


SAME: list[tuple[str, dict[str, Any]]] = [
    ("command = 'echo {x}'\nparameters.x = '1..100'",
     {"command": "echo {x}", "parameters": {"x": range(1, 101)}}),
    ("command = 'echo {x}'\nparameters.x = '9..1..-2'",
     {"command": "echo {x}", "parameters": {"x": range(9, 0, -2)}}),
    ("command = 'echo'\nparameters.x = [0.5, 1.5]",
     {"command": ["echo"], "parameters": {"x": np.array([0.5, 1.5])}}),
    ("command = ['echo', '3']", {"command": (Path("echo"), 3)}),
    ("script = 'echo'\nargs = ['{x}']\nparameters.x = 'a,b'",
     {"script": "echo", "args": ["{x}"], "parameters": {"x": "a,b"}}),
    ("command = 'a'\nzip = ['x', 'y']\nparameters = {x = [1, 2], y = [3, 4]}",
     {"command": "a", "zip": True, "parameters": {"x": [1, 2], "y": (3, 4)}}),
    ("command = 'a'\nretries.count = 2", {"command": "a", "retries": 2}),
    ("command = 'a'\nretries = {count = 2, memory = 'x2'}\nresources.memory = '1 GB'",
     {"command": "a", "retries": {"count": 2, "memory": "x2"}, "resources": {"memory": "1 GB"}}),
    ("command = 'a'\nenvironment.A = 1\nlabels.b = 'c'\nname = 'n'\nnotes = 'o'",
     {"command": "a", "environment": {"A": 1}, "labels": {"b": "c"}, "name": "n", "notes": "o"}),
    ("command = 'a'\noutputs = ['*.csv']\nvalidate.exit = 3\nidempotent = false\nbreaker = 0",
     {"command": "a", "outputs": "*.csv", "validate": {"exit": 3}, "idempotent": False,
      "breaker": 0}),
    ("command = 'a'\npolicy = 'fast-tail'", {"command": "a", "policy": "fast-tail"}),
    ("command = 'a'\n[policy]\nrank = 3\ndeadline = '30m'\nonly_sites = ['a']\nsticky_tail = true",
     {"command": "a", "policy": {"rank": np.int64(3), "deadline": "30m", "only_sites": ("a",),
                                 "sticky_tail": True}}),
    ("command = 'a'\nsetup = 'make'\nsetup_time = '5m'\nlog_limit = '8 kB'",
     {"command": "a", "setup": "make", "setup_time": "5m", "log_limit": "8 kB"}),
    ("command = 'a'\nopen = true\nexport = true\nparameters.x = []\noutput_limit = '2 MB'",
     {"command": "a", "open": True, "export": True, "parameters": {"x": []},
      "output_limit": "2 MB"}),
]  # fmt: skip


@pytest.mark.parametrize(("toml", "given"), SAME)
def test_keywords_make_the_bag_that_a_file_makes(toml: str, given: dict[str, Any]) -> None:
    assert said(**given) == spec_of(parse_sheet(toml, "x.toml", os.getcwd()))


def test_rows_are_dictionaries_or_a_frame_and_come_before_other_parameters() -> None:
    rows = [{"x": 1, "y": "a"}, {"x": 2, "y": "b"}]
    expected = [
        {"x": 1, "y": "a", "z": 5}, {"x": 1, "y": "a", "z": 6},
        {"x": 2, "y": "b", "z": 5}, {"x": 2, "y": "b", "z": 6},
    ]  # fmt: skip
    for given in (rows, pd.DataFrame(rows), iter(rows)):
        assert points(said(command="a", rows=given, parameters={"z": [5, 6]})) == expected
    assert points(said(command="a", rows=[{"x": 1}, {"x": 2}])) == [{"x": 1}, {"x": 2}]


def test_rows_and_other_parameters_side_by_side_keep_to_themselves() -> None:
    spec = said(
        command="a", rows=[{"x": 1, "y": 2}], parameters={"a": [1, 2], "b": [3, 4]}, zip=True
    )
    assert points(spec) == [{"x": 1, "y": 2, "a": 1, "b": 3}, {"x": 1, "y": 2, "a": 2, "b": 4}]


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([], "submit(): rows: expected the name of a file, a data frame, or a list"),
        ([1, 2], "submit(): rows: expected the name of a file"),
        ([{"x": 1}, {"y": 1}], "submit(): rows: row 1 has y, the first one x"),
        ([{"x": [1]}], "submit(): parameters.x: a value is text or a number, not a list"),
        ([{"x": 1}] * 100_001, "at most 100,000 rows, not 100,001"),
        ("cases.csv", "submit(): rows: there is no file cases.csv"),
    ],
)
def test_rows_that_make_no_sense_are_explained(rows: Any, words: str) -> None:
    assert words in complaint(rows=rows)


def test_everything_wrong_is_told_at_once_in_the_words_of_a_bag_file() -> None:
    told = complaint(
        resources={"memry": "1 GB", "time": "soon"}, retries={"count": -1}, zip=["x", "y"],
        environment={"inherit": ["NOT_SET_HERE"]}, parameters={"x": [True]},
    )  # fmt: skip
    assert "submit(): resources.memry: there is no such key; did you mean 'memory'?" in told
    assert "submit(): resources.time: expected" in told
    assert "submit(): retries.count: expected a whole number" in told
    assert "write NOT_SET_HERE = 'VALUE'" in told
    assert "submit(): parameters.x: a value is text or a number" in told
    assert len(told.splitlines()) >= 5


def test_a_pattern_of_outputs_that_cannot_be() -> None:
    told = complaint(outputs=["good", "x[b-a]"])
    assert told.startswith("submit(): outputs[1]: the output pattern 'x[b-a]' is not valid:"), told


def test_what_is_wrong_with_a_value_is_told_once() -> None:
    rows = pd.DataFrame({"a": [1, float("inf")], "b": ["x", "y"]})
    told = complaint(rows=rows, outputs="{a}.txt")
    assert told == "submit(): parameters.a: inf is not a finite number; write it in quotes"


@pytest.mark.parametrize("given", [{"command": print}, {"command": ["x", print]}, {"script": len}])
def test_a_function_is_no_command(given: dict[str, Any]) -> None:
    words = (
        r"submit\(\): .*: <built-in function .*> is a function; .* covey\.Executor .*@covey\.task"
    )
    assert re.fullmatch(words, complaint(**given))


def test_tables_are_dictionaries() -> None:
    told = complaint(parameters=[1, 2], resources="1 GB", retries="many")
    assert told.splitlines() == [
        "submit(): parameters: expected a dictionary of names and values, not [1, 2]",
        "submit(): resources: expected a dictionary of names and values, not '1 GB'",
        "submit(): retries: expected a dictionary of names and values, not 'many'",
    ]


def test_a_policy_that_makes_no_sense_is_explained() -> None:
    assert complaint(policy={"rank": "1 +", "rnak": 1}).splitlines()[0] == (
        "submit(): policy.rank: line 1, column 4: expected an expression"
    )
    assert "submit(): policy.preset: there is no preset 'fast'; did you" in complaint(policy="fast")
    assert "policy: expected a dictionary of names and values, not 3" in complaint(policy=3)


def test_a_policy_comes_before_what_the_file_says_key_by_key(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_text("command = 'true'\npolicy = 'fast-tail'\n")
    found = spec_of(read_keywords({"policy": {"rank": "3"}}, path)).policy
    assert (found.preset, found.rank) == ("fast-tail", "3")


def test_one_parameter_has_nothing_beside_it() -> None:
    assert points(said(command="a", zip=True, parameters={"x": [1, 2]})) == [{"x": 1}, {"x": 2}]
    assert points(said(command="a", zip=True)) == [{}]


def test_a_command_is_needed() -> None:
    with pytest.raises(InvalidBag, match=r"submit\(\): there is no command"):
        said(parameters={"x": 1})


def test_keywords_come_before_what_the_file_says(tmp_path: Path) -> None:
    path = tmp_path / "sweep.toml"
    path.write_text(
        "command = 'echo {x} {y}'\nname = 'old'\noutputs = ['a']\nresources.cores = 2\n"
        "resources.memory = '1 GB'\nparameters = {x = [1, 2], y = [3]}\nzip = ['x', 'y']\n"
    )
    given = {"parameters": {"x": 7}, "outputs": "b", "resources": {"cores": 4}, "name": "new"}
    spec = spec_of(read_keywords({**given, "zip": False}, path))
    assert (spec.name, spec.outputs, spec.need.cores, spec.need.memory_mb) == (
        "new", ("a", "b"), 4, 1024,
    )  # fmt: skip
    assert points(spec) == [{"x": 7, "y": 3}]
    script = read_keywords({"script": "true", "parameters": {"x": 7}}, path)
    assert spec_of(script).argv == ("./.covey-script",)
    with pytest.raises(InvalidBag, match=r"sweep\.toml:7: zip: zipped parameters"):
        spec_of(read_keywords({}, path))


def test_a_file_that_is_not_there_is_said() -> None:
    with pytest.raises(InvalidBag, match=r"sweeep\.toml: there is no such file"):
        read_keywords({}, "sweeep.toml")


class Colour(enum.StrEnum):
    RED = "red"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.int64(3), 3),
        (np.float64(0.5), 0.5),
        (np.linspace(0, 1, 3), [0.0, 0.5, 1.0]),
        (pd.Series(["a", "b"]), ["a", "b"]),
        (range(0), []),
        (range(5, 6), [5]),
        (Path("a/b"), "a/b"),
        (Colour.RED, "red"),
        ({"x": (1, {"y": range(3)})}, {"x": [1, {"y": {"from": 0, "to": 2, "step": 1}}]}),
        ((x * x for x in (1, 2)), [1, 4]),
        (None, None),
        (b"bytes", b"bytes"),
    ],
)
def test_values_of_other_libraries_become_plain(value: Any, expected: Any) -> None:
    found = plain(value)
    assert found == expected
    assert type(found) is type(expected)


def test_a_long_range_costs_nothing() -> None:
    assert size(said(command="a", parameters={"x": range(4_000_000_000)}).space) == 4_000_000_000


def test_names_follow_the_order_of_the_bag() -> None:
    given = {"parameters": {"b": 1, "a": 2}, "rows": [{"d": 1, "c": 2}], "zip": None}
    found = in_order(given, ["a", "b", "c", "d"])
    assert list(found["parameters"]) == ["a", "b"]  # type: ignore[call-overload]
    assert list(found["rows"][0]) == ["c", "d"]  # type: ignore[index]
    assert "zip" not in found


def test_a_frame_may_have_gaps_flags_and_dates() -> None:
    frame = pd.DataFrame(
        {"a": [1, None], "b": [True, False], "c": pd.to_datetime(["2024-05-01", None])}
    )
    assert points(said(command="true", rows=frame)) == [
        {"a": 1.0, "b": "true", "c": "2024-05-01"},
        {"a": "", "b": "false", "c": ""},
    ]
