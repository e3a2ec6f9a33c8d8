"""Resources that parameters of tasks say, in bag files and on the command line."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from covey.bagfile import describe
from covey.cli.bags.submission import build
from covey.cli.main import covey
from covey.cli.shared.dryrun import lines_of
from covey.core.errors import InvalidBag
from covey.core.record.model import Condition, Need, Rule
from tests.unit.bagfile.reading import draft, gathered

BAG = """
command = "sim {case}"
setup = "install sim"
rows = "cases.csv"
[resources]
cores = "{ncores}"
memory = "{mem} GB"
time = "{walltime}"
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    rows = [f"c{k},{k % 2 + 1},{k % 3 + 1},{k % 5 + 1}h" for k in range(300)]
    (tmp_path / "cases.csv").write_text("\n".join(["case,ncores,mem,walltime", *rows, ""]))
    (tmp_path / "bag.toml").write_text(BAG)
    return tmp_path


def bad_row(here: Path, number: int, text: str) -> None:
    lines = (here / "cases.csv").read_text().splitlines()
    lines[number] = text
    (here / "cases.csv").write_text("\n".join([*lines, ""]))


def test_texts_with_names_are_kept_for_each_task(here: Path) -> None:
    spec = draft(BAG, here).spec
    assert spec.need_from == {"cores": "{ncores}", "memory": "{mem} GB", "time": "{walltime}"}
    assert spec.need == Need()
    assert spec.order == "long-first"


def test_a_rule_replaces_what_it_says_and_nothing_else(here: Path) -> None:
    more = """
    disk = "5 GB"
    [[resources.when]]
    case = "c1"
    memory = "64 GB"
    disk = "{mem} TB"
    """
    spec = draft(BAG + more, here).spec
    assert spec.rules == (
        Rule(
            when=(Condition(name="case", values=("c1",)),),
            need=Need(memory_mb=65536),
            need_from={"cores": "{ncores}", "time": "{walltime}", "disk": "{mem} TB"},
        ),
    )


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("disk = '{dsk}'", "bag.toml:9: resources.disk: {dsk}: there is no parameter dsk; there"),
        ("gpus = '{mme}'", "resources.gpus: {mme}: there is no parameter mme; did you mean 'mem'?"),
        ("gpus = '{task}'", "resources.gpus: {task}: there is no parameter task"),
        ("gpus = '{mem'", "resources.gpus: expected a whole number from 0 to 1,024, not '{mem'"),
        ("pin = '{mem}'", "resources.pin: expected true or false"),
        (
            "[[resources.when]]\nmem = 1\ndisk = '{x}'",
            "bag.toml:11: resources.when[0].disk: {x}: there is no parameter x",
        ),
    ],
)
def test_names_that_are_none_are_told(here: Path, more: str, words: str) -> None:
    with pytest.raises(InvalidBag) as caught:
        draft(BAG + more, here)
    assert words in str(caught.value)


def test_a_bad_value_is_told_with_its_line_and_its_row(here: Path) -> None:
    bad_row(here, 17, "x,1,2 G,1h")
    with pytest.raises(InvalidBag) as caught:
        gathered(BAG, here)
    expected = "bag.toml:7: resources.memory: cases.csv: row 17: memory: expected a size such as"
    assert str(caught.value).startswith(expected)
    with pytest.raises(InvalidBag) as caught:
        build({"rows": "cases.csv", "memory": "{mem}", "command": ("echo", "{case}")}, 0)
    expected = "--memory {mem}: cases.csv: row 1: memory: a size needs its unit: '1 MB' or '1 GB'"
    assert str(caught.value).startswith(expected)
    assert "; and more (for all tasks: memory = '{mem} MB')" in str(caught.value)


def test_a_bad_value_in_a_rule_is_told(here: Path) -> None:
    bad_row(here, 3, "x,1,2,1h")
    rule = "[[resources.when]]\ncase = 'x'\ngpus = '{case}'"
    with pytest.raises(InvalidBag, match=r"resources: cases\.csv: row 3: gpus: expected a whole"):
        gathered(BAG + rule, here)


def test_the_dry_run_shows_the_combinations(here: Path) -> None:
    found = describe(build({"file": "bag.toml"}, 0))
    assert len(found.classes) == 30
    assert sum(one.tasks for one in found.classes) == found.tasks == found.counted == 300
    assert {one.when for one in found.classes} == {""}
    assert found.classes[0].limit_seconds == 5 * 3600
    assert found.order == "long-first"
    told = "\n".join(lines_of(found))
    assert "… and 20 other combinations of resources" in told
    assert "(in all: 1 to 2 cores, 1.0 GB to 3.0 GB memory, at most 1 h 00 m to 5 h 00 m)" in told
    assert (found.classes[0].cores, found.classes[0].memory_mb) == (2, 3072)
    assert "when" not in told
    assert "order     tasks with a longer time go first" in told
    kept = describe(build({"file": "bag.toml", "order": "given"}, 0))
    assert kept.order == "given"
    assert "longer time" not in "\n".join(lines_of(kept))


def test_the_order_makes_no_difference_where_times_are_equal(here: Path) -> None:
    text = "command = 'true'\n[parameters]\nx = '1..3'\n[resources]\ntime = '1h'\ncores = '{x}'"
    assert describe(gathered(text, here)).order == "given"


def test_options_are_the_same_words(here: Path) -> None:
    words = [
        "run", "--rows", "cases.csv", "--cores", "{ncores}", "--memory", "{mem} GB",
        "--time", "{walltime}", "--gpus", "0", "--order", "given", "--dry-run", "--json", "--",
        "echo", "{case}",
    ]  # fmt: skip
    shown = json.loads(CliRunner().invoke(covey, words).stdout)
    assert len(shown["classes"]) == 30
    assert shown["order"] == "given"


def test_parameters_in_resources_are_used(here: Path) -> None:
    told: list[str] = []
    text = "command = 'true'\n[parameters]\nm = ['1 GB', '2 GB']\n[resources]\nmemory = '{m}'"
    draft(text, here, told)
    assert told == []


def test_a_large_product_is_drafted_at_once(here: Path) -> None:
    text = """
    command = "true {seed}"
    [parameters]
    seed = "1..1000000000"
    m = [1, 2, 3]
    [resources]
    memory = "{m} GB"
    """
    assert gathered(text, here).spec.need_from == {"memory": "{m} GB"}
    refused = text.replace("{m} GB", "{seed} kB")
    with pytest.raises(InvalidBag, match="at most 1,000,000 can be looked at"):
        gathered(refused, here)
