"""Commands are found as execvp finds them, and started alike by both ways."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from covey.pilot import spawn
from covey.pilot.tree import children


def executable(path: Path, text: str = "#!/bin/sh\nexit 4\n", mode: int = 0o700) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return path


def test_search_takes_the_first_that_can_run(tmp_path: Path) -> None:
    executable(tmp_path / "a" / "tool", mode=0o600)
    (tmp_path / "b" / "tool").mkdir(parents=True)
    good = executable(tmp_path / "c" / "tool")
    path = ":".join(str(tmp_path / name) for name in "xabc")
    assert spawn.search("tool", path) == str(good)
    with pytest.raises(PermissionError):
        spawn.search("tool", str(tmp_path / "a"))
    for name in ("other", ""):
        with pytest.raises(FileNotFoundError):
            spawn.search(name, path)


def test_an_empty_entry_of_the_path_is_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    executable(tmp_path / "tool")
    monkeypatch.chdir(tmp_path)
    commands = spawn.Commands()
    assert commands.find("tool", "/nowhere:") == "./tool"
    assert not commands.forget()  # it depends on where we stand


def test_found_commands_are_remembered_per_path(tmp_path: Path) -> None:
    first = executable(tmp_path / "a" / "tool")
    second = executable(tmp_path / "b" / "tool")
    commands = spawn.Commands()
    assert commands.find("tool", str(tmp_path / "a")) == str(first)
    assert commands.find("tool", str(tmp_path / "b")) == str(second)
    first.unlink()
    assert commands.find("tool", str(tmp_path / "a")) == str(first)
    assert commands.forget()
    with pytest.raises(FileNotFoundError):
        commands.find("tool", str(tmp_path / "a"))
    assert commands.find("./tool", "") == "./tool"


@pytest.mark.parametrize("way", [spawn._by_posix_spawn, spawn._by_fork])
def test_both_ways_start_and_refuse_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: Callable[..., int]
) -> None:
    monkeypatch.setattr(spawn, "_start", way)
    env = {"PATH": "/bin"}
    before = children(os.getpid())

    def code(path: Path, *words: str) -> int:
        return os.waitpid(spawn.start(str(path), [path.name, *words], env), 0)[1] >> 8

    assert code(executable(tmp_path / "good")) == 4
    assert code(executable(tmp_path / "bare", "exit $1\n"), "9") == 9
    with pytest.raises(FileNotFoundError):
        code(tmp_path / "missing")
    with pytest.raises(PermissionError):
        code(executable(tmp_path / "text", mode=0o600))
    with pytest.raises(ValueError):
        code(tmp_path / "good", "\0")
    assert children(os.getpid()) == before
