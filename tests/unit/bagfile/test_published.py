"""What is published about bag files is true: the schema, the page, the example."""

import importlib
import json
import re
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from covey.bagfile import (
    Description,
    Gathered,
    describe,
    example,
    gather,
    parse_sheet,
    read_draft,
    schema,
)
from covey.bagfile.draft.points import values_of
from covey.bagfile.format.keys import NEEDS, RESOURCES, RETRIES, TOP, VALIDATE
from covey.bagfile.format.kinds import Key
from covey.bagfile.format.policy import POLICY
from covey.core.bags.bag_check import check_spec
from covey.core.errors import InvalidBag
from covey.core.record.model import Blob, Segment
from covey.core.record.task_classes import find_needs
from covey.core.record.task_numbers import names_in
from covey.core.values import space
from tests.unit.bagfile.draft.test_draft import EVERYTHING
from tests.unit.bagfile.reading import ENVIRON

DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "bagfile.md").read_text("utf-8")
BLOCKS = re.findall(r"^```toml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
FILES = {
    "fit.py": "", "simulate": "", "solve": "", "check.py": "",
    "cases.csv": "case,pressure,ncores,mem,walltime\na,1,2,4,36:00:00\n",
    "data/x": "", "a.nc": "", "cases/a.json": "", "cases/b.json": "", "fit.jl": "",
    "../shared/big.dat": "",
}  # fmt: skip


@pytest.fixture
def here(tmp_path: Path) -> Path:
    base = tmp_path / "here"
    for name, text in FILES.items():
        path = base / name
        base.mkdir(exist_ok=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
    return base


@pytest.mark.parametrize("block", BLOCKS)
def test_examples_on_the_page_are_right(block: str, here: Path) -> None:
    told: list[str] = []
    sheet = parse_sheet(block, "bagfile.md", str(here))
    draft = read_draft(sheet, ENVIRON, told.append)
    assert not told
    try:
        gathered = gather(draft, told.append)
        found = describe(gathered)
    except InvalidBag as error:
        missing = re.search(r"no command '(julia|render)'", str(error))
        if not missing:
            raise
        return
    assert found.tasks >= 1
    assert_core_takes(gathered, found)


def assert_core_takes(gathered: Gathered, found: Description) -> None:
    """As the server would complete it."""
    spec = gathered.complete({file: Blob("ab" * 32, file.size) for file in gathered.uploads})
    if spec.rows is not None:
        columns = gathered.draft.names[: -len(space.names(spec.space)) or None]
        rows = msgspec.structs.replace(spec.rows, names=columns, count=1)
        spec = msgspec.structs.replace(spec, rows=rows)
    first = Segment(space=spec.space, rows=spec.rows)
    needs = find_needs(spec, first, values_of(gathered.draft, 1))
    check_spec(msgspec.structs.replace(spec, task_needs=needs))
    assert found.names == names_in(first)


def test_there_are_examples_with_every_key() -> None:
    assert len(BLOCKS) > 10
    said = {name for block in BLOCKS for name in tomllib.loads(block)}
    assert said | {"open", "log_limit"} == set(TOP)
    tables = {"resources": RESOURCES, "retries": RETRIES, "validate": VALIDATE, "policy": POLICY}
    for table, keys in tables.items():
        said_there = [tomllib.loads(block).get(table, {}) for block in BLOCKS]
        found = {name for one in said_there if isinstance(one, dict) for name in one}
        assert found == set(keys)
    for name in TOP:
        assert f"`{name}" in PAGE or f"[{name}]" in PAGE, name


def test_the_schema_is_published() -> None:
    assert json.loads((DOCS / "bagfile.schema.json").read_text("utf-8")) == schema(), (
        "covey schema > docs/bagfile.schema.json"
    )


def test_the_schema_describes_every_key() -> None:
    made = schema()
    for name, key in TOP.items():
        assert made["properties"][name]["description"] == key.text
    assert set(made["properties"]["resources"]["properties"]) == {*NEEDS, "pin", "when"}


GOOD = [*BLOCKS, EVERYTHING.replace('".."', '"..1"'), example("x.toml")]
BAD = [
    "name = 'no command'",
    "command = 'x'\nscript = 'y'",
    "command = 'x'\nnmae = 1",
    "command = 3",
    "command = 'x'\nopen = 'yes'",
    "command = 'x'\nbreaker = -1",
    "command = 'x'\n[resources]\nmemory = 2",
    "command = 'x'\n[resources]\nmemory = '2 QB'",
    "command = 'x'\n[resources]\ntime = 'soon'",
    "command = 'x'\n[retries]\nmemory = 'more'",
    "command = 'x'\n[retries]\ncuont = 1",
    "command = 'x'\n[parameters]\nx = [true]",
    "command = 'x'\n[parameters]\nx = {from = 1}",
    "command = 'x'\n[parameters]\na-b = 1",
    "command = 'x'\n[parameters]\ntask = 1",
    "command = 'x'\nzip = ['a']",
    "command = 'x'\nrows = {form = 'csv'}",
    "command = 'x'\ninputs = [{to = 'x'}]",
    "command = 'x'\ninputs = [{url = 'ftp://x'}]",
    "command = 'x'\n[environment]\nA = true",
    "command = 'x'\npolicy = 'fast'",
    "command = 'x'\npolicy = 3",
    "command = 'x'\n[policy]\nrnak = 1",
    "command = 'x'\n[policy]\nrank = []",
    "command = 'x'\n[policy]\ndeadline = -1",
    "command = 'x'\n[policy]\nonly_sites = [1]",
]


@pytest.mark.parametrize("text", GOOD)
def test_the_schema_accepts_what_is_good(text: str) -> None:
    jsonschema: Any = importlib.import_module("jsonschema")
    jsonschema.Draft202012Validator(schema()).validate(tomllib.loads(text))


@pytest.mark.parametrize("text", BAD)
def test_the_schema_refuses_what_is_bad(text: str) -> None:
    jsonschema: Any = importlib.import_module("jsonschema")
    assert not jsonschema.Draft202012Validator(schema()).is_valid(tomllib.loads(text))


@pytest.mark.parametrize("text", BAD)
def test_covey_refuses_what_the_schema_refuses(text: str, here: Path) -> None:
    with pytest.raises(InvalidBag):
        read_draft(parse_sheet(text, "bag.toml", str(here)), ENVIRON, print)


def test_the_example_can_be_run(here: Path) -> None:
    told: list[str] = []
    draft = read_draft(parse_sheet(example("x.toml"), "x.toml", str(here)), ENVIRON, told.append)
    found = describe(gather(draft, told.append))
    assert not told
    assert found.tasks == 15
    assert [(one.tasks, one.memory_mb) for one in found.classes] == [(10, 500), (5, 1024)]


def test_the_commented_parts_of_the_example_are_right(here: Path) -> None:
    """Every key that is commented out, one at a time."""
    text = example("x.toml")
    commented = re.findall(r"^# ([a-z_]+ = .*)$", text, re.MULTILINE)
    assert len(commented) == 28
    for line in commented:
        assert tomllib.loads(line)
    tables = re.findall(r"^# (\[\w+\]\n(?:# .*\n)+)", text, re.MULTILINE)
    assert len(tables) == 3
    for table in tables:
        name, keys = next(iter(tomllib.loads(table.replace("# ", "")).items()))
        assert name in TOP
        assert keys


@pytest.mark.parametrize("table", [TOP, RESOURCES, RETRIES, VALIDATE])
def test_the_example_shows_every_key(table: dict[str, Key]) -> None:
    text = example("x.toml")
    for name in table:
        shown = re.search(rf"\b{name} = |^(# )?\[+(\w+\.)?{name}\]", text, re.MULTILINE)
        assert shown, name
