"""Globals and classes of a program: a call finds them as they are there, and leaves them alone."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from covey.python.connection import Connection, connect
from tests.unit.executor.test_watching import CHANGES

SECONDS = 120


@pytest.fixture(scope="module")
def connection(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connection]:
    """With one slot: all calls of an executor are of one worker."""
    with connect(dir=tmp_path_factory.mktemp("state") / ".covey", slots=1) as found:
        found.server()
        yield found
        found.client().stop()


def printed(connection: Connection, folder: Path, text: str) -> str:
    script = folder / "program.py"
    script.write_text("from covey import Executor\n" + text)
    done = subprocess.run(
        [sys.executable, script],
        cwd=folder,
        env={**os.environ, "COVEY_DIR": str(connection.config.directory)},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.strip()


def test_a_call_finds_what_is_there_when_it_is_submitted(
    connection: Connection, tmp_path: Path
) -> None:
    text = (
        f"CHANGES = {CHANGES!r}"
        + """
with Executor() as executor:
    for name, (text, change) in CHANGES.items():
        names = {"__name__": "__main__"}
        exec(text, names)
        before = executor.submit(names["f"])
        expected = [repr(names["f"]())]
        exec(change, names)
        after = executor.submit(names["f"])
        if "load" in names:
            names["load"].cache_clear()
        expected.append(repr(names["f"]()))
        found = [repr(before.result()), repr(after.result())]
        if found != expected:
            print(name, found, expected)
"""
    )
    assert printed(connection, tmp_path, text) == ""


def test_a_class_is_as_it_was_for_each_call(connection: Connection, tmp_path: Path) -> None:
    text = """
class Config:
    alpha = 0

class Other:
    def __init__(self, x): self.x = x

def f(x): return Config.alpha, hasattr(Config, "beta")
def g(x): return Config.alpha, x.x

found = []
with Executor() as executor:
    for alpha in (1, 2, 1, 3, 1):
        Config.alpha = alpha
        if alpha == 2:
            Config.beta = 5
        found.append(executor.submit(f, 0))
        found.append(executor.submit(g, Other(alpha)))
        if alpha == 2:
            del Config.beta
    print([one.result() for one in found])
"""
    pairs = [((alpha, alpha == 2), (alpha, alpha)) for alpha in (1, 2, 1, 3, 1)]
    assert printed(connection, tmp_path, text) == str([one for pair in pairs for one in pair])


def test_an_object_is_new_for_each_call_of_its_method(
    connection: Connection, tmp_path: Path
) -> None:
    text = """
import functools

class Counter:
    n = 0
    def up(self):
        self.n += 1
        return self.n

def append(seen, one):
    seen.append(one)
    return len(seen)

counter, add = Counter(), functools.partial(append, [])
with Executor() as executor:
    print([executor.submit(counter.up).result() for _ in range(3)], list(executor.map(add, "ab")))
"""
    assert printed(connection, tmp_path, text) == "[1, 1, 1] [1, 1]"


def test_what_an_initializer_changes_in_place_is_there(
    connection: Connection, tmp_path: Path
) -> None:
    text = """
class State:
    table = None
    seen = []
    size = 1

class Model:
    weights = ()

models, cache, model, read = [], {}, Model(), [1]

def init(x):
    models.append(x)
    cache["x"] = lambda: x
    model.weights = (x, len(read))
    State.table = x
    State.seen.append(x)
    State.new = x

def use():
    return models, cache["x"](), model.weights, State.table, State.seen, State.new, read, State.size

with Executor(initializer=init, initargs=(3,)) as executor:
    print(*executor.submit(use).result())
    read.append(2)
    models.append(5)
    State.size = 2
    print(*executor.submit(use).result())
    print(executor.submit(lambda one: one.table, State()).result(), State.table)
"""
    assert printed(connection, tmp_path, text).splitlines() == [
        "[3] 3 (3, 1) 3 [3] 3 [1] 1",
        "[3] 3 (3, 1) 3 [3] 3 [1, 2] 2",
        "3 None",
    ]


def test_a_value_leaves_its_class_alone(connection: Connection, tmp_path: Path) -> None:
    text = """
import enum

class Counter:
    made = 0
    def __init__(self):
        Counter.made += 1

class Failed(Exception):
    times = 0

class Colour(enum.Enum):
    RED = 1

def make():
    return Counter()

def fail():
    Failed.times = 7
    raise Failed

def local():
    class Inner:
        x = 3
    return Inner()

with Executor() as executor:
    future, failed, inner = executor.submit(make), executor.submit(fail), executor.submit(local)
    Counter.made = 10
    Failed.times = 1
    print(type(future.result()) is Counter, Counter.made)
    print(type(failed.exception()) is Failed, Failed.times)
    print(inner.result().x, executor.submit(lambda: Colour.RED).result() is Colour.RED)
"""
    expected = ["True 10", "True 1", "3 True"]
    assert printed(connection, tmp_path, text).splitlines() == expected


def test_functions_with_a_cache_run_there(connection: Connection, tmp_path: Path) -> None:
    text = """
import functools

@functools.lru_cache(maxsize=None)
def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)

@functools.cache
def load(x):
    print("loaded")
    return [x]

class Shape:
    @functools.lru_cache
    def area(self):
        return 7
    @functools.cached_property
    def size(self):
        return 8

def use(x):
    return load(x) is load(x), Shape().area(), Shape().size

with Executor() as executor:
    print(executor.submit(fib, 50).result(), executor.submit(use, 2).result())
    print(executor.submit(Shape).result().area())
    print(executor.submit(lambda: fib.cache_parameters()).result())
"""
    assert printed(connection, tmp_path, text).splitlines() == [
        "12586269025 (True, 7, 8)",
        "7",
        "{'maxsize': None, 'typed': False}",
    ]
