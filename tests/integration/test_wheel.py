"""The wheel alone, with its locked dependencies, works outside the checkout."""

import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from covey import __version__

ROOT = Path(__file__).parents[2]


def run(*command: str | Path, cwd: Path) -> str:
    result = subprocess.run(command, cwd=cwd, text=True, capture_output=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy, so that nothing is left in the checkout."""
    source = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for name in ("src", "docs"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", cwd=source)
    (built,) = (source / "dist").glob("*.whl")
    return built


@pytest.mark.timeout(300)
def test_wheel_works_outside_the_checkout(wheel: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    install = (python, "-m", "pip", "install", "--quiet")
    run(*install, "--require-hashes", "-r", ROOT / "requirements" / "runtime.txt", cwd=tmp_path)
    run(*install, "--no-deps", wheel, cwd=tmp_path)
    run(python, "-m", "pip", "check", cwd=tmp_path)

    covey = python.with_name("covey")
    assert __version__ in run(covey, "--version", cwd=tmp_path)
    assert "Usage" in run(covey, "--help", cwd=tmp_path)
    assert run(covey, "help", "policies", cwd=tmp_path).startswith("# ")
    assert (tmp_path / "venv" / "share" / "man" / "man1" / "covey.1").is_file()
