"""joblib's own tests of `Parallel`, run with the backend `covey`.

Every test of theirs that is given a backend is given ours, with all their other parameters. What is
left out stands in NOT_HERE, with the reason.
"""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import joblib.parallel
import pytest
from joblib.test import test_parallel as theirs

import covey.executor.joblib as ours
from tests.executor_suite.serving import served

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.filterwarnings("ignore:.*by the workers have been cancelled"),
]
BACKEND = "backend"

_MANAGER = "its workers are to be children of this process, and have the key of its Manager"
_SHARED = "memory-mapped arrays are for workers that share a file system with us"
_SCRIPT = (
    "it runs a script that knows joblib's own backends only; "
    "tests/integration/test_executor_exit.py has one that imports ours"
)
# By the name of a test, and one of its parameters where the others are run.
NOT_HERE = {
    ("test_auto_memmap_on_arrays_from_generator", ""): _SHARED,
    ("test_memmapping_leaks", ""): _SHARED,
    ("test_dispatch_multiprocessing", ""): _MANAGER,
    ("test_initializer_context", ""): _MANAGER,
    ("test_initializer_parallel", ""): _MANAGER,
    ("test_parallel_with_interactively_defined_functions", ""): _SCRIPT,
    ("test_parallel_with_unpicklable_functions_in_args", ""): _SCRIPT,
    ("test_nested_backend_in_sequential", "n_jobs=None"): "ours are all slots then, as with dask",
    ("test_multiple_generator_call_separated_gc", "error=True"): "an error of loky's, not ours",
}


def _marks(test: Callable[..., None]) -> list[pytest.Mark]:
    return [mark for mark in getattr(test, "pytestmark", []) if mark.name == "parametrize"]


def _names(mark: pytest.Mark) -> list[str]:
    given = mark.args[0]
    return [one.strip() for one in given.split(",")] if isinstance(given, str) else list(given)


def _values(mark: pytest.Mark) -> list[dict[str, Any]]:
    names = _names(mark)
    if BACKEND in names and len(names) == 1:
        return [{BACKEND: ours.NAME}]
    found = []
    for value in mark.args[1]:
        values = getattr(value, "values", value) if len(names) > 1 else [value]
        found.append({**dict(zip(names, values, strict=True)), **_ours(names)})
    return found


def _ours(names: list[str]) -> dict[str, Any]:
    return {BACKEND: ours.NAME} if BACKEND in names else {}


def cases() -> Iterator[Any]:
    for name, test in vars(theirs).items():
        marks = _marks(test) if name.startswith("test_") else []
        if not any(BACKEND in _names(mark) for mark in marks):
            continue
        seen = []
        for parts in itertools.product(*map(_values, marks)):
            given = {key: value for part in parts for key, value in part.items()}
            if given in seen:
                continue
            seen.append(given)
            shown = "-".join(str(getattr(one, "__name__", one)) for one in given.values())
            yield pytest.param(name, given, id=f"{name}[{shown}]")


@pytest.fixture(scope="module", autouse=True)
def _server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    folder = tmp_path_factory.mktemp("joblib")
    with pytest.MonkeyPatch.context() as patched, served(folder):
        patched.setenv("COVEY_DIR", str(folder / ".covey"))
        yield
        for executors in ours._idle.values():
            for executor in executors:
                executor.shutdown()
        ours._idle.clear()


@pytest.mark.parametrize(("name", "given"), list(cases()))
def test_of_joblib(name: str, given: dict[str, Any], request: pytest.FixtureRequest) -> None:
    test = getattr(theirs, name)
    for mark in test.pytestmark:
        if mark.name == "skipif" and mark.args[0]:
            pytest.skip(mark.kwargs["reason"])
    for one in ["", *(f"{key}={value}" for key, value in given.items())]:
        if (name, one) in NOT_HERE:
            pytest.skip(NOT_HERE[name, one])
    code = test.__code__
    wanted = code.co_varnames[: code.co_argcount]
    fixtures = {one: request.getfixturevalue(one) for one in wanted if one not in given}
    test(**given, **fixtures)


def test_what_is_left_out_is_there_to_be_left_out() -> None:
    found = [param.values for param in cases()]
    names = {name for name, _ in found}
    for test, one in NOT_HERE:
        assert test in names
        assert not one or any(
            one in [f"{key}={value}" for key, value in given.items()]
            for name, given in found
            if name == test
        )
    assert len(names) > 20
    assert ours.NAME in joblib.parallel.BACKENDS
