"""CPython's own tests of executors, run with `covey.Executor`.

They come with the interpreter, or with Debian's libpython3.11-testsuite. Their file is copied under
another name to a place that workers can import it from, as they import any module of a user's. What
is left out stands in NOT_HERE, with the reason.
"""

import atexit
import importlib
import importlib.util
import shutil
import sys
import tempfile
import unittest
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.executor_suite.serving import WORKERS, CoveyExecutor, served

pytestmark = pytest.mark.timeout(300)

NAME = "cpython_executor_tests"
DEBIAN = Path("/usr/lib/python3.11/test/test_concurrent_futures.py")

_SCRIPT = (
    "it runs a script that says `from concurrent.futures import {executor_type}`; "
    "tests/integration/test_executor_exit.py runs the same with covey's"
)
NOT_HERE = {
    "test_interpreter_shutdown": _SCRIPT,
    "test_submit_after_interpreter_shutdown": _SCRIPT,
    "test_hang_gh83386": _SCRIPT,
}


def _source() -> Path | None:
    found = importlib.util.find_spec("test.test_concurrent_futures")
    if found is not None and found.origin is not None and found.origin.endswith("s.py"):
        return Path(found.origin)
    return DEBIAN if DEBIAN.exists() else None


def _load(source: Path) -> ModuleType:
    folder = Path(tempfile.mkdtemp(prefix="covey-cpython-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    shutil.copy(source, folder / f"{NAME}.py")
    sys.path.append(str(folder))
    return importlib.import_module(NAME)


SOURCE = _source()
assert SOURCE is not None, "no test_concurrent_futures: tools/install-test-packages brings it"
theirs: Any = _load(SOURCE)


@pytest.fixture(scope="module", autouse=True)
def _server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with served(tmp_path_factory.mktemp("cpython")) as connection:
        # Their waits are short: the pilot is to be there, and awake.
        with CoveyExecutor() as executor:
            assert list(executor.map(abs, range(-WORKERS, 0))) == [5, 4, 3, 2, 1]
        assert connection.server().slots == WORKERS
        yield
    sys.path.remove(str(Path(theirs.__file__).parent))


class Mixin(theirs.ExecutorMixin):  # type: ignore[misc]
    executor_type = CoveyExecutor

    def setUp(self) -> None:
        reason = NOT_HERE.get(self._testMethodName)
        if reason:
            self.skipTest(reason)
        super().setUp()


class ExecutorTest(Mixin, theirs.ExecutorTest, theirs.BaseTestCase):  # type: ignore[misc]
    test_map_chunksize = theirs.ProcessPoolExecutorTest.test_map_chunksize


class WaitTest(Mixin, theirs.WaitTests, theirs.BaseTestCase):  # type: ignore[misc]
    pass


class AsCompletedTest(Mixin, theirs.AsCompletedTests, theirs.BaseTestCase):  # type: ignore[misc]
    pass


class ShutdownTest(Mixin, theirs.ExecutorShutdownTest, theirs.BaseTestCase):  # type: ignore[misc]
    pass


class InitializerTest(theirs.InitializerMixin, Mixin, theirs.BaseTestCase):  # type: ignore[misc]
    pass


def test_what_is_left_out_is_there_to_be_left_out() -> None:
    suites = (ExecutorTest, WaitTest, AsCompletedTest, ShutdownTest, InitializerTest)
    names = [name for suite in suites for name in unittest.TestLoader().getTestCaseNames(suite)]
    assert set(NOT_HERE) <= set(names)
    assert len(set(names)) >= 30
