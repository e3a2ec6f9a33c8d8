"""The pilot as one file, on every Python that hosts have, against a real server."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import covey.pilot
from covey.core.record.model import Need
from covey.wiring import write_pilot_file
from tests.faults.world import World, open_world, task_script, wait_until
from tests.integration.test_slots_interpreters import pythons


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with open_world() as found:
        found.serve("--pilots", "0")
        yield found


IMPORTS_ALL = """
import importlib, sys, zipfile
path = sys.argv[1]
sys.path.insert(0, path)
names = [name[:-3] for name in zipfile.ZipFile(path).namelist() if name.startswith("covey/")]
names = [name.replace("/", ".").replace(".__init__", "") for name in names]
for name in names:
    assert path in importlib.import_module(name).__file__, name
print("\\n".join(names))
"""


@pytest.mark.parametrize("python", [*pythons(), "pypy3"])
def test_every_module_of_the_file_can_be_imported(tmp_path: Path, python: str) -> None:
    """The whole package is in there, with its sub-packages, and nothing that lacks a part."""
    file = tmp_path / "pilot.pyz"
    write_pilot_file(file)
    command = [python, "-I", "-c", IMPORTS_ALL, str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    package = Path(covey.pilot.__file__).parent
    modules = {path.relative_to(package.parents[1]) for path in package.rglob("*.py")}
    names = {".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in modules}
    assert set(done.stdout.split()) == names | {"covey"}


@pytest.mark.parametrize("python", [*pythons(), "pypy3"])
def test_a_bag_runs(world: World, tmp_path: Path, python: str) -> None:
    place = tmp_path / "pilot"
    pilot = world.pilot("--slots", "2", "--directory", str(place), python=python)
    script = task_script("echo ä{i}; echo err >&2; test {i} != 3 || exit 1")
    bag = world.submit(script, 8)
    view = world.wait_over(bag)
    assert (view.done, view.failed) == (7, 1)
    stuck = world.submit("sleep 60", 1, need=Need(limit_seconds=0.5), overtimes=0)
    assert world.wait_over(stuck).failed == 1
    client = world.client()
    for task in range(8):
        output = client.output(bag, task)
        assert output is not None
        assert output.stdout == f"ä{task}\n"
        assert output.stderr == "err\n"
    [row] = client.attempts(stuck, 0)
    assert row.outcome == "timeout"
    client.close()
    pilot.terminate()
    assert pilot.wait(30) == 0
    assert not place.exists()
    wait_until(lambda: not world.pilots())
