"""Directories are emptied whatever is in them; output is cut in the middle only."""

import os
import time
from pathlib import Path

import pytest

from covey.pilot import scratch
from covey.pilot.scratch import Home, Output, Space, empty, remove


def test_empty_removes_everything_but_what_links_point_to(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("kept")
    root = tmp_path / "root"
    (root / "a" / "b" / "c").mkdir(parents=True)
    (root / "a" / "b" / "file").write_text("x")
    (root / ".covey-1").mkdir()
    (root / ".covey-2").symlink_to(outside)
    (root / "a" / "b" / "link").symlink_to(outside)
    (root / "a").chmod(0)
    assert empty(str(root))
    assert list(root.iterdir()) == []
    assert not empty(str(root))
    assert (outside / "precious").read_text() == "kept"


def test_empty_reaches_deeper_than_a_path_can(tmp_path: Path) -> None:
    here = os.open(".", os.O_RDONLY)
    os.chdir(tmp_path)
    try:
        for _ in range(100):
            os.mkdir("d" * 200)
            os.chdir("d" * 200)
    finally:
        os.fchdir(here)
        os.close(here)
    empty(str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_remove_takes_files_links_and_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path)
    for name in ("file", "link", "nothing"):
        remove(str(tmp_path / name))
    assert list(tmp_path.iterdir()) == []


def test_home_is_the_same_directory_until_it_must_not_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # restored at the end
    path = tmp_path / "home"
    home = Home(str(path))
    first = path.stat().st_ino
    (path / "left").mkdir()
    home.tidy()
    assert path.stat().st_ino == first
    assert list(path.iterdir()) == []
    path.rename(tmp_path / "away")
    home.tidy()
    assert Path.cwd() == path
    home.remove()
    assert not path.exists()


@pytest.mark.parametrize(
    ("written", "limit", "kept"),
    [
        (b"", 10, b""),
        (b"0123456789", 10, b"0123456789"),
        (b"0123456789a", 10, b"01234\n[... 1 bytes left out ...]\n6789a"),
        (b"0123456789", 3, b"0\n[... 7 bytes left out ...]\n89"),
        (b"0123456789", 0, b"\n[... 10 bytes left out ...]\n"),
    ],
)
def test_output_keeps_head_and_tail(
    tmp_path: Path, written: bytes, limit: int, kept: bytes
) -> None:
    fd = os.open(os.devnull, os.O_WRONLY)
    output = Output(str(tmp_path / "out"), fd)
    for _ in range(2):
        os.write(fd, written)
        assert output.take(limit) == (kept, len(written), written)
    os.close(fd)


def test_a_long_output_gives_its_middle_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scratch, "_SPARE_BYTES", 1 << 20)
    path = tmp_path / "out"
    fd = os.open(os.devnull, os.O_WRONLY)
    output = Output(str(path), fd)
    os.write(fd, b"head" + bytes(1 << 20))
    output.relieve(1 << 20)
    assert path.stat().st_blocks * 512 >= 1 << 20  # not yet
    for _ in range(7):
        os.write(fd, b"x" * (1 << 20))
    os.write(fd, b"tail")
    size = path.stat().st_size
    output.relieve(1000)
    assert path.stat().st_blocks * 512 < 3 << 20
    assert path.stat().st_size == size
    kept, full, end = output.take(1000)
    assert (kept[:4], kept[-5:], full) == (b"head", b"xtail", size)
    assert end == b"x" * 65533 + b"tail"
    os.close(fd)


def test_space_says_what_is_short(tmp_path: Path) -> None:
    assert Space(str(tmp_path), 1).shortage() == ""
    assert "no space left in" in Space(str(tmp_path), 1 << 60).shortage()
    assert "cannot look at" in Space(str(tmp_path / "missing"), 1).shortage()


def test_an_old_directory_is_still_emptied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(scratch, "CLOCK_SECONDS", 0.05)
    path = tmp_path / "home"
    home = Home(str(path))
    time.sleep(0.1)
    home.tidy()
    assert home._empty_since == path.stat().st_ctime_ns
    home.tidy()
    before = path.stat()
    (path / "left").write_text("x")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))  # as tar does
    home.tidy()
    assert list(path.iterdir()) == []
