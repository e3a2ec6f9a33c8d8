"""Commands are found as execvp finds them, and started alike by all ways."""

import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from covey.pilot.slots import spawn
from covey.pilot.slots.process_tree import children


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


@pytest.fixture(autouse=True)
def mask() -> Iterator[None]:
    """Starting a task changes ours."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    yield
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


@pytest.mark.parametrize("way", spawn.ways())
def test_all_ways_start_and_refuse_alike(tmp_path: Path, way: Callable[..., int]) -> None:
    spawn.prepare(way)
    env = [b"PATH=/bin"]
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
    assert code(tmp_path / "good") == 4
    assert children(os.getpid()) == before


@pytest.mark.parametrize("way", range(len(spawn.ways())))
def test_words_are_utf8_in_any_locale(tmp_path: Path, way: int) -> None:
    executable(tmp_path / "bäre", '[ "$1" = é日 ] && [ "$V" = é日 ]\n')
    code = f"""
import os
from covey.pilot.slots import spawn
spawn.prepare(spawn.ways()[{way}])
path = spawn.search("b\\xe4re", {str(tmp_path)!r})
pid = spawn.start(path, [path, "\\xe9\\u65e5"], spawn.variables({{"V": "\\xe9\\u65e5"}}))
print(os.waitpid(pid, 0)[1])
"""
    small = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    found = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **small}, capture_output=True, check=True
    )
    assert found.stdout == b"0\n"


def test_a_python_with_another_fork_exec_starts_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def other(argv: object, path: object) -> int:
        raise AssertionError("not with these arguments")

    monkeypatch.setattr(spawn, "_fork_exec", other)
    spawn.prepare()
    for _ in range(2):
        assert os.waitpid(spawn.start("/bin/true", ["true"], []), 0)[1] == 0
    assert spawn._start is spawn._by_posix_spawn


def test_a_failed_exec_is_told_although_there_is_no_vfork(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, writer = os.pipe()
    real, wait = spawn._fork_exec, lambda: os.read(reader, 1)
    monkeypatch.setattr(spawn, "_fork_exec", lambda *words: real(*words[:-2], wait, False))
    spawn.prepare(spawn._by_vfork)

    def status(path: str | Path) -> int:
        pid = spawn.start(str(path), [str(path), "9"], [])
        os.write(writer, b"x")
        found = os.waitpid(pid, 0)[1]
        if select.select([reader], [], [], 0)[0]:  # who was forked here does not wait for it
            os.read(reader, 1)
        return found

    bare = executable(tmp_path / "bare", "exit $1\n")
    for path in (tmp_path / "missing", bare):
        assert status(path) == spawn.UNEXECUTED
        assert spawn.never_began()
        if path is bare:
            assert status(path) == 9 << 8
        else:
            with pytest.raises(FileNotFoundError):
                status(path)
        assert status("/bin/true") == 0
        assert not spawn.never_began()
    os.close(reader)
    os.close(writer)


def test_an_unread_word_of_a_killed_child_is_not_the_next_ones() -> None:
    spawn.prepare(spawn._by_vfork)
    os.write(spawn._words, b"OSError:2:")
    assert os.waitpid(spawn.start("/bin/sh", ["sh", "-c", "exit 255"], []), 0)[1] == 255 << 8
    assert not spawn.never_began()


def test_this_python_has_the_quickest_way() -> None:
    assert spawn.ways() == [spawn._by_vfork, spawn._by_posix_spawn, spawn._by_fork]
