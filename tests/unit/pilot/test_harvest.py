"""Patterns match what a shell's would, and files are taken whole."""

import os
from pathlib import Path

import pytest

from covey.pilot import harvest
from covey.pilot.harvest import Unfit, Wanted, find, patterns, take


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("a.txt", "a.txt", True),
        ("a.txt", "a_txt", False),
        ("./a//b", "a/b", True),
        ("a", "a/b/c", True),
        ("a/", "a/b", True),
        ("a", "ab", False),
        ("*.csv", "x.csv", True),
        ("*.csv", "d/x.csv", False),
        ("*.csv", ".x.csv", False),
        (".*", ".x", True),
        ("d?/x", "d1/x", True),
        ("d?/x", "d/x", False),
        ("r-*", "r-1/deep/.file", True),
        ("**/x", "x", True),
        ("**/x", "a/b/x", True),
        ("**/x", "a/.b/x", False),
        ("a/**", "a/b/c", True),
        ("a/**", "b/c", False),
        ("a/**/z*", "a/b/z1", True),
        ("a/**/z*", "a/z1", True),
        ("[ab]1", "b1", True),
        ("[!ab]1", "b1", False),
        ("[!ab]1", "c1", True),
        ("[a-c]", "b", True),
        ("[*]x", "*x", True),
        ("[*]x", "ax", False),
        ("[[]x", "[x", True),
        ("[]]x", "]x", True),
        ("[x", "[x", True),
        ("a[\\]b", "a\\b", True),
        ("a+(b)", "a+(b)", True),
        ("x\n", "x", False),
    ],
)
def test_patterns(pattern: str, path: str, matches: bool) -> None:
    assert Wanted(pattern).match(path) == matches


@pytest.mark.parametrize("pattern", ["", "/", "/a", "..", "a/../b", "."])
def test_patterns_stay_in_the_directory(pattern: str) -> None:
    with pytest.raises(Unfit, match="leads out"):
        Wanted(pattern)


def make(root: Path, *paths: str) -> None:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(os.fsencode(path))


def test_one_file_is_found_once(tmp_path: Path) -> None:
    make(tmp_path, "a/1", "a/2", "b")
    found = find(str(tmp_path), patterns(["a", "a/*", "*", "a/1"]), patterns(["b"]), {})
    assert sorted(found) == ["a/1", "a/2", "b"]


def test_every_pattern_must_match(tmp_path: Path) -> None:
    make(tmp_path, "a/1")
    with pytest.raises(Unfit, match="no output matches 'b' \\(there is a/1\\)"):
        find(str(tmp_path), patterns(["a", "b"]), (), {})
    (tmp_path / "b").mkdir()  # an empty directory is no file
    with pytest.raises(Unfit):
        find(str(tmp_path), patterns(["b"]), (), {})
    assert find(str(tmp_path), (), patterns(["b", "c", "c/d"]), {}) == {}


def test_a_directory_reached_by_a_link_inside(tmp_path: Path) -> None:
    root = tmp_path / "root"
    make(root, "run3/x")
    make(tmp_path, "outside/x")
    (root / "latest").symlink_to("run3")
    (root / "far").symlink_to(tmp_path / "outside")
    (root / "loop").symlink_to("loop")
    assert sorted(find(str(root), patterns(["latest/*"]), (), {})) == ["latest/x"]
    assert sorted(find(str(root), patterns(["latest/x"]), (), {})) == ["latest/x"]
    for pattern in ("far", "far/x", "far/*", "loop"):
        assert find(str(root), (), patterns([pattern]), {}) == {}


def test_a_name_that_is_no_text(tmp_path: Path) -> None:
    make(tmp_path, "a\udcff")
    assert list(find(str(tmp_path), patterns(["*"]), (), {})) == ["a\udcff"]


def test_small_ones_are_read_and_large_ones_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(harvest, "INLINE_BYTES", 10)
    monkeypatch.setattr(harvest, "INLINE_TOTAL_BYTES", 15)
    root = tmp_path / "root"
    root.mkdir()
    for name, size in (("a", 8), ("b", 8), ("c", 7), ("d", 11), ("e", 0)):
        (root / name).write_bytes(b"x" * size)
    (root / "hard").hardlink_to(root / "d")
    found = find(str(root), patterns(["*"]), (), {})
    files = take(str(root), found, str(tmp_path / "outbox" / "k"), keep=False)
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
    make(tmp_path, "a", "b")
    found = find(str(tmp_path), patterns(["*"]), (), {})
    harvest.weigh(found, 2)
    with pytest.raises(Unfit, match="its 2 output files have"):
        harvest.weigh(found, 1)
