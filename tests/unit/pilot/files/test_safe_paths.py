"""Nothing outside of a directory is touched, whatever is put into it and whenever."""

import errno
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from covey.pilot.files import safe_paths
from covey.pilot.files.safe_paths import let_in, open_directory, open_file, open_parent, remove


def empty(path: str) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        safe_paths.empty(fd)
    finally:
        os.close(fd)


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
    empty(str(root))
    assert list(root.iterdir()) == []
    empty(str(root))
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


def test_a_directory_with_very_many_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(safe_paths, "_BATCH", 7)
    for number in range(30):
        (tmp_path / f"{number}").touch()
        (tmp_path / f"d{number}" / "e").mkdir(parents=True)
        (tmp_path / "d0" / f"{number}").touch()
    empty(str(tmp_path))
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def open_path() -> Iterator[Path]:
    """A directory to which everybody may go."""
    path = Path(tempfile.mkdtemp(prefix="covey-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


def test_modes_are_no_obstacle_and_links_keep_theirs(open_path: Path) -> None:
    """As an ordinary user, whom modes would stop."""
    outside = open_path / "outside"
    root = open_path / "root"
    (root / "a" / "b" / "c").mkdir(parents=True)
    outside.mkdir()
    (root / "a" / "b" / "link").symlink_to(outside)
    for path in (root, *root.rglob("*"), outside, open_path):
        os.chown(path, 65534, 65534, follow_symlinks=False)
    (root / "a" / "b").chmod(0o500)
    (root / "a").chmod(0)
    root.chmod(0)
    outside.chmod(0o750)
    pid = os.fork()
    if pid == 0:
        try:
            os.setresuid(65534, 65534, 65534)
            remove(str(root))
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0
    assert not root.exists()
    assert outside.stat().st_mode & 0o777 == 0o750


def test_a_name_that_becomes_a_link_as_it_is_let_in(tmp_path: Path) -> None:
    (tmp_path / "secret").touch(0o600)
    (tmp_path / "link").symlink_to("secret")
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        with pytest.raises(OSError, match="neither a file nor a directory"):
            safe_paths.let_in("link", 0o777, folder)
    finally:
        os.close(folder)
    assert (tmp_path / "secret").stat().st_mode & 0o777 == 0o600


def test_emptying_ends_though_somebody_fills(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "root").mkdir()
    names = safe_paths.some_names

    def filling(folder: int, most: int) -> list[str]:
        os.close(os.open("more", os.O_CREAT | os.O_WRONLY, dir_fd=folder))
        return names(folder, most)

    monkeypatch.setattr(safe_paths, "some_names", filling)
    with pytest.raises(OSError, match="another program makes files") as caught:
        remove(str(tmp_path / "root"), 5)
    assert caught.value.errno == errno.EBUSY


def test_swapping_while_it_is_emptied(tmp_path: Path) -> None:
    """One makes directories and turns them into links; the other removes. Nothing outside goes."""
    outside = tmp_path / "outside"
    (outside / "deep").mkdir(parents=True)
    (outside / "deep" / "precious").write_text("kept")
    for path in (outside, outside / "deep"):
        path.chmod(0o750)
    root = tmp_path / "root"
    root.mkdir()
    done = threading.Event()

    def swap() -> None:
        while not done.is_set():
            for make in (
                lambda: os.makedirs(root / "d" / "e" / "deep", 0o500),
                lambda: (root / "d").rename(root / "away"),
                lambda: (root / "d").symlink_to(outside),
                lambda: (root / "d").unlink(),
                lambda: (root / "away" / "e").rename(root / "e"),
                lambda: (root / "away" / "e").symlink_to(outside),
            ):
                try:
                    make()
                except OSError:
                    pass

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        until = time.monotonic() + 1.0
        while time.monotonic() < until:
            try:
                empty(str(root))
            except OSError:
                pass
    finally:
        done.set()
        thread.join()
    remove(str(root))
    assert not root.exists()
    assert (outside / "deep" / "precious").read_text() == "kept"
    assert outside.stat().st_mode & 0o777 == 0o750
    assert (outside / "deep").stat().st_mode & 0o777 == 0o750


@pytest.mark.parametrize("unlock", [False, True])
def test_no_link_is_opened_that_took_a_names_place(tmp_path: Path, unlock: bool) -> None:
    """As if it were put there between a look at the name and its opening."""
    outside, folder = tmp_path / "outside", tmp_path / "task"
    outside.mkdir()
    folder.mkdir()
    (outside / "secret").write_text("secret")
    (folder / "file").symlink_to(outside / "secret")
    (folder / "folder").symlink_to(outside)
    parent = os.open(folder, os.O_RDONLY)
    try:
        with pytest.raises(OSError):
            open_file("file", parent, unlock)
        with pytest.raises(OSError):
            open_directory("folder", parent, unlock)
        with pytest.raises(OSError):
            open_parent(os.dup(parent), "folder/secret")
        with pytest.raises(OSError):
            let_in("file", 0o777, parent)
    finally:
        os.close(parent)
    assert (outside / "secret").stat().st_mode & 0o777 != 0o777
