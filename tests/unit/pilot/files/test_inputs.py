"""Inputs are linked if that can be, and copied faithfully if not."""

import errno
import os
from pathlib import Path

import pytest

from covey.pilot.files import inputs
from covey.pilot.files.inputs import InputRefused


def place(source: str, path: str, copy: bool) -> None:
    inputs.place(source, path, copy, lambda: None)


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "source"
    path.write_text("text")
    path.chmod(0o555)
    os.utime(path, (1e9, 1e9))
    (tmp_path / "home").mkdir()
    monkeypatch.chdir(tmp_path / "home")
    return path


def test_a_link_is_the_file_itself(source: Path) -> None:
    place(str(source), "a/b/c", False)
    assert Path("a/b/c").samefile(source)


def test_a_copy_can_be_written(source: Path) -> None:
    place(str(source), "a/copy", True)
    copy = Path("a/copy").stat()
    assert (copy.st_mode & 0o777, copy.st_mtime) == (0o755, 1e9)
    assert Path("a/copy").read_text() == "text"
    assert not Path("a/copy").samefile(source)


@pytest.mark.parametrize("number", [errno.EXDEV, errno.EPERM, errno.EMLINK])
def test_what_cannot_be_linked_is_copied(
    source: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(old: str, new: str, **folders: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "link", refuse)
    for _ in range(2):  # the second takes the place of the first
        place(str(source), "a/b", False)
    assert Path("a/b").read_text() == "text"
    assert Path("a/b").stat().st_mode & 0o777 == 0o555  # still not to be written


def test_a_link_that_takes_the_place_of_a_copy_is_not_followed(
    source: Path, tmp_path: Path
) -> None:
    """A worker that lives in the directory may do that while its call is placed."""
    private = tmp_path / "private"
    private.touch(0o600)

    def swap() -> None:
        os.unlink("copy")
        os.symlink(private, "copy")

    source.chmod(0o755)
    source.write_bytes(bytes(5 << 20))
    source.chmod(0o555)
    inputs.place(str(source), "copy", True, swap)
    found = private.stat()
    assert (found.st_mode & 0o777, found.st_size) == (0o600, 0)


def test_a_directory_that_becomes_a_link_is_not_entered(source: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (outside / "b").mkdir(parents=True)
    (outside / "b" / "c").write_text("precious")
    for link in ("a", "x/b"):
        Path(link).parent.mkdir(exist_ok=True)
        Path(link).symlink_to(outside)
        for copy in (False, True):
            with pytest.raises(InputRefused):
                place(str(source), f"{link}/b/c", copy)
            with pytest.raises(NotADirectoryError):
                inputs.displace(f"{link}/b/c")
    assert (outside / "b" / "c").read_text() == "precious"
    assert not outside.joinpath("b/d").exists()
    place(str(source), "y/z", True)
    inputs.displace("y/z")
    assert os.listdir("y") == []


def test_a_missing_source_is_an_error_of_the_host(source: Path) -> None:
    for copy in (False, True):
        with pytest.raises(FileNotFoundError):
            place(f"{source}-gone", "x", copy)
    assert os.listdir() == []


@pytest.mark.parametrize("path", ["", "/x", "..", "../x", "a/../x", "a\0b"])
def test_no_path_leads_out(source: Path, path: str) -> None:
    with pytest.raises(InputRefused):
        place(str(source), path, False)
    assert os.listdir() == []


def test_a_long_copy_pauses_for_breath(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "_PIECE_BYTES", 2)
    breaths: list[int] = []
    source.with_name("other").write_text("12345")
    inputs.place(str(source.with_name("other")), "x", True, lambda: breaths.append(1))
    assert (Path("x").read_text(), len(breaths)) == ("12345", 2)

    def stop() -> None:
        raise KeyError

    with pytest.raises(KeyError):
        inputs.place(str(source), "y", True, stop)
