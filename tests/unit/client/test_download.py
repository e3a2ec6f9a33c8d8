"""Files are laid out as asked, whole or not at all, and never outside the folder."""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.client import download
from covey.client.download import Layout, Pulled, pull, safe
from covey.core.errors import BadFile, CoveyError, InvalidQuery, NotFound
from covey.core.values.space import Scalar
from covey.wire import BagView, ReturnedFile


class Returned:
    """What a server says that tasks have returned."""

    def __init__(self, *names: str) -> None:
        self.view = BagView(
            id=7,
            name="",
            owner="",
            argv=["true"],
            names=list(names),
            status="finished",
            total=9,
            done=9,
            failed=0,
            created=0.0,
        )
        self.listed: list[ReturnedFile] = []
        self.contents: dict[str, bytes] = {}
        self.read: list[str] = []
        self.pages: list[int] = []

    def add(self, task: int, path: str, data: bytes, *values: Scalar, large: bool = False) -> None:
        digest = hashlib.sha256(data).hexdigest()
        self.contents[digest] = data
        self.listed.append(
            ReturnedFile(
                row=task * 10,
                task=task,
                values=list(values),
                path=path,
                size=len(data),
                digest=digest if large else "",
                data=b"" if large else data,
                executable=path.endswith(".sh"),
            )
        )

    def bag(self, bag: int) -> BagView | None:
        return self.view if bag == 7 else None

    def files(self, bag: int, after: int = -1, limit: int = 1000) -> list[ReturnedFile]:
        self.pages.append(after)
        left = [file for file in self.listed if file.row > after]
        rows = dict.fromkeys(file.row for file in left[:limit])
        return [file for file in left if file.row in rows]

    def read_file(self, digest: str) -> Iterator[bytes]:
        self.read.append(digest)
        if digest not in self.contents:
            raise NotFound(f"file {digest} is not on this server")
        data = self.contents[digest]
        for start in range(0, len(data), 3):
            yield data[start : start + 3]


def tree(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_by_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "PAGE_FILES", 2)
    source = Returned()
    for task in range(5):
        source.add(task, "out.txt", b"out %d" % task)
        source.add(task, "deep/er/big.bin", b"large %d" % task, large=True)
    source.add(5, "run.sh", b"#!")
    seen: list[int] = []
    found = pull(source, 7, tmp_path / "new" / "here", progress=lambda p: seen.append(p.files))
    assert found == Pulled(files=11, bytes=5 * (5 + 7) + 2)
    assert tree(tmp_path / "new" / "here") == {
        **{f"{task}/out.txt": b"out %d" % task for task in range(5)},
        **{f"{task}/deep/er/big.bin": b"large %d" % task for task in range(5)},
        "5/run.sh": b"#!",
    }
    assert os.access(tmp_path / "new/here/5/run.sh", os.X_OK)
    assert not os.access(tmp_path / "new/here/0/out.txt", os.X_OK)
    assert len(source.pages) > 3
    assert seen == list(range(1, 12))


def test_again_writes_only_what_is_not_there(tmp_path: Path) -> None:
    source = Returned()
    source.add(0, "a", b"aaa")
    source.add(1, "b", b"bbb", large=True)
    source.add(2, "c", b"ccc", large=True)
    source.add(3, "d", b"ddd")
    pull(source, 7, tmp_path)
    (tmp_path / "0/a").write_bytes(b"xxx")  # same size
    (tmp_path / "2/c").write_bytes(b"c")
    source.read.clear()
    assert pull(source, 7, tmp_path) == Pulled(files=2, bytes=6, kept=2)
    assert len(source.read) == 1
    assert tree(tmp_path) == {"0/a": b"aaa", "1/b": b"bbb", "2/c": b"ccc", "3/d": b"ddd"}


def test_by_parameters(tmp_path: Path) -> None:
    source = Returned("alpha", "name")
    source.add(0, "out", b"0", 0.5, "x")
    source.add(1, "out", b"1", 0.5, "a/b")
    source.add(2, "out", b"2", 1, "..")
    source.add(3, "out", b"3", 1, "")
    source.add(4, "out", b"4", 1, "long" * 100)
    pull(source, 7, tmp_path, "of {bag}/./{alpha}//n={name}")
    pull(source, 7, tmp_path, "{name}")
    assert set(tree(tmp_path)) == {
        "of 7/0.5/n=x/out",
        "of 7/0.5/n=a_b/out",
        "of 7/1/n=../out",
        "of 7/1/n=/out",
        f"of 7/1/{('n=' + 'long' * 100)[:200]}/out",
        "x/out",
        "a_b/out",
        "_../out",
        "_/out",
        f"{'long' * 50}/out",
    }


def test_a_collision_names_the_tasks(tmp_path: Path) -> None:
    source = Returned("alpha", "seed")
    source.add(3, "log", b"", 1, 1)
    source.add(3, "out", b"", 1, 1)
    source.add(5, "out", b"", 1, 2)
    with pytest.raises(InvalidQuery, match=r"tasks 3 and 5 would both write 1/out\. Put \{task\}"):
        pull(source, 7, tmp_path, "{alpha}")
    assert pull(source, 7, tmp_path, "{alpha}/{seed}").refused == 0


def test_a_file_and_a_folder_of_one_name(tmp_path: Path) -> None:
    source = Returned()
    source.add(1, "a", b"file")
    source.add(2, "a/b", b"in a folder")
    source.add(3, "c/d", b"in a folder")
    source.add(4, "c", b"file")
    found = pull(source, 7, tmp_path, "all")
    assert (found.files, found.refused) == (2, 2)
    assert "have the same name" in found.reasons[0]


@pytest.mark.parametrize(
    "template", ["/etc/{task}", "../{task}", "a/../../{task}", "{nothing}/{task}"]
)
def test_templates_that_make_no_sense(tmp_path: Path, template: str) -> None:
    with pytest.raises(InvalidQuery, match=r"must stay inside|there are task"):
        pull(Returned(), 7, tmp_path, template)


EVIL = ["../x", "/etc/x", "a/../../x", "..", ".", "", "a//b", "a/", "/", "a\0b", "./a", "x" * 300]


@pytest.mark.parametrize("path", [*EVIL, "d/" * 3000 + "x"], ids=lambda path: repr(path[:10]))
def test_paths_that_lead_elsewhere_are_refused(tmp_path: Path, path: str) -> None:
    folder = tmp_path / "folder"
    source = Returned()
    source.add(1, path, b"evil")
    source.add(2, "good", b"good")
    found = pull(source, 7, folder)
    assert (found.files, found.refused) == (1, 1)
    assert found.reasons[0].startswith("task 1: ")
    assert tree(tmp_path) == {"folder/2/good": b"good"}


@given(
    path=st.text("./a\0\\\n", max_size=12),
    value=st.text("./a\0\\\n", max_size=6),
    template=st.sampled_from(["{v}", "x/{v}", "{v}/y", "a{v}"]),
)
def test_no_path_leaves_the_folder(path: str, value: str, template: str) -> None:
    layout = Layout(Path("/some/folder"), template, 7, ["v"])
    file = ReturnedFile(row=0, task=0, values=[value], path=path, size=0)
    try:
        place = layout.place(file)
    except BadFile:
        return
    assert os.path.normpath(place).startswith("/some/folder/")
    assert os.path.normpath(place) == str(place)


@given(st.text())
def test_values_make_safe_names(text: str) -> None:
    found = safe(text)
    assert found not in ("", ".", "..")
    assert "/" not in found
    assert "\0" not in found
    assert len(found.encode(errors="replace")) <= 201


def test_links_that_lead_out_are_not_followed(tmp_path: Path) -> None:
    outside, folder = tmp_path / "outside", tmp_path / "folder"
    outside.mkdir()
    folder.mkdir()
    (outside / "file").write_bytes(b"mine")
    (folder / "1").symlink_to(outside)
    (folder / "2").mkdir()
    (folder / "2" / "file").symlink_to(outside / "file")
    source = Returned()
    source.add(1, "file", b"evil")
    source.add(1, "deep/file", b"evil")
    source.add(2, "file", b"good")
    found = pull(source, 7, folder)
    assert (found.files, found.refused) == (1, 2)
    assert "leads outside" in found.reasons[0]
    assert tree(outside) == {"file": b"mine"}
    assert not (folder / "2" / "file").is_symlink()


def test_damage_is_not_laid_out(tmp_path: Path) -> None:
    source = Returned()
    source.add(1, "whole", b"whole", large=True)
    source.add(2, "damaged", b"damaged", large=True)
    source.add(3, "gone", b"gone", large=True)
    source.contents[source.listed[1].digest] = b"damagee"
    del source.contents[source.listed[2].digest]
    found = pull(source, 7, tmp_path)
    assert (found.files, found.refused) == (1, 2)
    assert "not the one that the task returned" in found.reasons[0]
    assert "not on this server" in found.reasons[1]
    assert tree(tmp_path) == {"1/whole": b"whole"}


def test_interrupted_and_repeated(tmp_path: Path) -> None:
    source = Returned()
    for task in range(4):
        source.add(task, "big", b"content %d" % task, large=True)
    broken = source.contents.pop(source.listed[2].digest)

    def interrupted(digest: str) -> Iterator[bytes]:
        if digest not in source.contents:
            yield broken[:4]
            raise KeyboardInterrupt
        yield source.contents[digest]

    source.read_file = interrupted  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        pull(source, 7, tmp_path)
    assert tree(tmp_path) == {"0/big": b"content 0", "1/big": b"content 1"}
    source.contents[source.listed[2].digest] = broken
    assert pull(source, 7, tmp_path) == Pulled(files=2, bytes=18, kept=2)


def test_reasons_are_bounded(tmp_path: Path) -> None:
    source = Returned()
    for task in range(50):
        source.add(task, "..", b"")
    found = pull(source, 7, tmp_path)
    assert (found.refused, len(found.reasons)) == (50, download.MOST_REASONS)


def test_no_such_bag_and_no_such_place(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no bag 8"):
        pull(Returned(), 8, tmp_path)
    source = Returned()
    source.add(1, "x", b"x")
    with pytest.raises(CoveyError, match="cannot write"):
        pull(source, 7, Path("/proc/nowhere"))
