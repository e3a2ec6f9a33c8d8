"""`import covey` costs next to nothing, and everything is found when it is used."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import covey

HEAVY = (
    "IPython", "asyncio", "click", "cloudpickle", "covey.cli", "covey.client", "covey.core",
    "covey.python", "cryptography", "email", "http", "msgspec", "numpy", "pandas", "pyroaring",
    "sqlite3", "ssl", "starlette", "typing", "uvicorn", "uvloop",
)  # fmt: skip
MOST_SECONDS = 0.1
LATER = {"Executor", "task"}  # of another package


def fresh(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-S", "-c", f"import sys; sys.path[:0] = {sys.path!r}\n{program}"],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return done.stdout


def test_importing_covey_loads_nothing_else() -> None:
    program = "before = set(sys.modules); import covey; print(*(set(sys.modules) - before))"
    assert fresh(program).split() == ["covey"]
    for name in HEAVY:
        assert name not in fresh(program).split()


def test_importing_covey_takes_less_than_a_tenth_of_a_second() -> None:
    program = "import time; began = time.perf_counter(); import covey; "
    program += "print(time.perf_counter() - began)"
    assert min(float(fresh(program)) for _ in range(3)) < MOST_SECONDS


@pytest.mark.parametrize("name", covey.__all__)
def test_every_name_is_there(name: str) -> None:
    assert getattr(covey, name) is not None
    assert name in dir(covey)


def test_what_is_not_there_is_said_as_usual() -> None:
    with pytest.raises(AttributeError, match="module 'covey' has no attribute 'conect'"):
        getattr(covey, "conect")  # noqa: B009
    assert not hasattr(covey, "conect")


def test_errors_are_the_ones_that_are_raised() -> None:
    from covey.core import errors

    assert covey.InvalidBag is errors.InvalidBag
    assert issubclass(covey.StillRunning, TimeoutError)
    assert issubclass(covey.BagPaused, covey.CoveyError)


def test_types_are_told_of_the_same_names() -> None:
    tree = ast.parse((Path(covey.__file__).with_suffix(".pyi")).read_text())
    imported = {
        alias.name: node.module
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    (listed,) = (
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    )
    assert listed == covey.__all__
    assert {*imported, "__version__"} == set(listed)
    for name in set(imported) - LATER:
        assert getattr(covey, name).__module__ == imported[name]
