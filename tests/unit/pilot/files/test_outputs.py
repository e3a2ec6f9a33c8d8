"""Files that a task returns are found, whatever links say, and taken whole."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from covey.pilot.files import outputs, safe_paths
from covey.pilot.files.output_patterns import compiled
from covey.pilot.files.outputs import Found, Search, Unfit
from covey.pilot.files.safe_paths import OwnRoot, Root
from covey.pilot.slots.orders import Returned


def nothing() -> None:
    pass


@contextlib.contextmanager
def rooted(path: Path) -> Iterator[Root]:
    fd = os.open(path, os.O_RDONLY)
    before = len(os.listdir("/proc/self/fd"))
    try:
        yield OwnRoot(fd, str(path))
        assert len(os.listdir("/proc/self/fd")) == before  # every descriptor was closed
    finally:
        os.close(fd)


def find(path: Path, required: list[str], optional: list[str] | None = None) -> Found:
    with rooted(path) as root:
        search = Search(root, {}, nothing)
        search.add(compiled(required), compiled(optional or []))
        return search.found


def take(path: Path, found: Found, target: Path, most: int = 1 << 30) -> list[Returned]:
    with rooted(path) as root:
        return outputs.take(root, found, str(target), most, nothing)


def make(root: Path, *paths: str) -> None:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(os.fsencode(path))


def test_one_file_is_found_once(tmp_path: Path) -> None:
    make(tmp_path, "a/1", "a/2", "b")
    found = find(tmp_path, ["a", "a/*", "*", "a/1"], ["b"])
    assert sorted(found) == ["a/1", "a/2", "b"]


def test_every_pattern_must_match(tmp_path: Path) -> None:
    make(tmp_path, "a/1")
    with pytest.raises(Unfit, match="no output matches 'b' \\(there is a/1\\)"):
        find(tmp_path, ["a", "b"])
    (tmp_path / "b").mkdir()  # an empty directory is no file
    with pytest.raises(Unfit):
        find(tmp_path, ["b"])
    assert find(tmp_path, [], ["b", "c", "c/d"]) == {}


def test_a_directory_reached_by_a_link_inside(tmp_path: Path) -> None:
    root = tmp_path / "root"
    make(root, "run3/x")
    make(tmp_path, "outside/x")
    (root / "latest").symlink_to("run3")
    (root / "far").symlink_to(tmp_path / "outside")
    (root / "loop").symlink_to("loop")
    assert sorted(find(root, ["latest/*"])) == ["latest/x"]
    assert sorted(find(root, ["latest/x"])) == ["latest/x"]
    for pattern in ("far", "far/x", "far/*", "loop"):
        assert find(root, [], [pattern]) == {}


def test_a_name_that_is_no_text(tmp_path: Path) -> None:
    make(tmp_path, "a\udcff")
    assert list(find(tmp_path, ["*"])) == ["a\udcff"]


def test_small_ones_are_read_and_large_ones_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outputs, "INLINE_BYTES", 10)
    monkeypatch.setattr(outputs, "INLINE_TOTAL_BYTES", 15)
    root = tmp_path / "root"
    root.mkdir()
    for name, size in (("a", 8), ("b", 8), ("c", 7), ("d", 11), ("e", 0)):
        (root / name).write_bytes(b"x" * size)
    (root / "hard").hardlink_to(root / "d")
    found = find(root, ["*"])
    files = take(root, found, tmp_path / "outbox" / "k")
    assert [(file.path, len(file.data), Path(file.moved_to).name) for file in files] == [
        ("a", 8, ""),
        ("b", 0, "k-1"),
        ("c", 7, ""),
        ("d", 0, "k-3"),
        ("e", 0, ""),
        ("hard", 0, "k-5"),
    ]
    left = sorted(path.name for path in root.iterdir())
    assert left == ["a", "c", "d", "e", "hard"]  # what others have too is copied


def test_too_much_is_refused(tmp_path: Path) -> None:
    root = tmp_path / "root"
    make(root, "a", "b")
    found = find(root, ["*"])
    assert len(take(root, found, tmp_path / "outbox" / "k", 2)) == 2
    with pytest.raises(Unfit, match="its 2 output files have"):
        take(root, found, tmp_path / "outbox" / "k", 1)
    with rooted(root) as opened:
        search = Search(opened, {}, nothing)
        search.add(compiled(["*"]))
        search.weigh(2)
        with pytest.raises(Unfit, match="its 2 output files have"):
            search.weigh(1)


def test_links_that_stay_inside_are_the_files_that_they_lead_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outputs, "INLINE_BYTES", 3)
    root = tmp_path / "root"
    make(root, "run3/deep/large", "small")
    (root / "latest").symlink_to("run3")
    (root / "run3" / "up").symlink_to("../latest/./deep//large")
    (root / "absolute").symlink_to(root / "small")
    (root / "both").symlink_to("small")
    found = find(root, ["run3/up", "run3/deep", "absolute", "small", "latest/deep/large", "both"])
    files = take(root, found, tmp_path / "outbox" / "k")
    read = {
        file.path: Path(file.moved_to).read_text() if file.moved_to else file.data.decode()
        for file in files
    }
    assert read == {
        "absolute": "small", "both": "small", "latest/deep/large": "run3/deep/large",
        "run3/deep/large": "run3/deep/large", "run3/up": "run3/deep/large", "small": "small",
    }  # fmt: skip


def test_links_that_lead_out_are_named(tmp_path: Path) -> None:
    root = tmp_path / "root"
    make(tmp_path, "secret", "root/a/b")
    for name, target in (
        ("up", "../secret"),
        ("round", "a/../../secret"),
        ("far", str(tmp_path / "secret")),
        ("beside", f"{root}/../secret"),
        ("longer", f"{root}secret"),
        ("proc", "/proc/self/cwd/a/b"),
        ("parent", ".."),
    ):
        (root / name).symlink_to(target)
        with pytest.raises(Unfit, match=f"{name!r} is a link that leads out of"):
            find(root, [name])
        assert not find(root, [], [f"{name}/secret", f"{name[:-1]}*"])


@pytest.mark.parametrize("kind", ["link", "folder", "pipe", "gone", "parent"])
def test_what_takes_a_files_place_is_not_taken(tmp_path: Path, kind: str) -> None:
    """Between the look at a file and its taking."""
    root = tmp_path / "root"
    make(root, "d/file")
    make(tmp_path, "outside/file")
    (tmp_path / "outside" / "file").write_text("secret")
    found = find(root, ["d/file"])
    (root / "d" / "file").unlink()
    if kind == "link":
        (root / "d" / "file").symlink_to(tmp_path / "outside" / "file")
    elif kind == "folder":
        (root / "d" / "file").mkdir()
    elif kind == "pipe":
        os.mkfifo(root / "d" / "file")
    elif kind == "parent":
        (root / "d").rmdir()
        (root / "d").symlink_to(tmp_path / "outside")
    with pytest.raises(Unfit, match="'d/file' was changed while covey copied it"):
        take(root, found, tmp_path / "outbox" / "k")


@pytest.mark.parametrize("kind", ["link", "folder", "file"])
def test_what_takes_its_place_as_it_is_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """The file was opened and is large; then another thing is moved to the outbox."""
    monkeypatch.setattr(outputs, "INLINE_BYTES", 3)
    root = tmp_path / "root"
    make(root, "file")
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "secret").chmod(0o640)
    found = find(root, ["file"])
    rename = os.rename

    def swapped(source: str, target: str, **more: int) -> None:
        rename(root / "file", root / "kept")
        if kind == "link":
            (root / "file").symlink_to(tmp_path / "secret")
        elif kind == "folder":
            make(root, "file/in/it")
        else:
            (root / "file").write_text("another")
        rename(source, target, **more)

    monkeypatch.setattr(os, "rename", swapped)
    with pytest.raises(Unfit, match="'file' was changed"):
        take(root, found, tmp_path / "outbox" / "k")
    assert list((tmp_path / "outbox").iterdir()) == []
    assert (tmp_path / "secret").stat().st_mode & 0o777 == 0o640


def test_nothing_is_left_in_the_outbox_when_one_is_amiss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outputs, "INLINE_BYTES", 0)
    root = tmp_path / "root"
    make(root, "a", "b")
    found = find(root, ["a", "b"])
    (root / "b").unlink()
    with pytest.raises(Unfit):
        take(root, found, tmp_path / "outbox" / "k")
    assert list((tmp_path / "outbox").iterdir()) == []


def test_a_search_has_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path, *(f"d/{number}" for number in range(10)))
    monkeypatch.setattr(outputs, "MOST_LOOKED_AT", 8)
    with pytest.raises(Unfit, match="more than 8 files were searched for"):
        find(tmp_path, [], ["d/*"])
    monkeypatch.undo()
    monkeypatch.setattr(outputs, "MOST_DEPTH", 3)
    make(tmp_path, "1/2/3/4/5/6")
    with pytest.raises(Unfit, match="more than 3 deep"):
        find(tmp_path, [], ["1/**"])
    assert len(find(tmp_path, [], ["d"])) == 10


def test_a_tree_that_is_too_deep_for_descriptors(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    folder = os.open(root, os.O_RDONLY)
    for _ in range(2000):
        os.mkdir("d", dir_fd=folder)
        below = os.open("d", os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = below
    os.close(folder)
    with pytest.raises(Unfit, match="deep"):
        find(root, ["**"])
    with pytest.raises(Unfit, match="no output matches 'x'"):
        find(root, ["x"])
    safe_paths.remove(str(root))
    assert not root.exists()


def test_modes_do_not_hide_what_is_ours(tmp_path: Path) -> None:
    root = tmp_path / "root"
    make(root, "d/tool")
    (root / "d" / "tool").chmod(0o100)
    (root / "d").chmod(0)
    (file,) = take(root, find(root, ["d/tool"]), tmp_path / "outbox" / "k")
    assert (file.data, file.executable) == (b"d/tool", True)
