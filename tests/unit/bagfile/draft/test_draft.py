"""What a bag file means."""

from pathlib import Path

import msgspec
import pytest

from covey.bagfile.draft.draft import SCRIPT
from covey.core.record.model import BagSpec, Condition, Need, Rule
from covey.core.values.space import Axis, Product, Range, Values, Zip
from tests.unit.bagfile.reading import draft

EVERYTHING = """
name = "fits"
notes = '''two
lines'''
command = "python3 fit.py --seed {seed} 'a b'"
zip = ["alpha", "model"]
open = true
outputs = ["out/{seed}.dat", "log"]
optional_outputs = "core.*"
output_limit = "10 MB"
log_limit = "1 MB"
export = true
setup = "pip install x"
setup_time = "1h"
breaker = 5
idempotent = false

[parameters]
seed = "1..1000"
model = ["small", "large"]
n = 7
alpha = {from = 0, to = 0.1, step = 0.1}

[labels]
paper = 3

[environment]
THREADS = 4
inherit = ["SECRET"]

[resources]
cores = 2
memory = "1.5 GB"
disk = "1 TB"
gpus = 1
time = "10m"
pin = true

[[resources.when]]
model = "large"
n = [1, "x"]
memory = "16 GB"
[[resources.when]]
seed = "100..200"
alpha = ".."
time = 1.5

[retries]
count = 2
memory = "+50%"
time = "x2"
overtimes = 1

[validate]
exit = [0, 3]
check = "python3 check.py $seed"
"""


def test_everything() -> None:
    text = EVERYTHING.replace('alpha = ".."', 'alpha = "..0.05"')
    found = draft(text)
    need = Need(cores=2, memory_mb=1536, disk_mb=1 << 20, gpus=1, limit_seconds=600.0)
    large = (Condition(name="model", values=("large",)), Condition(name="n", values=(1, "x")))
    some = (Condition(name="seed", low=100, high=200), Condition(name="alpha", high=0.05))
    assert found.spec == BagSpec(
        argv=("python3", "fit.py", "--seed", "{seed}", "a b"),
        space=Product(
            (
                Axis("seed", Range("1", "1", 1000)),
                Zip(
                    (Axis("alpha", Range("0", "0.1", 2)), Axis("model", Values(("small", "large"))))
                ),
                Axis("n", Values((7,))),
            )
        ),
        open=True,
        name="fits",
        labels={"paper": "3"},
        notes="two\nlines",
        env={"PATH": "/usr/bin:/bin", "LANG": "C", "SECRET": "x", "THREADS": "4"},
        export=True,
        need=need,
        rules=(
            Rule(when=large, need=msgspec.structs.replace(need, memory_mb=16384)),
            Rule(when=some, need=msgspec.structs.replace(need, limit_seconds=1.5)),
        ),
        pin=True,
        retries=2,
        grow_memory=1.5,
        grow_time=2.0,
        overtimes=1,
        breaker=5,
        idempotent=False,
        outputs=("out/{seed}.dat", "log"),
        optional_outputs=("core.*",),
        output_mb=10,
        ok_codes=(0, 3),
        check="python3 check.py $seed",
        setup="pip install x",
        setup_seconds=3600.0,
        log_kb=1024,
    )
    assert found.names == ("seed", "alpha", "model", "n")


def test_a_range_without_ends_is_refused() -> None:
    with pytest.raises(Exception, match="a range needs an end"):
        draft(EVERYTHING)


def test_nothing_said_is_the_default() -> None:
    found = draft("command = ['true', 1, 2.5]").spec
    env = {"PATH": "/usr/bin:/bin", "LANG": "C"}
    assert found == BagSpec(argv=("true", "1", "2.5"), env=env)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ("'1..3'", Range("1", "1", 3)),
        ("'a,b'", Values(("a", "b"))),
        ("'7'", Values((7,))),
        ("7", Values((7,))),
        ("0.5", Values((0.5,))),
        ("['1..3', '7', 7]", Values(("1..3", "7", 7))),
        ("{from = 0, to = 1, step = 0.25}", Range("0", "0.25", 5)),
        ("{from = 3, to = 1}", Range("3", "-1", 3)),
        ("{from = 1e-7, to = 3e-7, step = 1e-7}", Range("1e-07", "1e-07", 3)),
        ("{file = 'v.txt'}", Values(("x y", 2))),
        ("'@v.txt'", Values(("x y", 2))),
    ],
)
def test_values(tmp_path: Path, values: str, expected: Range | Values) -> None:
    (tmp_path / "v.txt").write_text("x y\n\n2\n")
    found = draft(f"command = 'true'\n[parameters]\nx = {values}", tmp_path)
    assert found.spec.space == Product((Axis("x", expected),))


def test_zip_of_all_is_one_zip_and_groups_may_be_many() -> None:
    head = "command = 'true'\nzip = {}\n[parameters]\na = [1]\nb = [2]\nc = [3]\nd = [4]\n"
    one = {name: Axis(name, Values((number,))) for number, name in enumerate("abcd", 1)}
    assert draft(head.format("['b', 'a', 'c', 'd']")).spec.space == Zip(
        (one["b"], one["a"], one["c"], one["d"])
    )
    assert draft(head.format("[['a', 'c'], ['d', 'b']]")).spec.space == Product(
        (Zip((one["a"], one["c"])), Zip((one["d"], one["b"])))
    )


def test_rows_and_their_names(tmp_path: Path) -> None:
    (tmp_path / "cases.csv").write_text("case,the size\na,1\n")
    text = "command = 'echo {the_size}'\nrows = 'cases.csv'\n[parameters]\nseed = '1..2'\n"
    found = draft(text, tmp_path)
    assert found.names == ("case", "the_size", "seed")
    assert found.rows is not None
    assert (found.rows.path, found.rows.form) == (str(tmp_path / "cases.csv"), "csv")
    with pytest.raises(Exception, match=r"bag\.toml:4: parameters\.case: cases\.csv has"):
        draft(text.replace("seed", "case"), tmp_path)


def test_a_script_is_a_program_and_has_the_parameters() -> None:
    told: list[str] = []
    found = draft("script = 'echo $x {x} ${x}'\nargs = '{x} b'\n[parameters]\nx = 1", None, told)
    assert found.spec.argv == (f"./{SCRIPT}", "{x}", "b")
    assert found.script == "#!/bin/sh\necho $x {x} ${x}\n"
    assert found.spec.export
    assert told == ["note: the script has {x}; in a script, write $x for the value"]
    told.clear()
    found = draft(
        "export = false\nscript = '#!/usr/bin/python3\\n{x}'\n[parameters]\nx=1", None, told
    )
    assert not found.spec.export
    assert not told


def test_expected_files_are_part_of_the_check() -> None:
    found = draft("command = 'true'\n[parameters]\nx = 1\n[validate]\nfiles = ['o {x}*']").spec
    assert found.export
    assert found.check.startswith("""set -- 'o '"${x}"*; [ -e "$1" ] || """)


def test_notes_on_what_has_no_effect() -> None:
    told: list[str] = []
    draft("command = 'true'\n[retries]\nmemory = 'x2'\ntime = 'x2'", None, told)
    assert len(told) == 2
    told.clear()
    draft(
        "command = 'true'\n[retries]\ncount = 1\nmemory = 'x2'\ntime = 'x2'\n"
        "[resources]\nmemory = '1 GB'\ntime = '1m'",
        None,
        told,
    )
    assert not told


def test_an_open_bag_may_begin_without_tasks() -> None:
    found = draft("command = 'true'\nopen = true\n[parameters]\nx = []").spec
    assert found.space == Product((Axis("x", Values(())),))


@pytest.mark.parametrize(
    "text",
    [
        "command = 'echo {x}'",
        "command = 'echo'\nexport = true",
        "command = 'echo'\noutputs = ['{x}.txt']",
        "command = 'echo'\noptional_outputs = ['{x}.txt']",
        "command = 'echo'\ninputs = ['{x}.txt']",
        "command = 'echo'\n[validate]\ncheck = 'test $x'",
        "command = 'echo'\n[resources]\nwhen = [{x = 1, memory = '1GB'}]",
        "command = 'echo'\n[policy]\nrank = 'Job.X * Host.Memory'",
        "script = 'echo $x'",
    ],
)
def test_a_parameter_may_be_used_in_many_ways(text: str) -> None:
    told: list[str] = []
    draft(f"{text}\n[parameters]\nx = [1, 2]", None, told)
    assert not told


def test_a_parameter_that_nothing_uses_is_told_of() -> None:
    told: list[str] = []
    draft("command = 'echo'\n[parameters]\nn = '1..3'\nk = 1", None, told)
    assert told == [
        "note: nothing uses any of the parameters n, k: write {n} for its value",
    ]


def test_a_table_may_have_columns_that_nothing_uses(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("case,size,rate\na,1,2\n")
    told: list[str] = []
    draft("command = 'fit {case}'\nrows = 't.csv'", tmp_path, told)
    assert not told
    draft("command = 'fit {case} --size 3'\nrows = 't.csv'", tmp_path, told)
    draft("command = 'fit'\nrows = 't.csv'", tmp_path, told)
    assert [note.partition(":")[2].partition(":")[0] for note in told] == [
        " nothing uses parameter size",
        " nothing uses any of the parameters case, size, rate",
    ]
