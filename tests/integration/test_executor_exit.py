"""Programs with an executor, from their first line to their last: what the scripts of CPython's and
joblib's suites are about, and what only a `__main__` of its own shows."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import covey
from covey.python.connection import Connection, connect

SECONDS = 60
SOURCE = str(Path(covey.__file__).parents[1])  # whatever is installed


@pytest.fixture(scope="module")
def connection(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connection]:
    with connect(dir=tmp_path_factory.mktemp("programs") / ".covey", slots=2) as found:
        found.server()
        yield found
        found.client().stop()


class Ran:
    def __init__(self, connection: Connection, folder: Path, text: str) -> None:
        script = folder / "program.py"
        script.write_text(text)
        done = subprocess.run(
            [sys.executable, script],
            cwd=folder,
            env={
                "COVEY_DIR": str(connection.config.directory),
                "PATH": "/usr/bin:/bin",
                "PYTHONPATH": SOURCE,
            },
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        self.status, self.out, self.err = done.returncode, done.stdout, done.stderr


def test_a_program_ends_when_its_calls_have(connection: Connection, tmp_path: Path) -> None:
    text = """
import time
from covey import Executor

def slow(path):
    time.sleep(0.5)
    open(path, "w").write("apple")

Executor().submit(slow, __file__ + ".out")
"""
    ran = Ran(connection, tmp_path, text)
    assert (ran.status, ran.err) == (0, "")
    assert (tmp_path / "program.py.out").read_text() == "apple"


def test_shutdown_without_wait_loses_no_call(connection: Connection, tmp_path: Path) -> None:
    text = """
import time
from covey import Executor

def slow(path):
    time.sleep(0.5)
    open(path, "w").write("apple")

executor = Executor(max_workers=3)
executor.submit(slow, __file__ + ".out")
executor.shutdown(wait=False)
"""
    ran = Ran(connection, tmp_path, text)
    assert (ran.status, ran.err) == (0, "")
    assert (tmp_path / "program.py.out").read_text() == "apple"


INTERRUPTED = """
import os, pathlib, signal, threading, time
from covey import Executor
from covey.executor import executor as ours

began = pathlib.Path(__file__ + ".began")

def slow(path):
    path.touch()
    time.sleep(600)

def interrupt(when):
    def wait():
        while not (began.exists() and when()):
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)
    threading.Thread(target=wait, daemon=True).start()
"""


@pytest.mark.parametrize(
    "text",
    [
        """
interrupt(lambda: True)
with Executor(name="interrupted") as executor:
    list(executor.map(slow, [began] * 30))
""",
        """
class Waits(Executor):
    def shutdown(self, *given, **named):
        interrupt(lambda: True)
        super().shutdown(*given, **named)

with Waits(name="interrupted") as executor:
    executor.submit(slow, began)
""",
    ],
    ids=["in the block", "at its end"],
)
def test_whoever_interrupts_a_program_does_not_wait_for_its_calls(
    connection: Connection, tmp_path: Path, text: str
) -> None:
    ran = Ran(connection, tmp_path, INTERRUPTED + text)
    assert ran.status != 0
    assert ran.err.rstrip().endswith("KeyboardInterrupt")
    assert "ignored" not in ran.err
    assert _statuses(connection) == {"cancelled"}


def test_a_program_that_waits_for_its_calls_at_its_end_can_be_interrupted(
    connection: Connection, tmp_path: Path
) -> None:
    text = """
interrupt(lambda: ours._interpreter_ends)
Executor(name="interrupted").submit(slow, began)
"""
    ran = Ran(connection, tmp_path, INTERRUPTED + text)
    assert ran.err == "covey: interrupted: calls that are not done are cancelled\n"
    assert _statuses(connection) == {"cancelled"}


def _statuses(connection: Connection) -> set[str]:
    return {bag.status for bag in connection.client().bags() if bag.name == "interrupted"}


def test_nothing_is_taken_when_the_interpreter_ends(connection: Connection, tmp_path: Path) -> None:
    text = """
import atexit

@atexit.register
def run_last():
    try:
        executor.submit(id, None)
    except RuntimeError:
        print("runtime-error")
        raise

from covey import Executor
executor = Executor(5)
executor.submit(id, 42).result()
"""
    ran = Ran(connection, tmp_path, text)
    assert ran.out.strip() == "runtime-error"
    assert "RuntimeError: cannot schedule new futures" in ran.err


def test_an_initializer_prepares_the_globals_of_a_script(
    connection: Connection, tmp_path: Path
) -> None:
    text = """
from covey import Executor

model = None

def load(name):
    global model
    model = name.upper()

def helper():
    return model

def predict(x):
    return f"{helper()} {x}"

with Executor(initializer=load, initargs=("net",)) as executor:
    print(list(executor.map(predict, range(3))))
"""
    ran = Ran(connection, tmp_path, text)
    assert (ran.out.strip(), ran.err) == ("['NET 0', 'NET 1', 'NET 2']", "")


def test_classes_of_a_script_come_back_as_themselves(
    connection: Connection, tmp_path: Path
) -> None:
    text = """
import helpers
from covey import Executor

class Point:
    def __init__(self, x):
        self.x = x

class Odd(Exception):
    pass

def make(x):
    if x % 2:
        raise Odd(x)
    return Point(helpers.double(x))

with Executor() as executor:
    assert type(executor.submit(make, 2).result()) is Point
    try:
        executor.submit(make, 3).result()
    except Odd as error:
        print(error.args, executor.submit(make, 2).result().x)
"""
    (tmp_path / "helpers.py").write_text("def double(x):\n    return 2 * x\n")
    ran = Ran(connection, tmp_path, text)
    assert (ran.out.strip(), ran.err) == ("(3,) 4", "")


def test_tasks_of_a_script_share_an_executor(connection: Connection, tmp_path: Path) -> None:
    text = """
import covey

@covey.task
def square(x):
    return x * x

@covey.task(cores=1, limit_seconds=60)
def total(n):
    return sum(square(x) for x in range(n))

print(square(3), square.submit(4).result(), total.submit(4).result(), list(square.map(range(3))))
"""
    ran = Ran(connection, tmp_path, text)
    assert (ran.out.strip(), ran.err) == ("9 16 14 [0, 1, 4]", "")


def test_joblib_runs_functions_of_a_script(connection: Connection, tmp_path: Path) -> None:
    text = """
import joblib
import covey.executor.joblib

factor = 3

def times(x):
    return factor * x

with joblib.parallel_config(backend="covey", n_jobs=2):
    print(joblib.Parallel()(joblib.delayed(times)(x) for x in range(4)))
    print(joblib.Parallel()(joblib.delayed(lambda x: x + factor)(x) for x in range(4)))
"""
    ran = Ran(connection, tmp_path, text)
    assert (ran.out, ran.err) == ("[0, 3, 6, 9]\n[3, 4, 5, 6]\n", "")
