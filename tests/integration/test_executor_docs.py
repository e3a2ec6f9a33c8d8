"""The Python of docs/executor.md is run in IPython, as a reader would in a notebook."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from covey.executor import Executor, joblib, tasks
from tests.integration.python_place import Place
from tests.integration.test_python_docs import cells, place, run, shell

__all__ = ["place", "shell"]

PAGE = Path(__file__).parents[2] / "docs" / "executor.md"


@pytest.fixture
def leaving(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The executors that a program keeps until its end are none of the next test's."""
    kept: dict[int, Executor] = {}
    monkeypatch.setattr(tasks, "_shared", kept)
    monkeypatch.setattr(joblib, "_idle", {})
    yield
    idle = [one for found in joblib._idle.values() for one in found]
    for executor in [*kept.values(), *idle]:
        executor.shutdown()


def test_a_reader_of_the_page_sees_what_it_shows(place: Place, leaving: None, shell: Any) -> None:
    found = cells(PAGE.read_text(encoding="utf-8"))
    assert len(found) == 10
    assert all(cell.shown for cell in found)
    for cell in found:
        run(shell, cell, place.here)
