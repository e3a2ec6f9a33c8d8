"""The slots on every Python that hosts have, and on systems that have less."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SOURCE = HERE.parents[1] / "src"


def pythons() -> list[str]:
    names = [f"python3.{minor}" for minor in range(6, 15)]
    on_path = [found for name in names if (found := shutil.which(name))]
    installed = Path.home() / ".pyenv" / "versions"
    kept = sorted(str(path) for path in installed.glob("3.*/bin/python"))
    # A name on the PATH may be a shim of a version that is not chosen here.
    usable = [path for path in kept + on_path if "/shims/" not in path]
    return list({os.path.realpath(path): path for path in usable}.values()) or [sys.executable]


def check(*command: str, **env: str) -> None:
    result = subprocess.run(
        [*command],
        env=dict(os.environ, PYTHONPATH=str(SOURCE), PYTHONDONTWRITEBYTECODE="1", **env),
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert result.stdout == "whole\n", result.stderr


@pytest.mark.parametrize("python", [*pythons(), "pypy3"])
def test_slots_are_whole(python: str) -> None:
    check(python, str(HERE / "slots_selfcheck.py"))


def test_slots_are_whole_in_a_small_locale() -> None:
    check(pythons()[0], str(HERE / "slots_selfcheck.py"), LC_ALL="C", PYTHONCOERCECLOCALE="0")


@pytest.mark.parametrize("python", [sys.executable, "pypy3"])
def test_slots_work_where_there_is_less(python: str) -> None:
    check(python, str(HERE / "slots_selfcheck.py"), "degraded")
