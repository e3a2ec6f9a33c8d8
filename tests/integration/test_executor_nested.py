"""Executors and modules: inside tasks, beside the program, reloaded; and servers that are killed
while they start. All with real processes."""

import importlib
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from covey.client import embedded
from covey.core.errors import ServerAway
from covey.executor import Executor
from covey.python.connection import connect

SECONDS = 60.0
GUARD = 'guard it as for multiprocessing: if __name__ == "__main__":'


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    covey("stop")


def covey(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "covey", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)


def python(name: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, name], capture_output=True, text=True, timeout=SECONDS)


def write(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(textwrap.dedent(text))


def servers_below(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("server.json") if path.parent != folder / ".covey"]


def test_a_module_that_uses_an_executor_on_import_starts_no_server_in_workers(place: Path) -> None:
    write(
        place / "mod.py",
        """
        import covey
        def f(x):
            return x + 1
        with covey.Executor() as ex:
            print(list(ex.map(f, range(3))))
        """,
    )
    write(place / "main.py", "import mod\n")
    ran = python("main.py")
    assert ran.returncode == 1
    assert GUARD in ran.stderr.splitlines()[-1]
    assert servers_below(place) == []
    assert "bag" in covey("bags").stdout
    assert len(covey("bags").stdout.splitlines()) == 2  # a heading and one bag


def test_a_command_in_a_task_starts_no_server(place: Path) -> None:
    for words in (["run", "--", "true"], ["serve"], ["serve", "--embedded"]):
        ran = covey("run", "--retries", "0", "--", sys.executable, "-m", "covey", *words)
        assert ran.returncode == 1
        assert GUARD in ran.stderr
    assert servers_below(place) == []


def test_an_executor_in_a_call_is_refused_or_uses_a_named_server(place: Path) -> None:
    def nested() -> Any:
        import covey

        with covey.Executor() as inner:
            return inner.submit(abs, -3).result()

    with Executor() as executor, pytest.raises(Exception, match="inside a task of covey"):
        executor.submit(nested).result(SECONDS)

    def attached(directory: str) -> Any:
        import covey

        with covey.Executor(covey.connect(dir=directory)) as inner:
            return inner.submit(abs, -3).result()

    with Executor(connect(slots=2)) as executor:
        assert executor.submit(attached, str(place / ".covey")).result(SECONDS) == 3


# -- modules ----------------------------------------------------------------------------------

PROGRAM = """
import os, shutil
import covey, helpers
from package.part import thrice

def mixed(x):
    import lazily
    return lazily.shift(helpers.twice(x)) + thrice(x)

with covey.Executor(connection := covey.connect(dir=os.environ["SERVER"], slots=1)) as executor:
    executor.submit(abs, 1).result()
    shutil.move("../program", "../elsewhere")  # as on another host: the folder is not there
    executor.submit(os._exit, 1).exception()  # so that the next worker starts without it
    print(executor.submit(helpers.twice, 4).result(), executor.submit(mixed, 1).result())
connection.client().stop()
"""


def program_folder(place: Path) -> Path:
    folder = place / "program"
    write(folder / "main.py", PROGRAM)
    write(folder / "helpers.py", "import lazily\ndef twice(x):\n    return 2 * x\n")
    write(folder / "lazily.py", "def shift(x):\n    return x + 100\n")
    write(folder / "package/__init__.py", "")
    write(folder / "package/part.py", "def thrice(x):\n    return 3 * x\n")
    return folder


def test_modules_beside_the_program_travel(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVER", str(place / ".covey"))
    monkeypatch.chdir(program_folder(place))
    ran = python("main.py")
    monkeypatch.chdir(place)
    assert ran.stdout == "8 105\n", ran.stderr


def test_named_modules_travel(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(place / "far/away_module.py", "def value():\n    return 17\n")

    def use() -> Any:
        import away_module  # type: ignore[import-not-found]

        return away_module.value(), away_module.__file__

    with Executor(modules=["far/away_module.py"]) as executor:
        shutil.copytree("far", "gone")
        value, file = executor.submit(use).result(SECONDS)
    assert value == 17
    assert "covey-worker.pyz" in file
    with Executor(modules=()) as executor, pytest.raises(ModuleNotFoundError):
        executor.submit(use).result(SECONDS)


def test_a_reloaded_module_is_new_in_workers(
    place: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    file = place / "changing_module.py"
    file.write_text("def answer():\n    return 1\n")
    monkeypatch.syspath_prepend(str(place))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    module = importlib.import_module("changing_module")

    def through() -> Any:
        return module.answer()

    with Executor(modules=[module]) as executor:
        answer = module.answer
        assert executor.submit(answer).result(SECONDS) == 1
        first = executor.bag
        file.write_text("def answer():\n    return 22\n")
        assert executor.submit(answer).result(SECONDS) == 1
        executor._lane._looked = 0.0
        assert executor.submit(answer).result(SECONDS) == 1
        until = time.monotonic() + SECONDS
        while "has changed" not in (said := capfd.readouterr().err):
            assert time.monotonic() < until
            executor._lane._looked = 0.0
            executor.submit(abs, 1).result(SECONDS)
        assert "importlib.reload" in said
        importlib.reload(module)
        assert executor.submit(module.answer).result(SECONDS) == 22
        assert executor.submit(through).result(SECONDS) == 22
        assert list(executor.map(lambda _: module.answer(), range(4), chunksize=2)) == [22] * 4
        assert executor.bag > first
    del sys.modules["changing_module"]


# -- what people see ----------------------------------------------------------------------------


def invert(x: float) -> float:
    return 1 / x


def test_bags_and_objects_say_what_they_are(place: Path) -> None:
    with Executor() as executor:
        assert repr(executor) == "<covey.Executor: 0 calls done, 0 sent, 0 waiting here>"
        future = executor.submit(invert, 0)
        with pytest.raises(ZeroDivisionError):
            future.result(SECONDS)
        assert repr(future) == "<covey call task 0 of bag 1 'invert': raised ZeroDivisionError>"
        assert repr(executor).startswith("<covey.Executor 'invert', bag 1: 1 calls done")
        assert executor._max_workers >= 1
    assert Executor(max_workers=3)._max_workers == 3
    assert "invert" in covey("bags").stdout
    failures = covey("failures").stdout
    assert "in invert" in failures
    assert "ZeroDivisionError: division by zero" in failures


# -- servers that die ---------------------------------------------------------------------------


def test_a_server_that_is_killed_while_it_starts_is_started_again(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spawn = embedded._spawn
    killed: list[int] = []

    def spawn_and_kill(directory: Path, options: Any) -> Any:
        child = spawn(directory, options)
        if len(killed) < 2:
            killed.append(child.pid)
            os.kill(child.pid, signal.SIGKILL)
        return child

    monkeypatch.setattr(embedded, "_spawn", spawn_and_kill)
    with Executor() as executor:
        assert executor.submit(abs, -5).result(SECONDS) == 5
    assert len(killed) == 2


def test_a_large_value_comes_though_its_server_is_killed(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once before the value is asked for, and once in the middle of it."""
    from covey.client.http import Connection as Http

    stream = Http.stream
    killed: list[int] = []

    def breaking(self: Http, path: str, query: Any = None, start: int = 0) -> Iterator[bytes]:
        parts = stream(self, path, query, start)
        if len(killed) < 2:
            while (record := embedded.read_record(place / ".covey")) is None or (
                record.pid in killed
            ):
                time.sleep(0.01)  # it answers a moment before it writes who it is
            killed.append(record.pid)
            os.kill(record.pid, signal.SIGKILL)
            if len(killed) == 2:
                yield next(parts)
            raise ServerAway("the server broke off its answer: as it was killed")
        yield from parts

    monkeypatch.setattr(Http, "stream", breaking)
    with Executor() as executor:
        value = executor.submit(bytes, 30_000_000).result(SECONDS)
    assert len(value) == 30_000_000
    assert len(killed) == 2
