"""The file with a call's value is taken from a worker that may be up to something."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from covey.pilot.files.outputs import Unfit
from covey.pilot.slots.workspace import Workspace


@pytest.fixture
def bench(tmp_path: Path) -> Any:
    found: Any = Workspace.__new__(Workspace)
    found.settings = SimpleNamespace(directory=str(tmp_path / "pilot"))
    found._home = None
    return found


@pytest.fixture
def given(tmp_path: Path) -> Any:
    home = tmp_path / "worker"
    home.mkdir()
    return SimpleNamespace(key="1.1", plan=SimpleNamespace(chdir=str(home), output_bytes=1000))


def left(tmp_path: Path) -> list[str]:
    return [path.name for path in (tmp_path / "pilot").rglob("*") if not path.is_dir()]


def test_it_is_moved_away_and_nobody_else_reads_it(bench: Any, given: Any, tmp_path: Path) -> None:
    (tmp_path / "worker" / "value-1").write_bytes(b"x" * 900)
    ((path, size, executable, data, where),) = bench.take_value(given, "value-1")
    assert (path, size, executable, data) == ("value", 900, False, b"")
    assert Path(where).read_bytes() == b"x" * 900
    assert os.stat(where).st_mode & 0o777 == 0o600
    assert not (tmp_path / "worker" / "value-1").exists()


@pytest.mark.parametrize("name", ["", "../secret", "/etc/passwd", "folder", "link", "twice"])
def test_nothing_else_is_taken(bench: Any, given: Any, tmp_path: Path, name: str) -> None:
    (tmp_path / "secret").write_text("of the pilot")
    home = tmp_path / "worker"
    (home / "folder").mkdir()
    (home / "link").symlink_to(tmp_path / "secret")
    os.link(tmp_path / "secret", home / "twice")
    with pytest.raises(Unfit):
        bench.take_value(given, name)
    assert not left(tmp_path)


def test_one_that_is_too_large_is_not_kept(bench: Any, given: Any, tmp_path: Path) -> None:
    (tmp_path / "worker" / "value-1").write_bytes(b"x" * 2000)
    with pytest.raises(Unfit):
        bench.take_value(given, "value-1")
    assert not left(tmp_path)


def test_a_link_that_takes_its_place_in_between(
    bench: Any, given: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secret").write_text("of the pilot")
    value = tmp_path / "worker" / "value-1"
    value.write_bytes(b"mine")
    rename = os.rename

    def swapped(source: str, target: str, **folders: int) -> None:
        value.unlink()
        value.symlink_to(tmp_path / "secret")
        rename(source, target, **folders)

    monkeypatch.setattr(os, "rename", swapped)
    with pytest.raises(Unfit):
        bench.take_value(given, "value-1")
    assert not left(tmp_path)
