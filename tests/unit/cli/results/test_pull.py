"""Files that tasks returned, fetched and told."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from covey.core.errors import NotFound
from covey.wire import ReturnedFile
from tests.unit.cli.builders import bag
from tests.unit.cli.source import FakeSource, Look

BIG = "ab" * 32


def returned(task: int, path: str, data: bytes = b"", digest: str = "") -> ReturnedFile:
    return ReturnedFile(
        row=task, task=task, values=[task], path=path, size=len(data), digest=digest, data=data
    )


@pytest.fixture
def pulling(source: FakeSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSource:
    monkeypatch.chdir(tmp_path)
    source.view = bag(done=4, failed=2, outputs=["*.txt"])
    source.returned = [returned(0, "a.txt", b"zero"), returned(2, "sub/a.txt", b"two")]
    return source


def gone(self: FakeSource, digest: str) -> Iterator[bytes]:
    raise NotFound("it was purged")


def test_files_are_laid_out(look: Look, pulling: FakeSource, tmp_path: Path) -> None:
    ran = look("pull")
    assert ran.stdout == "bag 3: 2 files (7 bytes), in bag-3\n"
    assert "4 of 10 tasks have not ended yet" in ran.stderr
    assert (tmp_path / "bag-3" / "2" / "sub" / "a.txt").read_bytes() == b"two"
    assert look("pull").stdout == "bag 3: 0 files, 2 existed already, in bag-3\n"


def test_by_a_layout_and_only_failed(look: Look, pulling: FakeSource, tmp_path: Path) -> None:
    look("pull", "3", "-o", "here", "--layout", "x{x}", "--failed")
    there = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert there == [tmp_path / "here" / "x2" / "sub" / "a.txt"]


def test_what_is_missing_is_said(
    look: Look, pulling: FakeSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    pulling.returned += [returned(n, "big", digest=BIG) for n in range(3, 10)]
    monkeypatch.setattr(FakeSource, "read_file", gone)
    ran = look("pull", status=1)
    assert "2 files (7 bytes), 7 missing" in ran.stdout
    assert "  missing: task 3: it was purged" in ran.stderr
    assert "  … and 2 more" in ran.stderr
    told = json.loads(look("pull", "--json", status=1).stdout)
    assert (told["kept"], told["refused"]) == (2, 7)


@pytest.mark.parametrize(
    ("view", "told"),
    [
        (bag(), "covey run --output PATTERN"),
        (bag(outputs=["*"]), "no files of bag 3 yet"),
        (bag(outputs=["*"], status="finished"), "no files of bag 3 match"),
    ],
)
def test_no_files(look: Look, pulling: FakeSource, view: Any, told: str) -> None:
    pulling.returned, pulling.view = [], view
    assert told in look("pull").stderr


def test_interrupted(look: Look, pulling: FakeSource, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(self: FakeSource, *rest: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(FakeSource, "files", interrupt)
    assert "the same command continues" in look("pull", status=1).stderr
