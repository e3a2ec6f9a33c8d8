"""Settings for every test. Markers and the time limit are in pyproject.toml."""

import gc
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from covey.pilot.slots import process_tree

# The systems of the testbed are there for every test.
pytest_plugins = ["tests.testbed.fixtures"]

settings.register_profile("dev", deadline=None, print_blob=True)
settings.register_profile("ci", deadline=None, print_blob=True, derandomize=True, database=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))


# A shell that runs us in the background has SIGINT ignored, and so would all that we start.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# Folders with the longest files first, so that several processes end at the same time; in the last
# ones every file takes seconds at most.
LONG_FIRST = (
    *("faults", "simulation", "classad_reference", "fuzz", "executor_suite", "network", "testbed"),
    *("contract", "integration", "property", "tidy", "unit"),
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    tests = Path(__file__).parent

    def place(item: pytest.Item) -> int:
        folder = item.path.relative_to(tests).parts[0]
        return LONG_FIRST.index(folder) if folder in LONG_FIRST else 0

    items.sort(key=place)


def pytest_collection_finish() -> None:
    """Thousands of tests and what they import stay: the garbage collector need not look at them."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """Slots in this process make it one that orphans come to. Those of later tests would stay
    zombies here, which others take for living processes."""
    process_tree.become_subreaper(False)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MB."""
    point = tmp_path / "disk"
    point.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(point)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("needs the right to mount")
    yield point
    subprocess.run(["umount", "--lazy", str(point)], check=True)
