"""The Python of docs/python.md is run in IPython, as a reader would in a notebook.

A block that begins with `# NAME.py` is that file; the others are cells, one after another. What
stands in a `text` block below one is what it shows, with `…` for anything. A comment above a block
says what it `needs`, or that it is `not run`.
"""

import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from IPython.utils.capture import capture_output

from tests.integration.python_place import Place, ipython, working_in

PAGE = Path(__file__).parents[2] / "docs" / "python.md"
_BLOCK = re.compile(
    r"(?:<!-- (?P<told>[^\n]*) -->\n\n)?```python\n(?P<code>.*?)```\n"
    r"(?:\n```text\n(?P<shown>.*?)```\n)?",
    re.DOTALL,
)
_FILE = re.compile(r"# (\w+\.py)\n")


class Cell(NamedTuple):
    code: str
    shown: list[str]
    told: str

    @property
    def lacks(self) -> str:
        word, _, what = self.told.partition(" ")
        if word == "needs":
            return "" if importlib.util.find_spec(what) else what
        return "a server" if self.told == "not run" else ""


def cells(text: str) -> list[Cell]:
    return [
        Cell(match["code"], (match["shown"] or "").splitlines(), match["told"] or "")
        for match in _BLOCK.finditer(text)
    ]


def fits(expected: str, shown: str) -> bool:
    parts = [re.escape(part) for part in expected.strip().split("…")]
    return re.search("[^\n]*".join(parts), shown) is not None


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    yield from working_in(tmp_path, monkeypatch)


@pytest.fixture
def shell() -> Iterator[Any]:
    with ipython() as made:
        yield made


def run(shell: Any, cell: Cell, here: Path) -> None:
    named = _FILE.match(cell.code)
    if named is not None:
        (here / named[1]).write_text(cell.code)
        return
    with capture_output(display=False) as captured:
        ran = shell.run_cell(cell.code)
    ran.raise_error()
    shown = captured.stdout + ("" if ran.result is None else repr(ran.result))
    for line in cell.shown:
        assert fits(line, shown), f"{line!r} is not in:\n{cell.code}\n{shown}"


def test_a_reader_of_the_page_sees_what_it_shows(place: Place, shell: Any) -> None:
    found = cells(PAGE.read_text(encoding="utf-8"))
    assert len(found) > 10
    assert [cell.lacks for cell in found].count("a server") == 1
    for cell in found:
        if not cell.lacks:
            run(shell, cell, place.here)


def test_what_a_page_shows_is_compared(shell: Any, tmp_path: Path) -> None:
    good, bad, wrong = cells(
        "```python\nprint('a b c')\n```\n\n```text\na … c\n```\n"
        "```python\n1 + 1\n```\n\n```text\n3\n```\n```python\n1 / 0\n```\n"
    )
    run(shell, good, tmp_path)
    with pytest.raises(AssertionError, match="'3' is not in"):
        run(shell, bad, tmp_path)
    with pytest.raises(ZeroDivisionError):
        run(shell, wrong, tmp_path)
