"""What every record must do with results: the table and its columns, filters, sorting, exports,
causes of failures, and files."""

import csv
import io
import json
import math
from typing import Any

import pytest

from covey.core.errors import InvalidQuery
from covey.core.record.actions import AppendSegment, LeaseChunk, ReopenFailed, SaveBag, SavePilot
from covey.core.record.model import BagRecord, BagSpec, Segment, Verdict
from covey.core.values.space import Axis, Product, Range, Values
from covey.wire import FailureGroup, ResultQuery, ReturnedFile
from tests.contract.keeping import Kept
from tests.unit.store.builders import (
    BAG,
    a_bag_of,
    bag,
    end,
    ends,
    finished,
    pilot,
    returned,
    successes,
)

WASTE, REPLACES = Verdict.WASTE, Verdict.REPLACES


def a_sweep(kept: Kept) -> None:
    """Eight tasks: alpha 0, 0.5, 1, 1.5 and, varying faster, a model `m` or `n,"1`."""
    space = Product((Axis("alpha", Range("0", "0.5", 4)), Axis("model", Values(("m", 'n,"1')))))
    made = BagRecord(id=BAG, spec=BagSpec(argv=("x",), space=space), total=8, created=1.5)
    kept.record.apply([SavePilot(pilot()), SaveBag(made), LeaseChunk(BAG, 0, 8)])
    reports = {
        0: '{"loss":0.25,"good":true,"who":"me"}',
        1: '{"loss":3,"who":"10"}',
        2: '{"loss":1e-3,"extra":[1,{"a":null}]}',
        4: '{"loss":"none","who":"you, too"}',
        5: '{"loss":null,"good":false,"a \\"b\\"":5}',
    }
    for task in (2, 0, 1, 4, 5, 7):
        one = end(
            task,
            host=f"n{task % 2}",
            ended=1000.3 + task,
            result=reports.get(task, ""),
            stdout=f"line {task}\nlast {task}\n",
        )
        kept.record.apply([ends(one)])
    bad = [end(3, "failed", exit_code=7, cause="exit 7: boom, twice", host="n9", ended=1004.3)]
    bad += [end(6, "failed", exit_code=-1, signal=9, cause="SIGKILL", stderr="out\n")]
    kept.record.apply([ends(*bad)])


def tasks(kept: Kept, *where: str, **how: Any) -> list[int]:
    query = ResultQuery(where=where, **how)
    return [row.task for row in kept.reader.results(BAG, query)]


def exported(kept: Kept, form: str, **how: Any) -> str:
    return b"".join(kept.reader.export(BAG, ResultQuery(**how), form)).decode()


def test_what_a_task_reported_is_in_its_row(kept: Kept) -> None:
    a_sweep(kept)
    rows = {row.task: row for row in kept.reader.results(BAG, ResultQuery())}
    assert rows[0].result == {"loss": 0.25, "good": True, "who": "me"}
    assert rows[2].result == {"loss": 0.001, "extra": [1, {"a": None}]}
    assert (rows[7].result, rows[7].cause) == ({}, "")
    assert (rows[3].result, rows[3].cause) == ({}, "exit 7: boom, twice")
    assert kept.reader.attempts(BAG, 0)[0].result == rows[0].result


def test_names_of_reported_values_are_kept_in_order_of_appearance(kept: Kept) -> None:
    a_sweep(kept)
    view = kept.reader.bag(1)
    assert view is not None
    assert view.result_names == ["loss", "extra", "good", "who", 'a "b"']
    kept.reopen()
    kept.record.apply([ends(end(3, "ok", REPLACES, attempt=(2, 1), result='{"new":1,"loss":2}'))])
    view = kept.reader.bag(1)
    assert view is not None
    assert view.result_names == ["loss", "extra", "good", "who", 'a "b"', "new"]


def test_only_results_that_count_make_columns(kept: Kept) -> None:
    kept.record.apply([*a_bag_of(2), ends(end(0, "failed", WASTE, result='{"a":1}'))])
    view = kept.reader.bag(1)
    assert view is not None
    assert view.result_names == []
    assert kept.reader.attempts(BAG, 0)[0].result == {"a": 1}


@pytest.mark.parametrize("text", ["[1]", "{", '"x"', "{'a':1}", '{"a":NaN}', "[" * 100_000])
def test_what_is_no_report_is_dropped(kept: Kept, text: str) -> None:
    kept.record.apply([*a_bag_of(2), ends(end(0, result=text), end(1, result='{"a":2}'))])
    assert [row.result for row in kept.reader.results(BAG, ResultQuery())] == [{}, {"a": 2}]
    assert tasks(kept, "a > 1") == [1]
    assert exported(kept, "csv").splitlines()[1].endswith(",,0,")


@pytest.mark.parametrize(
    ("where", "found"),
    [
        ("alpha >= 1", [4, 5, 6, 7]),
        ("alpha > 1", [6, 7]),
        ("alpha<0.5", [0, 1]),
        ("alpha <= .5", [0, 1, 2, 3]),
        ("alpha = 0.50", [2, 3]),
        ("alpha == 1e0", [4, 5]),
        ("alpha != 0", [2, 3, 4, 5, 6, 7]),
        ("alpha in 0, 1.5", [0, 1, 6, 7]),
        ("alpha > m", []),
        ("alpha ~ .5", [2, 3, 6, 7]),
        ("model = m", [0, 2, 4, 6]),
        ("model = 'm'", [0, 2, 4, 6]),
        ('model = "n,"1"', [1, 3, 5, 7]),
        ('model ~ ,"', [1, 3, 5, 7]),
        ("model > m", [1, 3, 5, 7]),
        ("model <= m", [0, 2, 4, 6]),
        ("model > 3", []),
        ("task >= 5", [5, 6, 7]),
        ("state = failed", [3, 6]),
        ("state != failed", [0, 1, 2, 4, 5, 7]),
        ("state in done,failed", [0, 1, 2, 3, 4, 5, 6, 7]),
        ("exit = 7", [3]),
        ("exit != 0", [3, 6]),
        ("exit =", [6]),
        ("signal = 9", [6]),
        ("signal = ''", [0, 1, 2, 3, 4, 5, 7]),
        ("seconds >= 5", [5, 7]),
        ("seconds = 4", [3, 4]),
        ("cpu_seconds = 1.25", [0, 1, 2, 3, 4, 5, 6, 7]),
        ("memory_kb < 3412", []),
        ("memory < 2 MB", []),
        ("memory < 1GB", [0, 1, 2, 3, 4, 5, 6, 7]),
        ("time >= 5s", [5, 7]),
        ("time < 1h30m", [0, 1, 2, 3, 4, 5, 6, 7]),
        ("host = n0", [0, 2, 4]),
        ("host in n9,n1", [1, 3, 5, 7]),
        ("started = 1000.3", [0, 1, 2, 3, 4, 5, 6, 7]),
        ("ended > 1005", [5, 7]),
        ("cause ~ boom", [3]),
        ("cause = SIGKILL", [6]),
        ("cause = ''", [0, 1, 2, 4, 5, 7]),
        ("output ~ last 4", [4]),
        ("files = 0", [0, 1, 2, 3, 4, 5, 6, 7]),
        ("loss < 1", [0, 2]),
        ("loss > 1", [1]),
        ("loss >= 3", [1]),
        ("loss = none", [4]),
        ("loss >= a", [4]),
        ("loss < z", [4]),
        ("loss = ''", [3, 5, 6, 7]),
        ("loss != 3", [0, 2, 3, 4, 5, 6, 7]),
        ("good = true", [0]),
        ("good = false", [5]),
        ("who = 10", [1]),
        ("who = '10'", [1]),
        ("who > 9", []),
        ("who ~ o", [4]),
        ("extra ~ null", [2]),
        ('a "b" > 4', [5]),
        ("loss < 1e30", [0, 1, 2]),
        ("loss > -1" + "0" * 30, [0, 1, 2]),
        ("alpha != 1" + "0" * 400, [0, 1, 2, 3, 4, 5, 6, 7]),
        ("cause = exit 7: boom, twice", [3]),
        ('cause = "exit 7: boom, twice"', [3]),
        ("cause != 'x < 4 && y > 1'", [0, 1, 2, 3, 4, 5, 6, 7]),
        ("cause > 'a, b'", [3]),
        ("output ~ a = b", []),
        ("host in 'n0', 'n9'", [0, 2, 3, 4]),
        ("cause in 'exit 7: boom, twice', SIGKILL", [3, 6]),
        ("exit in 7,", [3, 6]),
        ("model = <none>", []),
    ],
)
def test_comparisons(kept: Kept, where: str, found: list[int]) -> None:
    a_sweep(kept)
    assert tasks(kept, where) == found
    assert sorted(tasks(kept, where, by_row=True)) == found
    assert tasks(kept, where, limit=1) == found[:1]
    assert tasks(kept, where, after=3) == [task for task in found if task > 3]
    lines = exported(kept, "jsonl", where=(where,)).splitlines()
    assert [json.loads(line)["task"] for line in lines] == found


def test_all_comparisons_must_hold(kept: Kept) -> None:
    a_sweep(kept)
    assert tasks(kept, "alpha >= 0.5", "model = m", "state = done") == [2, 4]
    assert tasks(kept, "state = failed", "alpha > 1") == [6]
    assert tasks(kept, "state = failed", "state = done") == []
    assert tasks(kept, "alpha > 0", failed_only=True) == [3, 6]


@pytest.mark.parametrize(
    ("sort", "order"),
    [
        ("task", [0, 1, 2, 3, 4, 5, 6, 7]),
        ("-task", [7, 6, 5, 4, 3, 2, 1, 0]),
        ("model", [0, 2, 4, 6, 1, 3, 5, 7]),
        ("-model", [1, 3, 5, 7, 0, 2, 4, 6]),
        ("-alpha", [6, 7, 4, 5, 2, 3, 0, 1]),
        ("seconds", [0, 1, 6, 2, 3, 4, 5, 7]),
        ("-seconds", [7, 5, 3, 4, 2, 6, 1, 0]),
        ("loss", [2, 0, 1, 4, 3, 5, 6, 7]),
        ("-loss", [4, 1, 0, 2, 3, 5, 6, 7]),
        ("exit", [0, 1, 2, 4, 5, 7, 3, 6]),
        ("-exit", [3, 0, 1, 2, 4, 5, 7, 6]),
        ("host", [0, 2, 4, 1, 5, 7, 3, 6]),
        ("state", [0, 1, 2, 4, 5, 7, 3, 6]),
        ("-cause", [3, 6, 0, 1, 2, 4, 5, 7]),
        ('a "b"', [5, 0, 1, 2, 3, 4, 6, 7]),
    ],
)
def test_sorting(kept: Kept, sort: str, order: list[int]) -> None:
    a_sweep(kept)
    assert tasks(kept, sort=sort) == order
    assert tasks(kept, sort=sort, limit=3) == order[:3]
    assert tasks(kept, sort=sort, limit=3, offset=2) == order[2:5]
    assert tasks(kept, "alpha > 0", sort=sort) == [task for task in order if task > 1]
    lines = exported(kept, "csv", sort=sort, limit=5).splitlines()[1:]
    assert [int(line.split(",")[0]) for line in lines] == order[:5]
    lines = exported(kept, "csv", sort=sort, offset=6).splitlines()[1:]
    assert [int(line.split(",")[0]) for line in lines] == order[6:]


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ({"where": ("alhpa > 1",)}, "did you mean 'alpha'?"),
        ({"where": ("xyz = 1",)}, "Columns: task, alpha, model, state"),
        ({"sort": "-los"}, "did you mean 'loss'?"),
        ({"where": ("alpha",)}, "'alpha' is not a comparison"),
        ({"where": ("= 5",)}, "'= 5' is not a comparison"),
        ({"where": ("alpha >",)}, "'alpha >' is not a comparison"),
        ({"where": ("alpha => 1",)}, "'alpha => 1' is not a comparison"),
        ({"where": ("alpha <> 1",)}, "'alpha <> 1' is not a comparison"),
        ({"where": ("alpha > loss",)}, "not with another column"),
        ({"where": ("seconds > long",)}, "seconds is a number, 'long' is not"),
        ({"where": ("seconds > '5'",)}, "seconds is a number, '5' is not"),
        (
            {"where": ("state = running",)},
            "'state = running': the state of a result is done or failed",
        ),
        ({"where": ("state != done or failed",)}, "a result is done or failed"),
        ({"where": ("state in done,lost",)}, "a result is done or failed"),
        ({"where": ("alpha in [0, 1.5]",)}, "without brackets"),
        ({"where": ("output > 5",)}, "output is text, and cannot be compared with a number"),
    ],
)
def test_questions_that_make_no_sense(kept: Kept, query: dict[str, Any], words: str) -> None:
    a_sweep(kept)
    with pytest.raises(InvalidQuery) as caught:
        kept.reader.results(BAG, ResultQuery(**query))
    assert words in str(caught.value)
    with pytest.raises(InvalidQuery):
        list(kept.reader.export(BAG, ResultQuery(**query), "csv"))
    assert len(kept.reader.results(BAG, ResultQuery())) == 8, "and all goes on"


@pytest.mark.parametrize(
    "where",
    [
        "loss > 1 and alpha < 4",
        "loss > 1 AND alpha < 4",
        "loss > 1 or alpha < 4",
        "loss > 1 || alpha < 4",
        "loss >= 1, alpha < 3",
        "loss >= 1, 3",
        "loss > 1 < 3",
        "loss > 'a' and who = 'me'",
        "state = done and alpha < 4",
        "state = done and alpha<4",
        "state = done, model = m",
        "state != done || good",
        "model = m < n",
        "model = 'm' and host = 'n0'",
        'model = "m" OR "n"',
        "output ~ last and alpha > 1",
        "state in done,failed and alpha > 1",
        "state in done, alpha > 1",
        "state = done and model in m,n",
    ],
)
def test_several_comparisons_in_one(kept: Kept, where: str) -> None:
    a_sweep(kept)
    with pytest.raises(InvalidQuery) as caught:
        tasks(kept, where)
    words = "where=['y > 1', 'x < 4'], with several --where, or with && between them"
    assert words in str(caught.value)


def test_a_form_that_there_is_not(kept: Kept) -> None:
    a_sweep(kept)
    with pytest.raises(InvalidQuery, match="formats: csv, csv-raw, jsonl"):
        list(kept.reader.export(BAG, ResultQuery(), "xls"))


def test_names_that_clash(kept: Kept) -> None:
    space = Product((Axis("host", Values(("h",))), Axis("seed", Range("1", "1", 2))))
    made = BagRecord(id=BAG, spec=BagSpec(argv=("x",), space=space), total=2, created=1.5)
    kept.record.apply([SaveBag(made), LeaseChunk(BAG, 0, 2)])
    kept.record.apply([ends(end(1, result='{"seed":7,"seconds":8,"result_seed":9}'))])
    names = exported(kept, "csv").splitlines()[0].split(",")
    assert names[:3] == ["task", "host", "seed"]
    assert names[8:] == (
        ["memory_kb", "covey_host", "started", "ended", "cause"]
        + ["result_seed", "result_seconds", "result_result_seed", "files", "output"]
    )
    (row,) = map(json.loads, exported(kept, "jsonl").splitlines())
    assert (row["host"], row["covey_host"], row["seed"], row["result_seed"]) == ("h", "node1", 2, 7)
    assert (row["seconds"], row["result_seconds"], row["result_result_seed"]) == (1.4, 8, 9)
    assert tasks(kept, "host = h") == tasks(kept, "covey_host = node1") == [1]
    assert tasks(kept, "result_seconds = 8", "seconds < 2", "result_seed = 7", "seed = 2") == [1]


def test_the_table_as_csv(kept: Kept) -> None:
    a_sweep(kept)
    text = exported(kept, "csv")
    assert text.startswith(
        "task,alpha,model,state,exit,signal,seconds,cpu_seconds,memory_kb,host,started,ended,"
        'cause,loss,extra,good,who,"a ""b""",files,output\n'
        "0,0.0,m,done,0,,0.000000,1.250000,3412,n0,1000.300,1000.300,,"
        "0.25,,true,me,,0,last 0\n"
    )
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [int(row["task"]) for row in rows] == list(range(8))
    assert [row["model"] for row in rows[:2]] == ["m", 'n,"1']
    assert [row["loss"] for row in rows] == ["0.25", "3", "1e-3", "", "none", "", "", ""]
    assert [row["good"] for row in rows[:6]] == ["true", "", "", "", "", "false"]
    assert rows[2]["extra"] == '[1,{"a":null}]'
    assert (rows[5]['a "b"'], rows[4]["who"]) == ("5", "you, too")
    failed = rows[3]
    assert (failed["state"], failed["exit"], failed["signal"]) == ("failed", "7", "")
    assert (failed["cause"], failed["host"]) == ("exit 7: boom, twice", "n9")
    killed = rows[6]
    assert (killed["exit"], killed["signal"], killed["output"]) == ("", "9", "")
    assert exported(kept, "csv", limit=2, after=3).splitlines()[1:] == text.splitlines()[5:7]
    assert exported(kept, "csv", failed_only=True).splitlines()[1:] == (
        [text.splitlines()[4], text.splitlines()[7]]
    )
    by_row = exported(kept, "csv", by_row=True).splitlines()[1:]
    assert [int(line.split(",")[0]) for line in by_row] == [2, 0, 1, 4, 5, 7, 3, 6]


def test_the_table_as_json_lines(kept: Kept) -> None:
    a_sweep(kept)
    rows = list(map(json.loads, exported(kept, "jsonl").splitlines()))
    assert rows[2] == {
        "task": 2,
        "alpha": 0.5,
        "model": "m",
        "state": "done",
        "exit": 0,
        "signal": None,
        "seconds": 2.0,
        "cpu_seconds": 1.25,
        "memory_kb": 3412,
        "host": "n0",
        "started": 1000.3,
        "ended": 1002.3,
        "cause": "",
        "loss": 0.001,
        "extra": [1, {"a": None}],
        "good": None,
        "who": None,
        'a "b"': None,
        "files": 0,
        "output": "last 2",
    }
    assert (rows[0]["good"], rows[6]["exit"], rows[6]["signal"]) == (True, None, 9)


def test_exports_of_nothing(kept: Kept) -> None:
    assert exported(kept, "csv") == ""
    kept.record.apply(a_bag_of(2))
    assert exported(kept, "csv") == (
        "task,x,state,exit,signal,seconds,cpu_seconds,memory_kb,host,started,ended,cause,"
        "files,output\n"
    )
    assert exported(kept, "jsonl") == ""


def test_long_exports_come_in_parts(kept: Kept) -> None:
    count = 9000
    kept.record.apply(a_bag_of(count))
    for first in range(0, count, 3000):
        kept.record.apply([successes(range(first, first + 3000))])
    for how in ({}, {"by_row": True}, {"sort": "-x"}, {"where": ("x >= 0",)}):
        parts = list(kept.reader.export(BAG, ResultQuery(**how), "csv"))
        assert max(map(len, parts)) < 500_000
        lines = b"".join(parts).decode().splitlines()[1:]
        order = range(count - 1, -1, -1) if "sort" in how else range(count)
        assert [int(line.split(",")[0]) for line in lines] == list(order)
    assert len(exported(kept, "jsonl", limit=5001).splitlines()) == 5001
    assert len(kept.reader.results(BAG, ResultQuery())) == 1000, "a page, if nobody says"


def test_large_numbers(kept: Kept) -> None:
    large = 2**70
    kept.record.apply([SaveBag(bag(1, 1)), LeaseChunk(BAG, 0, 1)])
    kept.record.apply([ends(end(0, result=f'{{"n":{large},"m":-1}}'))])
    assert tasks(kept, "n > 5") == [0]
    assert tasks(kept, "m < 0", sort="n") == [0]
    assert json.loads(exported(kept, "jsonl"))["n"] == large
    assert math.isclose(kept.reader.results(BAG, ResultQuery())[0].result["n"], large)


def test_failures_by_cause(kept: Kept) -> None:
    kept.record.apply(a_bag_of(40))
    made = [
        end(
            task,
            "memory" if task % 10 == 3 else "failed",
            cause=f"cause {task % 3}" if task % 10 != 3 else "memory limit",
            host=f"n{task % 7}",
            stderr="\n".join(f"{task}: {n}" for n in range(30)) if task % 2 else "",
            stdout="printed\n",
        )
        for task in range(30, -1, -1)
    ]
    kept.record.apply([ends(*made), ends(end(35, "failed", WASTE, cause="not yet"))])
    first, second, third, last = kept.reader.failures(BAG)
    assert first == FailureGroup(
        cause="cause 0",
        outcome="failed",
        count=10,
        hosts=["n0", "n6", "n2", "n5", "n1"],
        host_count=7,
        tasks=[0, 6, 9, 12, 15, 18, 21, 24, 27, 30],
        example=0,
        log="printed",
    )
    assert (second.cause, second.count, third.cause, third.count) == ("cause 1", 9, "cause 2", 9)
    assert (last.cause, last.outcome, last.count) == ("memory limit", "memory", 3)
    assert (last.tasks, last.hosts, last.example) == ([3, 13, 23], ["n3", "n6", "n2"], 3)
    assert last.log.splitlines() == [f"3: {n}" for n in range(10, 30)]
    assert [group.cause for group in kept.reader.failures(BAG, limit=1)] == [first.cause]


def test_failures_that_no_longer_count(kept: Kept) -> None:
    kept.record.apply([*a_bag_of(4), ends(*(end(t, "failed", cause=f"c{t}") for t in range(3)))])
    kept.record.apply([ends(end(0, "ok", REPLACES, attempt=(1, 9)))])
    kept.record.apply([ReopenFailed(BAG, 1.0, (1,))])
    assert [(group.cause, group.count) for group in kept.reader.failures(BAG)] == [("c2", 1)]
    assert kept.reader.failures(99) == []


def test_which_tasks_failed_of_a_cause(kept: Kept) -> None:
    causes = ["exit 1: no", "exit 10: bad", "SIGKILL", "exit 1: no", "time limit", "bad luck"]
    made = [end(task, "failed", cause=cause) for task, cause in enumerate(causes)]
    kept.record.apply([*a_bag_of(8), ends(*made)])

    def failed(*causes: str) -> list[int]:
        return kept.reader.failed_tasks(BAG, causes)

    assert failed("exit 1: no") == [0, 3]
    assert failed("exit 10") == [1]
    assert failed("limit", "SIG") == [2, 4]
    assert failed("SIGKILL", "SIGK", "exit 1: no") == [0, 2, 3]
    assert failed("bad") == [5], "what begins so comes before what has it inside"
    assert failed() == []
    with pytest.raises(InvalidQuery) as caught:
        failed("exit 1")
    assert "  exit 10: bad\n  exit 1: no" in str(caught.value)
    with pytest.raises(InvalidQuery, match="the causes are:\n  SIGKILL"):
        failed("nothing like it")
    kept.record.apply([ReopenFailed(BAG, 1.0)])
    with pytest.raises(InvalidQuery, match="no failed tasks"):
        failed("SIGKILL")


def test_files_that_tasks_returned(kept: Kept) -> None:
    kept.record.apply(a_bag_of(8))
    text, noise = b"line\n" * 500, bytes(range(256)) * 3
    files = (
        returned("out/a.txt", 2500, data=text),
        returned("out/b.bin", 768, data=noise, executable=True),
        returned("large", 10**10, digest="e" * 64),
        returned("empty", 0),
    )
    kept.record.apply([ends(end(5, files=files))])
    kept.record.apply([successes([4]), ends(end(2, files=files[:1]), end(7, files=files[1:3]))])
    kept.record.apply([ends(end(3, "failed", WASTE, files=files))])
    found = kept.reader.files(BAG)
    assert [(file.row, file.task, file.path) for file in found] == [
        (1, 5, "out/a.txt"),
        (1, 5, "out/b.bin"),
        (1, 5, "large"),
        (1, 5, "empty"),
        (3, 2, "out/a.txt"),
        (4, 7, "out/b.bin"),
        (4, 7, "large"),
    ]
    a_text = ReturnedFile(row=1, task=5, values=[105], path="out/a.txt", size=2500, data=text)
    assert found[0] == a_text
    assert (found[1].data, found[1].executable, found[1].digest) == (noise, True, "")
    assert (found[2].data, found[2].digest, found[2].size) == (b"", "e" * 64, 10**10)
    rows = kept.reader.results(BAG, ResultQuery())
    assert {row.task: row.files for row in rows} == {5: 4, 4: 0, 2: 1, 7: 2}
    assert [file.row for file in kept.reader.files(BAG, limit=2)] == [1, 1, 1, 1]
    assert [file.row for file in kept.reader.files(BAG, limit=5)] == [1, 1, 1, 1, 3]
    assert [file.row for file in kept.reader.files(BAG, limit=6)] == [1, 1, 1, 1, 3]
    assert [file.row for file in kept.reader.files(BAG, after=1, limit=2)] == [3]
    assert [file.row for file in kept.reader.files(BAG, after=3)] == [4, 4]
    assert kept.reader.files(BAG, after=4) == kept.reader.files(9) == []


def test_files_of_what_counts(kept: Kept) -> None:
    files = [returned("f", 1, data=b"x")]
    kept.record.apply([*a_bag_of(2), ends(end(0, "output", files=files))])
    assert [file.row for file in kept.reader.files(BAG)] == [1]
    kept.record.apply([ends(end(0, "ok", REPLACES, attempt=(1, 9), files=2 * files))])
    assert [file.row for file in kept.reader.files(BAG)] == [2, 2]
    kept.record.apply([finished(1)])
    assert [file.row for file in kept.reader.files(BAG)] == [2, 2]


def test_of_calls_the_table_has_nothing_that_only_programs_read(kept: Kept) -> None:
    spec = BagSpec(argv=("x",), calls=True, open=True, space=Axis("call", Values(("YQ==",))))
    made = BagRecord(id=BAG, spec=spec, total=1, created=1.5, open=True)
    kept.record.apply([SavePilot(pilot()), SaveBag(made), LeaseChunk(BAG, 0, 1)])
    more = Segment(space=Axis("call", Values(("Yg==",))))
    kept.record.apply([AppendSegment(BAG, more, 2, "key"), LeaseChunk(BAG, 1, 2)])
    kept.record.apply([ends(end(0, result='{"value":"MTE="}'), end(1, result='{"value":"MTI="}'))])
    view = kept.reader.bag(BAG)
    assert view is not None
    assert (view.calls, view.names, view.result_names) == (True, [], [])
    rows = kept.reader.results(BAG, ResultQuery(by_row=True))
    assert [row.values for row in rows] == [[], []]
    assert [row.result for row in rows] == [{"value": "MTE="}, {"value": "MTI="}], "for programs"
    for form in ("csv", "jsonl"):
        text = exported(kept, form)
        assert "exit" in text
        assert not any(word in text for word in ("YQ==", "MTE=", "call", "value"))
    with pytest.raises(InvalidQuery):
        tasks(kept, "value=x")


def spelled(kept: Kept, *values: str) -> None:
    """A bag with one parameter `lr`, whose tasks are all done."""
    space = Axis("lr", Values(values))
    made = BagRecord(id=BAG, spec=BagSpec(argv=("x",), space=space), total=len(values), created=1.5)
    chunk = LeaseChunk(BAG, 0, len(values))
    done = ends(*(end(task) for task in range(len(values))))
    kept.record.apply([SavePilot(pilot()), SaveBag(made), chunk, done])


def asked(kept: Kept, *where: str, sort: str = "") -> list[object]:
    return [row.values[0] for row in kept.reader.results(BAG, ResultQuery(where=where, sort=sort))]


@pytest.mark.parametrize("many", [False, True])  # more values than are computed in advance
def test_spelled_numbers_are_compared_by_value(kept: Kept, many: bool) -> None:
    spelled(kept, "1e-3", "default", "0.10", "1e-1", "2", *["z"] * (2000 if many else 0))
    assert asked(kept, "lr < 1") == ["1e-3", "0.10", "1e-1"]
    assert asked(kept, "lr = 0.1") == ["0.10", "1e-1"]
    assert asked(kept, "lr = '0.10'") == ["0.10"]
    assert asked(kept, "lr ~ 0.10") == ["0.10"]
    assert asked(kept, "lr in 0.001,2") == ["1e-3", "2"]
    assert asked(kept, sort="lr")[:5] == ["1e-3", "0.10", "1e-1", "2", "default"]


def test_a_column_with_leading_zeros_is_text(kept: Kept) -> None:
    spelled(kept, "100", "007", "020")
    assert asked(kept, sort="lr") == ["007", "020", "100"]
    assert asked(kept, "lr = 007") == ["007"]
    assert asked(kept, "lr < '1'") == ["007", "020"]
    with pytest.raises(InvalidQuery, match="lr is text"):
        asked(kept, "lr < 50")


def test_files_have_the_spelling_and_json_the_value(kept: Kept) -> None:
    spelled(kept, "0.10", "1e-3")
    table = b"".join(kept.reader.export(BAG, ResultQuery(), "csv")).decode()
    assert [line["lr"] for line in csv.DictReader(io.StringIO(table))] == ["0.10", "1e-3"]
    lines = b"".join(kept.reader.export(BAG, ResultQuery(), "jsonl")).splitlines()
    assert [json.loads(line)["lr"] for line in lines] == [0.1, 0.001]


def test_tasks_without_a_result_are_found(kept: Kept) -> None:
    kept.record.apply([SavePilot(pilot()), SaveBag(bag(1, 9)), LeaseChunk(BAG, 0, 4)])
    kept.record.apply([LeaseChunk(BAG, 4, 7), ends(end(0), end(1, "failed"), end(5))])
    assert kept.reader.unfinished(BAG) == [2, 3, 4, 6, 7, 8]
    assert kept.reader.unfinished(BAG, 3) == [4, 6, 7, 8]
    assert kept.reader.unfinished(BAG, -1, 1) == [2]
    assert kept.reader.unfinished(BAG + 1) == []


def test_a_done_task_whose_result_was_ignored_is_told_of(kept: Kept) -> None:
    kept.record.apply([SavePilot(pilot()), SaveBag(bag()), LeaseChunk(BAG, 0, 4)])
    kept.record.apply([ends(end(0, cause="result ignored: it is longer than 65536 bytes"))])
    view = kept.reader.bag(BAG)
    assert view is not None
    assert view.ignored_results == ["it is longer than 65536 bytes"]
