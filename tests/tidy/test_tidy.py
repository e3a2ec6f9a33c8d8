"""Holds the whole repository to the rules in checkers.py."""

import shutil
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from tests.tidy import checkers

ROOT = Path(__file__).parents[2]
SKIPPED = {".git", ".venv", "__pycache__", "dist", ".hypothesis"}

# Modules and functions that were too long when the rule came, with their lines.
# This list only shrinks: shorten one, then take it out.
TOO_LONG: dict[str, int] = {}


def is_rubbish(path: Path) -> bool:
    return any(part in SKIPPED or part.endswith("_cache") for part in path.parts)


def repository_files() -> list[Path]:
    """All that is, or could be, committed; without git, all but well-known rubbish."""
    if shutil.which("git") and (ROOT / ".git").exists():
        command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        listed = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout
        paths = [ROOT / name for name in listed.decode().split("\0") if name]
    else:
        paths = [path for path in ROOT.rglob("*") if not is_rubbish(path.relative_to(ROOT))]
    return sorted(path for path in paths if path.is_file() and not path.is_symlink())


FILES = repository_files()
PYTHON = [path for path in FILES if path.suffix == ".py"]
SOURCES = [path for path in PYTHON if path.is_relative_to(ROOT / "src")]
TESTS = [path for path in PYTHON if path.is_relative_to(ROOT / "tests")]


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


def in_package(*names: str) -> list[Path]:
    folders = [ROOT / "src" / "covey" / name for name in names]
    return [path for path in SOURCES if any(path.is_relative_to(folder) for folder in folders)]


def package_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT / "src").parent.parts)


def assert_tidy(paths: Iterable[Path], check: Callable[[Path], list[str]]) -> None:
    found = [f"{path.relative_to(ROOT)}: {what}" for path in paths for what in check(path)]
    assert not found, "\n" + "\n".join(found)


def test_the_repository_was_found() -> None:
    assert ROOT / "src" / "covey" / "__init__.py" in SOURCES
    assert Path(__file__) in TESTS


def test_nothing_is_too_long() -> None:
    found = {}
    for path in PYTHON:
        name = str(path.relative_to(ROOT))
        if lines := checkers.long_module(read(path)):
            found[name] = lines
        for function, size in checkers.long_functions(read(path)).items():
            found[f"{name}:{function}"] = size
    assert not checkers.not_in_budget(found, TOO_LONG)


def test_modules_say_what_they_are() -> None:
    assert_tidy(SOURCES, lambda path: checkers.bad_name(path.relative_to(ROOT)))
    assert_tidy(SOURCES, lambda path: checkers.missing_docstring(read(path)))


def test_init_files_hold_only_exports() -> None:
    inits = [path for path in SOURCES if path.name == "__init__.py"]
    assert_tidy(inits, lambda path: checkers.not_exports(read(path)))


def test_core_does_nothing_but_decide() -> None:
    assert_tidy(
        in_package("core", "questions"),
        lambda path: checkers.impure_core(read(path), package_of(path)),
    )


@pytest.mark.parametrize("package", ["classad", "peers", "pilot", "worker"])
def test_hosts_need_only_the_standard_library(package: str) -> None:
    assert_tidy(
        in_package(package),
        lambda path: checkers.not_standard_library(read(path), package_of(path)),
    )


def test_nothing_is_left_for_later() -> None:
    assert_tidy([*SOURCES, *TESTS], lambda path: checkers.leftovers(read(path)))


def test_no_file_names_a_registry_or_one_machine() -> None:
    assert_tidy(FILES, lambda path: checkers.addresses(read(path)))


def test_python_files_have_no_tabs() -> None:
    assert_tidy(PYTHON, lambda path: checkers.tabs(read(path)))
