"""From inputs to files."""

import os
from pathlib import Path

import pytest

from covey.bagfile.draft.draft import SCRIPT
from covey.bagfile.inputs import gathering
from covey.bagfile.inputs.gathering import Gathered, gather
from covey.core.errors import InvalidBag
from covey.core.record.model import Blob, Placed, Rows, TaskInput
from tests.unit.bagfile.reading import draft, gathered


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A directory with many kinds of things in it."""
    base = tmp_path / "here"
    for path in (
        "fit.py", "tool", "a.nc", "b.nc", ".hidden", "data/x.csv", "data/deep/y.csv",
        "data/.env", "data/.git/config", "data/__pycache__/z.pyc", "cases/a.json", "cases/b.json",
    ):  # fmt: skip
        (base / path).parent.mkdir(parents=True, exist_ok=True)
        (base / path).write_text(path)
    (base / "tool").chmod(0o755)
    (base / "empty").mkdir()
    (base / "alias.py").symlink_to("fit.py")
    (base / "data" / "linked").symlink_to(tmp_path / "outside")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "big.dat").write_text("big")
    (tmp_path / "outside" / "c1.nc").write_text("c1")
    return base


def inputs(here: Path, listed: str, more: str = "") -> Gathered:
    return gathered(f"command = 'true'\ninputs = {listed}\n{more}", here)


def places(found: Gathered) -> list[str]:
    return [put.to for put in found.puts]


@pytest.mark.parametrize(
    ("listed", "expected"),
    [
        ("'fit.py'", ["fit.py"]),
        ("['./fit.py', 'data/../fit.py']", ["fit.py"]),
        ("['*.nc']", ["a.nc", "b.nc"]),
        ("['data/']", ["data/.env", "data/deep/y.csv", "data/linked/big.dat",
                       "data/linked/c1.nc", "data/x.csv"]),
        ("['data/deep']", ["data/deep/y.csv"]),
        ("[{from = 'data/deep', to = 'd'}]", ["d/y.csv"]),
        ("[{from = 'fit.py', to = 'bin/'}]", ["bin/fit.py"]),
        ("[{from = 'fit.py', to = 'x.py'}]", ["x.py"]),
        ("[{from = '*.nc', to = 'in'}]", ["in/a.nc", "in/b.nc"]),
        ("['data/*.csv']", ["data/x.csv"]),
        ("['data/**/*.csv']", ["data/deep/y.csv", "data/x.csv"]),
        ("[{from = 'data/**/*.csv', to = 'in/'}]", ["in/deep/y.csv", "in/x.csv"]),
        ("['../outside/big.dat']", ["big.dat"]),
        ("['../outside']", ["outside/big.dat", "outside/c1.nc"]),
        ("['../outside/*.nc']", ["c1.nc"]),
        ("[{from = '../outside/big.dat', to = 'data/big'}]", ["data/big"]),
        ("['dat?']", ["data/.env", "data/deep/y.csv", "data/linked/big.dat",
                      "data/linked/c1.nc", "data/x.csv"]),
    ],
)  # fmt: skip
def test_where_files_come_to_lie(here: Path, listed: str, expected: list[str]) -> None:
    assert places(inputs(here, listed)) == expected


def test_the_whole_directory(here: Path) -> None:
    found = places(inputs(here, "['.']"))
    assert ".hidden" in found
    assert "data/deep/y.csv" in found
    assert not [place for place in found if ".git" in place or "__pycache__" in place]


def test_absolute_paths(here: Path) -> None:
    assert places(inputs(here, f"['{here}/data/x.csv']")) == ["data/x.csv"]
    assert places(inputs(here, f"['{here.parent}/outside/big.dat']")) == ["big.dat"]


@pytest.mark.parametrize(
    ("listed", "told"),
    [
        ("['fti.py']", "bag.toml:2: inputs[0]: there is no file fti.py; did you mean"),
        ("['no/such/file']", "there is no directory"),
        ("['*.xyz']", "inputs[0]: no file matches *.xyz"),
        ("['empty']", "there is no file in the directory empty"),
        ("[{from = 'fit.py', to = '../x'}]", "../x would be outside the task's directory"),
        ("[{from = 'fit.py', to = '/x'}]", "/x would be outside"),
        ("[{from = 'data', to = 'a/../../x'}]", "would be outside"),
        ("['fit.py', {from = 'tool', to = 'fit.py'}]", "inputs[1]"),
        ("['fit.py', {from = 'tool', to = 'fit.py/x'}]", "both a file and a folder"),
        ("[{url = 'https://x/fit.py'}, 'fit.py']", "https://x/fit.py would both be fit.py"),
        ("['fit.py', {url = 'https://x/fit.py'}]", "another input would also be called fit.py"),
        ("['https://x/{n}']", "a URL is fetched once"),
        ("['data/{m}.csv']", "there is no parameter m; did you mean 'n'?"),
        ("['data/{task}.csv']", "there is no parameter task"),
        ("['data/{n}*.csv']", "a {NAME} and a wildcard"),
        ("['data/{n}/']", "is a directory with a {NAME}"),
        ("['cases/{n}.json', 'data/{n}.json']", "inputs[0]: cases/{n}.json: there is no file for"),
    ],
)
def test_refusals(here: Path, listed: str, told: str) -> None:
    if "m}" in listed:
        told = told.replace("; did you mean 'n'?", "")
    with pytest.raises(InvalidBag) as caught:
        inputs(here, listed, "[parameters]\nn = [1, 2]")
    assert told in str(caught.value)


def test_things_that_are_no_files(here: Path) -> None:
    os.mkfifo(here / "pipe")
    (here / "broken").mkdir()
    (here / "broken" / "link").symlink_to("nothing")
    (here / "circle").mkdir()
    (here / "circle" / "again").symlink_to(".")
    for listed, told in (
        ("['pipe']", "pipe is not a regular file"),
        ("['broken']", "is a broken link"),
        ("['circle']", "is a link back to"),
    ):
        with pytest.raises(InvalidBag, match=told):
            inputs(here, listed)


def test_names_that_are_not_text(here: Path) -> None:
    (here / "odd").mkdir()
    (here / "odd" / "\udcff").write_text("")
    with pytest.raises(InvalidBag, match="must be text in UTF-8"):
        inputs(here, "['odd']")


def test_each_task_its_own_file(here: Path) -> None:
    text = "[parameters]\ncase = ['a', 'b']\nn = '1..3'"
    found = inputs(here, "['cases/{case}.json', {from='fit.py', to='f{n}.py'}]", text)
    assert found.task_inputs == (
        TaskInput(source="cases/{case}.json", path="cases/{case}.json", base=str(here)),
        TaskInput(source="fit.py", path="f{n}.py", base=str(here)),
    )
    assert set(found.manifest) == {"cases/a.json", "cases/b.json", "fit.py"}
    assert [file.path for file in found.uploads] == [
        str(here / name) for name in ("cases/a.json", "cases/b.json", "fit.py")
    ]


def test_only_the_files_that_tasks_have_unless_more_may_follow(here: Path) -> None:
    asked = ("[{from = 'cases/{case}.json', to = 'in.json'}]", "[parameters]\ncase = 'a'")
    assert set(inputs(here, *asked).manifest) == {"cases/a.json"}
    opened = gathered(f"command = 'true'\nopen = true\ninputs = {asked[0]}\n{asked[1]}", here)
    assert set(opened.manifest) == {"cases/a.json", "cases/b.json"}
    assert opened.task_inputs[0].path == "in.json"


def test_of_many_tasks_all_files_that_are_like_it(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gathering, "MOST_CHECKED", 2)
    found = inputs(here, "['cases/{case}.json']", "[parameters]\ncase = 'a,b,c'")
    assert set(found.manifest) == {"cases/a.json", "cases/b.json"}
    with pytest.raises(InvalidBag, match="no file matches cases"):
        inputs(here, "['cases/{case}.xml']", "[parameters]\ncase = 'a,b,c'")


def test_a_name_that_comes_twice_has_one_value(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathering, "MOST_CHECKED", 0)
    (here / "a").mkdir()
    for name in ("a/a.x", "a/b.x"):
        (here / name).write_text("")
    found = inputs(here, "['{c}/{c}.x']", "[parameters]\nc = 'a'")
    assert set(found.manifest) == {"a/a.x"}


def test_values_with_slashes_and_rows(here: Path) -> None:
    (here / "rows.txt").write_text("data/x.csv\ncases/a.json\n")
    found = gathered("command = 'true'\nrows = 'rows.txt'\ninputs = ['{line}']", here)
    assert set(found.manifest) == {"data/x.csv", "cases/a.json"}
    (here / "rows.txt").write_text(f"{here}/fit.py\n")
    with pytest.raises(InvalidBag, match="outside the task's directory; use to"):
        gathered("command = 'true'\nrows = 'rows.txt'\ninputs = ['{line}']", here)
    text = "command = 'true'\nrows = 'rows.txt'\ninputs = [{from='{line}', to='in.py'}]"
    assert set(gathered(text, here).manifest) == {f"{here}/fit.py"}


def test_missing_files_of_tasks_are_named_by_their_values(here: Path) -> None:
    with pytest.raises(InvalidBag) as caught:
        inputs(here, "['cases/{c}.json']", "[parameters]\nc = 'a,x1,x2,x3,x4,x5'\nn = '1..9'")
    assert "for c=x1: cases/x1.json; c=x2: cases/x2.json; c=x3: cases/x3.json and 2 more" in str(
        caught.value
    )


def test_the_whole_bag(here: Path) -> None:
    (here / "rows.csv").write_text("case\na\n")
    text = """
rows = "rows.csv"
command = "./tool fit.py cases/{case}.json --in=data/x.csv"
inputs = ["tool", "fit.py", {from = "alias.py", to = "again.py", copy = true}, "cases/{case}.json",
          {url = "https://example.org/x.tgz", sha256 = "%s"}]
""" % ("AB" * 32)
    told: list[str] = []
    found = gathered(text, here, told)
    spec = found.complete(
        {
            file: Blob(f"digest of {os.path.basename(file.path)}", file.size)
            for file in found.uploads
        }
    )
    assert spec.argv == (
        "./tool", "fit.py", "cases/{case}.json", f"--in={here}/data/x.csv",
    )  # fmt: skip
    assert len(told) == 1
    assert "not among the inputs" in told[0]
    assert spec.rows == Rows(digest="digest of rows.csv", form="csv", names=(), count=0)
    assert spec.inputs == (
        Placed(path="tool", blob=Blob("digest of tool", 4, True)),
        Placed(path="fit.py", blob=Blob("digest of fit.py", 6)),
        Placed(path="again.py", blob=Blob("digest of alias.py", 6), copy=True),
        Placed(path="x.tgz", url="https://example.org/x.tgz", digest="ab" * 32),
    )
    assert spec.manifest == {"cases/a.json": Blob("digest of a.json", 12)}


def test_a_script_is_an_executable_input(here: Path) -> None:
    found = gathered("script = 'echo hi'\nargs = ['fit.py']\ninputs = 'fit.py'", here)
    script = found.puts[0]
    assert (script.to, script.file.data, script.file.executable) == (
        SCRIPT,
        b"#!/bin/sh\necho hi\n",
        True,
    )
    assert found.spec.argv == (f"./{SCRIPT}", "fit.py")


def test_a_program_that_is_not_there(here: Path) -> None:
    with pytest.raises(InvalidBag, match=r"bag\.toml:1: command: there is no command 'no-such'"):
        gathered("command = 'no-such'", here)
    assert gathered("command = 'no-such'\nsetup = 'make no-such'", here).spec.argv == ("no-such",)


def test_too_many_files(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathering, "MOST_FILES", 3)
    for listed in ("['data']", "['*.nc', 'fit.py', 'tool']"):
        with pytest.raises(InvalidBag, match="archive"):
            gather(draft(f"command = 'true'\ninputs = {listed}", here), print)
