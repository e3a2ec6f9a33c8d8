"""Files come once, whole and right, and leave when there are too many."""

import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from covey.pilot.files import file_cache as module
from covey.pilot.files.file_cache import FileCache, News
from covey.pilot.protocol.messages import Input
from tests.unit.pilot.standin import Files, digest_of, serving

MB = 1 << 20


@pytest.fixture
def world() -> Iterator[Files]:
    with serving(Files()) as found:
        yield found


class Shelf:
    """A larder, and what it said."""

    def __init__(
        self,
        world: Files,
        path: Path,
        limit: int = 1 << 40,
        key: str = "a",
        walled: bool = False,
        owner: str = "ana",
    ) -> None:
        self.said: list[str] = []
        self.larder = FileCache(
            str(path), limit, key, world.courier, lambda: None, walled, self.said.append
        )
        self.bag = 1
        self.owner = owner

    def name(self, item: Input) -> str:
        return self.larder.name_of(item, self.bag, self.owner)

    def intact(self, item: Input) -> bool:
        return self.larder.intact(self.name(item))

    def ask(self, item: Input) -> str:
        name = self.name(item)
        self.larder.request(item, name)
        return name

    def hear(self, count: int = 1) -> list[News]:
        found: list[News] = []
        until = time.monotonic() + 20
        while len(found) < count and time.monotonic() < until:
            found += self.larder.news()
            time.sleep(0.005)
        return found

    def get(self, item: Input) -> Path:
        name = self.ask(item)
        assert self.hear() == [News(name, "")]
        return Path(self.larder.path(name))

    def drop(self, item: Input) -> None:
        self.larder.release(self.name(item))


def blob(world: Files, data: bytes, **more: object) -> Input:
    return Input("data/in", world.add(data), len(data), **more)  # type: ignore[arg-type]


def test_a_file_is_fetched_once_and_is_read_only(world: Files, tmp_path: Path) -> None:
    item = blob(world, b"x" * 100_000)
    first, second = Shelf(world, tmp_path), Shelf(world, tmp_path, key="b")
    path = first.get(item)
    assert path.read_bytes() == b"x" * 100_000
    assert stat.S_IMODE(path.stat().st_mode) == 0o444
    assert second.get(item) == path
    assert len(world.asked) == 1
    assert world.credentials == {"Bearer credential"}
    assert "pilot=7" in world.asked[0][1]
    assert list((tmp_path / "incoming").iterdir()) == []


def test_pilots_wait_for_one_another(world: Files, tmp_path: Path) -> None:
    item = blob(world, b"y" * 1000)
    shelves = [Shelf(world, tmp_path, key=key) for key in "abc"]
    world.gate.clear()
    for shelf in shelves:
        shelf.ask(item)
    time.sleep(0.1)
    world.gate.set()
    for shelf in shelves:
        assert [news.problem for news in shelf.hear()] == [""]
    assert len(world.asked) == 1


def test_an_executable_is_another_file(world: Files, tmp_path: Path) -> None:
    shelf = Shelf(world, tmp_path)
    plain = shelf.get(blob(world, b"#!/bin/sh\n"))
    path = shelf.get(blob(world, b"#!/bin/sh\n", executable=True))
    assert path != plain
    assert stat.S_IMODE(path.stat().st_mode) == 0o555


def test_an_empty_file_is_a_file(world: Files, tmp_path: Path) -> None:
    assert Shelf(world, tmp_path).get(blob(world, b"")).read_bytes() == b""


def test_a_broken_download_goes_on_where_it_was(world: Files, tmp_path: Path) -> None:
    data = os.urandom(1_000_000)
    world.break_after = [600_000]
    assert Shelf(world, tmp_path).get(blob(world, data)).read_bytes() == data
    assert [asked[2] for asked in world.asked] == ["", "bytes=600000-"]


def test_what_is_busy_is_asked_again(world: Files, tmp_path: Path) -> None:
    world.statuses = [503, 401, 500]
    assert Shelf(world, tmp_path).get(blob(world, b"z")).read_bytes() == b"z"


def test_a_file_that_the_server_does_not_have(world: Files, tmp_path: Path) -> None:
    shelf = Shelf(world, tmp_path)
    shelf.ask(Input("in.csv", "ab" * 32, 5))
    (news,) = shelf.hear()
    assert "in.csv" in news.problem
    assert "the server does not have the file abab" in news.problem
    assert not news.wrong


def test_what_has_another_digest_is_not_believed(
    world: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FIRST_BACKOFF", 0.001)
    digest = digest_of(b"right")
    world.files[digest] = b"wrong"
    shelf = Shelf(world, tmp_path)
    shelf.ask(Input("in", digest, 5))
    (news,) = shelf.hear()
    assert digest_of(b"wrong") in news.problem
    assert not news.wrong
    assert len(world.asked) == module.MOST_TRIES
    assert not Path(shelf.larder.path(shelf.name(Input("in", digest, 5)))).exists()


def test_a_file_that_a_task_wrote_into_is_fetched_again(world: Files, tmp_path: Path) -> None:
    item = blob(world, b"good")
    shelf = Shelf(world, tmp_path)
    path = shelf.get(item)
    assert shelf.intact(item)
    path.chmod(0o644)
    path.write_bytes(b"evil")
    assert not shelf.intact(item)
    assert shelf.get(item).read_bytes() == b"good"
    assert len(world.asked) == 2


def _forge(path: Path, data: bytes) -> None:
    """Change the content, and let all look as before that a user can set."""
    before = path.stat()
    path.chmod(0o644)
    path.write_bytes(data)
    path.chmod(stat.S_IMODE(before.st_mode))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize("walled", [False, True])
def test_what_was_there_before_the_pilot_is_read_before_it_is_believed(
    world: Files, tmp_path: Path, walled: bool
) -> None:
    item = blob(world, b"good")
    path = Shelf(world, tmp_path, walled=walled).get(item)
    _forge(path, b"evil")
    later = Shelf(world, tmp_path, key="b", walled=walled)
    assert not later.intact(item)
    assert later.get(item).read_bytes() == b"good"
    assert len(world.asked) == 2
    assert ["was changed" in words for words in later.said] == [True]


def test_with_walls_a_forged_file_is_noticed_at_once(world: Files, tmp_path: Path) -> None:
    item = blob(world, b"good")
    shelf = Shelf(world, tmp_path, walled=True)
    path = shelf.get(item)
    assert shelf.intact(item)
    _forge(path, b"evil")
    assert not shelf.intact(item)
    assert shelf.get(item).read_bytes() == b"good"


def test_where_files_are_linked_a_forged_one_is_noticed_soon(
    world: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Links change what would betray it, so the file is read again, but not each time."""
    item = blob(world, b"good")
    shelf = Shelf(world, tmp_path)
    path = shelf.get(item)
    os.link(path, tmp_path / "a task's input")
    assert shelf.intact(item)
    monkeypatch.setattr(module, "REREAD_SECONDS", 0.0)
    monkeypatch.setattr(module, "REREAD_SHARE", 0)
    clock = time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: clock() + 21)
    assert not shelf.intact(item)
    assert shelf.get(item).stat().st_ino == path.stat().st_ino  # it was right, and is kept
    assert len(world.asked) == 1
    _forge(path, b"evil")
    assert not shelf.intact(item)
    assert shelf.get(item).read_bytes() == b"good"


@pytest.mark.parametrize("kind", ["link", "directory", "pipe"])
def test_what_somebody_put_in_the_place_of_a_file_goes(
    world: Files, tmp_path: Path, kind: str
) -> None:
    item = blob(world, b"good")
    shelf = Shelf(world, tmp_path)
    path = shelf.get(item)
    evil = tmp_path / "evil"
    evil.write_bytes(b"good")  # for now
    path.unlink()
    if kind == "link":
        path.symlink_to(evil)
        os.utime(path, (0, module.MODIFIED), follow_symlinks=False)
    elif kind == "directory":
        (path / "full").mkdir(parents=True)
    else:
        os.mkfifo(path)
    assert not shelf.intact(item)
    assert shelf.get(item).read_bytes() == b"good"
    assert path.is_file()
    assert not path.is_symlink()


def test_no_owner_gets_the_file_of_another(world: Files, tmp_path: Path) -> None:
    """Where tasks get links, for they can write to those."""
    item = blob(world, b"good")
    mine, other = Shelf(world, tmp_path), Shelf(world, tmp_path, key="b", owner="bob")
    same = Shelf(world, tmp_path, key="c")
    assert mine.get(item).stat().st_ino != other.get(item).stat().st_ino
    assert mine.get(item).stat().st_ino == same.get(item).stat().st_ino
    walled = [
        Shelf(world, tmp_path, key=owner, walled=True, owner=owner).get(item)
        for owner in ("ana", "bob")
    ]
    assert walled[0] == walled[1]
    assert walled[0] not in (mine.get(item), other.get(item))


def test_a_file_without_a_digest_is_for_the_pilot_that_fetched_it(
    world: Files, tmp_path: Path
) -> None:
    world.files["data.bin"] = b"good"
    item = Input("b", url=world.address + "/data.bin")
    first, second = Shelf(world, tmp_path), Shelf(world, tmp_path, key="b")
    path = first.get(item)
    assert second.get(item) != path
    path.chmod(0o644)
    path.write_bytes(b"evil")
    assert not first.intact(item)
    assert first.get(item).read_bytes() == b"good"
    assert len(world.asked) == 3
    first.larder.close()
    assert not path.exists()


def test_the_least_recently_used_goes_and_what_is_needed_stays(
    world: Files, tmp_path: Path
) -> None:
    items = [blob(world, bytes([number]) * MB) for number in range(5)]
    mine, other = Shelf(world, tmp_path, 3 * MB), Shelf(world, tmp_path, 3 * MB, key="b")
    paths = []
    for number in (0, 1, 2):
        paths.append(mine.get(items[number]))
        os.utime(paths[-1], (1000 + number, module.MODIFIED))
    other.get(items[0])
    os.utime(paths[0], (1000, module.MODIFIED))
    mine.drop(items[0])
    mine.drop(items[1])
    mine.drop(items[2])
    paths.append(mine.get(items[3]))
    assert [path.exists() for path in paths] == [True, False, True, True]
    other.larder.close()
    paths.append(mine.get(items[4]))
    assert [path.exists() for path in paths] == [False, False, True, True, True]


def test_needed_files_may_exceed_the_bound(world: Files, tmp_path: Path) -> None:
    shelf = Shelf(world, tmp_path, MB)
    paths = [shelf.get(blob(world, bytes([number]) * MB)) for number in range(3)]
    assert all(path.exists() for path in paths)


def test_parts_of_the_dead_are_gone_on_with_or_removed(world: Files, tmp_path: Path) -> None:
    data = b"abcdefgh" * 1000
    item = blob(world, data)
    incoming = tmp_path / "incoming"
    shelf = Shelf(world, tmp_path)
    (incoming / shelf.name(item)).write_bytes(data[:3000])
    (incoming / ("cd" * 32)).write_bytes(b"old")
    os.utime(incoming / ("cd" * 32), (1, 1))
    assert shelf.get(item).read_bytes() == data
    assert world.asked[0][2] == "bytes=3000-"
    assert list(incoming.iterdir()) == []


def test_urls(world: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_BACKOFF", 0.001)
    world.files["data.bin"] = b"from afar"
    local = tmp_path / "local.txt"
    local.write_text("from here")
    url = world.address + "/some/data.bin"
    shelf = Shelf(world, tmp_path / "cache")
    right = Input("a", digest_of(b"from afar"), url=url)
    assert shelf.get(right).read_bytes() == b"from afar"
    assert shelf.get(Input("b", url=url)).read_bytes() == b"from afar"
    for item, words in (
        (Input("d", url=world.address + "/nothing"), "404"),
        (Input("e", url=local.as_uri()), "does not begin with http:// or https://"),
        (Input("f", "00" * 32, url=url), "has the digest"),
        (Input("g", url="nonsense"), "nonsense"),
        (Input("h", url="http://here:port/x"), "port"),
    ):
        shelf.ask(item)
        (news,) = shelf.hear()
        assert words in news.problem
        assert news.problem.startswith(item.path + ":")
        assert news.wrong  # the bag is, wherever it runs
    for status in (429, 500):
        world.statuses = [status] * module.MOST_TRIES
        shelf.ask(Input("i", url=f"{url}?{status}"))
        (news,) = shelf.hear()
        assert str(status) in news.problem
        assert not news.wrong  # it may pass


def test_a_url_sends_no_more_than_the_cache_holds(world: Files, tmp_path: Path) -> None:
    """Another owner's tasks need the disk, too."""
    world.files["endless.bin"] = b"x" * (3 << 20)
    shelf = Shelf(world, tmp_path, limit=1 << 20)
    shelf.ask(Input("a", url=world.address + "/endless.bin"))
    (news,) = shelf.hear()
    assert "sends more than the 1 MB that fit into this host's cache" in news.problem
    assert news.wrong
    assert max(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()) < 10_000


def test_a_url_is_fetched_anew_for_another_bag(world: Files, tmp_path: Path) -> None:
    item = Input("b", url=world.address + "/data.bin")
    world.files["data.bin"] = b"old"
    shelf = Shelf(world, tmp_path)
    assert shelf.get(item).read_bytes() == b"old"
    world.files["data.bin"] = b"new"
    assert shelf.get(item).read_bytes() == b"old"
    shelf.bag = 2
    assert shelf.get(item).read_bytes() == b"new"


@pytest.mark.parametrize("walled", [False, True])
def test_a_url_gets_nobody_at_anothers_file(
    world: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, walled: bool
) -> None:
    """Who knows the digest of a file that is on this host, and no more, does not get it."""
    monkeypatch.setattr(module, "FIRST_BACKOFF", 0.001)
    secret = blob(world, b"ann's secret")
    world.files["public.bin"] = b"something else"
    named = Input("b", secret.digest, url=world.address + "/public.bin")
    ann = Shelf(world, tmp_path, walled=walled, owner="ann")
    bob = Shelf(world, tmp_path, key="b", walled=walled, owner="bob")
    assert ann.get(secret).read_bytes() == b"ann's secret"
    name = bob.ask(named)
    (news,) = bob.hear()
    assert "has the digest" in news.problem
    assert not Path(bob.larder.path(name)).exists()
    world.files["own.bin"] = b"ann's secret"
    own = Input("c", secret.digest, url=world.address + "/own.bin")
    assert ann.get(own).read_bytes() == b"ann's secret"
    del world.files["own.bin"]
    ann.bag = 3
    assert ann.get(own).read_bytes() == b"ann's secret", "an owner's bags share it"
    bob.ask(own)
    assert "404" in bob.hear()[0].problem


def test_a_directory_that_cannot_be_used_is_said_so(world: Files, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError):
        Shelf(world, tmp_path / "file")


def test_what_nobody_wants_any_more_is_not_tried_again(world: Files, tmp_path: Path) -> None:
    item = blob(world, b"late")
    world.statuses = [500] * 1000
    shelf = Shelf(world, tmp_path)
    shelf.ask(item)
    while not world.asked:
        time.sleep(0.005)
    shelf.drop(item)
    world.statuses.clear()
    time.sleep(0.5)
    assert len(world.asked) <= 2
    assert not Path(shelf.larder.path(shelf.name(item))).exists()
