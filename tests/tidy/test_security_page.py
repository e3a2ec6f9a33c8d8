"""Every promise of SECURITY.md names tests that there are."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
NAMED = re.compile(r"`(tests/[\w/]+\.py)?::(\w+)`")
NO_PROMISES = "## Not protected"  # below this heading, up to the next one


def promises() -> Iterator[str]:
    """Each point of the page, but for those that promise nothing."""
    for part in re.split(r"(?m)^(?=## )", PAGE):
        if not part.startswith(NO_PROMISES):
            yield from re.findall(r"(?ms)^- .*?(?=^- |^#|^$)", part)


@cache
def functions_in(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {one.name for one in ast.walk(tree) if isinstance(one, ast.FunctionDef)}


def test_every_promise_names_a_test() -> None:
    found = list(promises())
    assert len(found) > 50
    without = [one for one in found if not NAMED.search(one)]
    assert not without, without


def test_every_named_test_exists() -> None:
    file, missing = "", []
    for path, name in NAMED.findall(PAGE):
        file = path or file
        if not (ROOT / file).exists() or name not in functions_in(ROOT / file):
            missing.append(f"{file}::{name}")
    assert not missing, missing
