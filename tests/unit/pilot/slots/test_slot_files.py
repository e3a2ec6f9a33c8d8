"""A directory is as new for each task; output is cut in the middle only."""

import os
import time
from pathlib import Path

import pytest

from covey.pilot.slots import slot_files
from covey.pilot.slots.slot_files import Home, OutputFiles, Space


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


def test_another_home_is_another_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "home"
    home = Home(str(path))
    kept = os.open(path, os.O_RDONLY)
    try:
        (path / "left").write_text("x")
        home.renew()
        assert Path.cwd() == path
        assert list(path.iterdir()) == []
        (path / "private").write_text("of the next")
        assert os.listdir(kept) == []
        with pytest.raises(FileNotFoundError):
            os.open("planted", os.O_CREAT | os.O_WRONLY, dir_fd=kept)
    finally:
        os.close(kept)


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
    output = OutputFiles(str(tmp_path / "out"), fd)
    for _ in range(2):
        os.write(fd, written)
        assert output.take(limit) == (kept, len(written), written)
    os.close(fd)


def test_a_long_output_gives_its_middle_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slot_files, "_SPARE_BYTES", 1 << 20)
    path = tmp_path / "out"
    fd = os.open(os.devnull, os.O_WRONLY)
    output = OutputFiles(str(path), fd)
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
    assert "cannot find out the free space" in Space(str(tmp_path / "missing"), 1).shortage()


def test_an_old_directory_is_still_emptied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(slot_files, "CLOCK_SECONDS", 0.05)
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
