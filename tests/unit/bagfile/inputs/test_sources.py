"""Where inputs came from, and what is there now."""

import os
from pathlib import Path

import pytest

from covey.bagfile import GONE, LocalInputs, look
from covey.bagfile.draft.draft import SCRIPT
from covey.bagfile.inputs.gathering import Gathered
from covey.core.record.model import InputSource
from tests.unit.bagfile.reading import gathered


@pytest.fixture
def here(tmp_path: Path) -> Path:
    for path in ("fit.py", "a.csv", "b.csv", "data/x", "data/deep/y", "own/1.csv", "own/2.csv"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(path)
    return tmp_path


def inputs(here: Path, listed: str) -> Gathered:
    return gathered(f"command = 'true'\ninputs = {listed}\n[parameters]\nn = [1, 2]", here)


def now(found: Gathered, more_keys: bool = False) -> LocalInputs:
    places = [put.to for put in found.puts]
    return look(found.sources, found.task_inputs, places, found.manifest, more_keys)


@pytest.mark.parametrize(
    ("listed", "path", "to"),
    [
        ("['fit.py']", "fit.py", "fit.py"),
        ("[{from = './fit.py', to = 'bin/'}]", "fit.py", "bin/fit.py"),
        ("['data/']", "data", "data"),
        ("['.']", "", "."),
        ("[{from = 'data', to = 'd', copy = true}]", "data", "d"),
        ("['*.csv']", "*.csv", "."),
        ("['data/**/*']", "data/**/*", "data"),
        ("[{from = '*.csv', to = 'in'}]", "*.csv", "in"),
    ],
)
def test_a_bag_knows_where_its_inputs_came_from(
    here: Path, listed: str, path: str, to: str
) -> None:
    found = inputs(here, listed)
    whole = os.path.normpath(here / path)
    assert found.sources == (InputSource(path=whole, to=to, copy="copy" in listed),)
    files = now(found)
    assert {place: file for place, (file, _) in files.files.items()} == {
        put.to: put.file for put in found.puts
    }
    assert (files.missing, files.emptied) == ({}, ())


def test_what_is_new_and_what_is_gone_in_directories_and_patterns(here: Path) -> None:
    found = inputs(here, "['data', '*.csv', 'fit.py']")
    (here / "data/new").write_text("")
    (here / "data/x").unlink()
    (here / "a.csv").unlink()
    (here / "c.csv").write_text("")
    files = now(found)
    assert sorted(files.files) == ["b.csv", "c.csv", "data/deep/y", "data/new", "fit.py"]
    assert (files.emptied, files.missing) == (("a.csv", "data/x"), {})


def test_a_path_that_leads_nowhere_keeps_its_files(here: Path) -> None:
    found = inputs(here, "['data', 'fit.py', '[ab].csv']")
    for path in ("data/x", "data/deep/y", "fit.py", "a.csv", "b.csv"):
        (here / path).unlink()
    files = now(found)
    assert (files.files, files.emptied) == ({}, ())
    assert list(files.missing.values()) == [GONE] * 3
    (here / "fit.py").mkdir()
    (here / "fit.py" / "x").write_text("")
    assert "fit.py/x" in now(found).files


def test_what_two_inputs_name_is_gone_only_if_both_say_so(here: Path) -> None:
    found = inputs(here, "['data', 'data/x']")
    (here / "data/x").unlink()
    assert now(found).emptied == ()


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_what_cannot_be_read_is_told(here: Path) -> None:
    found = inputs(here, "['fit.py']")
    (here / "fit.py").chmod(0)
    assert "permission denied" in now(found).missing[str(here / "fit.py")]


def test_files_of_single_tasks(here: Path) -> None:
    found = inputs(here, "['own/{n}.csv']")
    assert (found.sources, found.task_inputs[0].base) == ((), str(here))
    (here / "own/1.csv").unlink()
    (here / "own/3.csv").write_text("")
    files = now(found)
    assert list(files.own) == ["own/2.csv"]
    assert files.missing == {str(here / "own/1.csv"): GONE}
    assert sorted(now(found, more_keys=True).own) == ["own/2.csv", "own/3.csv"]


def test_a_script_is_read_again_from_its_bag_file(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(here)
    (here / "bag.toml").write_text("script = 'echo old'\n")
    found = gathered((here / "bag.toml").read_text(), here)
    bag_file = str(here / "bag.toml")
    assert found.sources == (InputSource(path=bag_file, to=SCRIPT, script=True),)
    assert now(found).files[SCRIPT][0] == found.puts[0].file
    (here / "bag.toml").write_text("script = 'echo new'\n")
    assert now(found).files[SCRIPT][0].data == b"#!/bin/sh\necho new\n"
    (here / "bag.toml").write_text("command = 'x'\n")
    assert "no script any more" in now(found).missing[bag_file]
    (here / "bag.toml").write_text("script = ")
    assert "not TOML" in now(found).missing[bag_file]


def test_many_inputs_take_no_longer_each(here: Path) -> None:
    """A hundred thousand single files would take minutes if each were compared with all."""
    count = 20_000
    sources = [InputSource(path=f"/nowhere/{n}", to=str(n)) for n in range(count)]
    files = look(sources, (), [str(n) for n in range(count)], (), False)
    assert len(files.missing) == count
