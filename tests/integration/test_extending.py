"""The recipes of docs/extending.md work: their edits are made in a copy of the sources, and their
commands print what the page says.

Above a block, a line with a path says which file it is about. A `diff` block changes the file, any
other block but `console` is the file. In a `console` block a line that begins with `$ ` is a
command; the lines below it are in its output.
"""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "extending.md").read_text("utf-8")
RECIPES = dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
_PART = re.compile(r"^`(?P<path>[^`\n]+)`:$|^```(?P<kind>[a-z]+)\n(?P<text>.*?)^```$", re.M | re.S)
MOST_FILES = 5  # that a new bag key touches
MOST_LINES = 110


def apply_diff(path: Path, block: str) -> None:
    lines = block.splitlines(keepends=True)
    before = "".join(line[1:] for line in lines if line[0] != "+")
    after = "".join(line[1:] for line in lines if line[0] != "-")
    text = path.read_text("utf-8")
    assert text.count(before) == 1, f"{path}: not there, or more than once:\n{before}"
    path.write_text(text.replace(before, after), "utf-8")


def edit(tree: Path, recipe: str) -> None:
    path = tree
    for part in _PART.finditer(recipe):
        if part["path"]:
            path = tree / part["path"]
        elif part["kind"] == "diff":
            apply_diff(path, part["text"])
        elif part["kind"] != "console":
            path.parent.mkdir(exist_ok=True)
            path.write_text(part["text"], "utf-8")


def install(project: Path) -> None:
    """As far as Python can tell: the package's metadata are on the path."""
    about = tomllib.loads(project.read_text("utf-8"))["project"]
    stem = about["name"].replace("-", "_")
    info = project.parent / f"{stem}-{about['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Name: {about['name']}\nVersion: {about['version']}\n")
    ((group, points),) = about["entry-points"].items()
    lines = [f"{name} = {target}\n" for name, target in points.items()]
    (info / "entry_points.txt").write_text(f"[{group}]\n" + "".join(lines))


def environment(tree: Path) -> dict[str, str]:
    """With `python` and `covey`, which run the copy."""
    commands = tree / "bin"
    commands.mkdir()
    for name, words in (("python", ""), ("covey", " -m covey")):
        (commands / name).write_text(f'#!/bin/sh\nexec {sys.executable}{words} "$@"\n')
        (commands / name).chmod(0o755)
    packages = [str(project.parent) for project in tree.glob("*/pyproject.toml")]
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("COVEY_")},
        "PATH": f"{commands}:{os.environ['PATH']}",
        "PYTHONPATH": ":".join([str(tree / "src"), *packages]),
        "HOME": str(tree),
    }


def run(command: str, tree: Path, environ: dict[str, str]) -> str:
    done = subprocess.run(
        ["/bin/sh", "-c", command],
        cwd=tree,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}"
    return done.stdout


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_works(name: str, tmp_path: Path) -> None:
    recipe = RECIPES[name]
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    edit(tmp_path, recipe)
    for project in tmp_path.glob("*/pyproject.toml"):
        install(project)
    environ = environment(tmp_path)
    blocks = [part["text"] for part in _PART.finditer(recipe) if part["kind"] == "console"]
    try:
        for block in blocks:
            for step in block.removeprefix("$ ").split("\n$ "):
                command, *expected = step.strip().splitlines()
                printed = run(command, tmp_path, environ)
                for line in expected:
                    assert line in printed, f"{command}\n{printed}"
    finally:
        if (tmp_path / ".covey").exists():
            run("covey stop || true", tmp_path, environ)
    assert blocks


def test_a_bag_key_touches_few_files() -> None:
    paths = {part["path"] for part in _PART.finditer(RECIPES["A bag key"]) if part["path"]}
    assert len(paths) <= MOST_FILES


def test_a_recipe_is_at_most_a_page() -> None:
    assert {
        name: text.count("\n") <= MOST_LINES for name, text in RECIPES.items()
    } == dict.fromkeys(["A policy attribute", "A bag key", "A REST route", "A site driver"], True)
