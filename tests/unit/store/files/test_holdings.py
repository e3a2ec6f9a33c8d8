"""Whose the files are: proved, kept apart, lost when nobody uses them."""

import hashlib
import os
import shutil
import sqlite3
import threading
import time
from pathlib import Path

import pytest

from covey.core.errors import BadFile, NotFound, StoreFailed
from covey.ports import NamedFiles
from covey.store.files import blobs as blobs_module
from covey.store.files.blobs import Blobs, Collected
from covey.store.files.holder_table import Holders
from covey.store.files.holdings import Holdings
from covey.wire import Stored

DATA = bytes(range(256)) * 40
SIZE = len(DATA)
NOTHING = Stored(size=0, complete=False)
WHOLE = Stored(size=SIZE, complete=True)


def digest_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


DIGEST = digest_of(DATA)


@pytest.fixture
def holdings(tmp_path: Path) -> Holdings:
    return Holdings(Blobs(tmp_path / "files"))


def put(holdings: Holdings, owner: str | None, data: bytes = DATA) -> str:
    assert holdings.put_piece(owner, digest_of(data), 0, len(data), data).complete
    return digest_of(data)


def age(holdings: Holdings, seconds: float) -> None:
    """All that is there is as if so much older."""
    then = time.time() - seconds
    for path in holdings.blobs.folder.rglob("*"):
        if path.is_file() and not path.name.startswith("holders.db"):
            os.utime(path, (then, then))
    holdings.close()
    with sqlite3.connect(holdings.blobs.folder / "holders.db") as connection:
        connection.execute("UPDATE holders SET used = ?", (then,))
    connection.close()


def test_who_has_sent_all_of_it_holds_it(holdings: Holdings) -> None:
    put(holdings, "ann")
    assert holdings.missing("bob", [DIGEST]) == [DIGEST]
    assert holdings.state("bob", DIGEST) == NOTHING
    with pytest.raises(NotFound, match="you did not send it here"):
        holdings.path("bob", DIGEST)
    assert holdings.put_piece("bob", DIGEST, 0, SIZE, DATA[:3000]).size == 3000
    assert holdings.missing("bob", [DIGEST]) == [DIGEST]
    assert holdings.put_piece("bob", DIGEST, 3000, SIZE, DATA[3000:]) == WHOLE
    for owner in ("ann", "bob", None):
        assert holdings.missing(owner, [DIGEST, DIGEST]) == []
        assert holdings.state(owner, DIGEST) == WHOLE
        assert holdings.path(owner, DIGEST).read_bytes() == DATA
    assert holdings.missing("", [DIGEST]) == [DIGEST]
    assert not list((holdings.blobs.folder / "incoming").iterdir())


def test_uploads_of_two_owners_do_not_meet(holdings: Holdings) -> None:
    holdings.put_piece("ann", DIGEST, 0, SIZE, DATA[:5000])
    holdings.put_piece("bob", DIGEST, 0, SIZE, b"?" * 7000)
    holdings.put_piece(None, DIGEST, 0, SIZE, DATA[:10])
    assert [holdings.state(one, DIGEST).size for one in ("ann", "bob", "eve", None)] == [
        5000, 7000, 0, 10,
    ]  # fmt: skip
    with pytest.raises(BadFile, match="another digest"):
        holdings.put_piece("bob", DIGEST, 7000, SIZE, DATA[7000:])
    assert holdings.state("bob", DIGEST) == NOTHING
    assert holdings.put_piece("ann", DIGEST, 5000, SIZE, DATA[5000:]) == WHOLE
    assert holdings.missing("bob", [DIGEST]) == [DIGEST]


def test_one_owners_uploads_do_not_use_up_anothers(
    holdings: Holdings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blobs_module, "MOST_ARRIVING", 2)
    for number in range(2):
        holdings.put_piece("bob", digest_of(bytes([number])), 0, 1, b"")
    with pytest.raises(StoreFailed, match="too many"):
        holdings.put_piece("bob", DIGEST, 0, SIZE, DATA)
    put(holdings, "ann")


def test_it_is_durable_before_it_is_said(holdings: Holdings, tmp_path: Path) -> None:
    """A copy of the disk, just then, has it."""
    holdings.restore(NamedFiles())
    put(holdings, "ann")
    shutil.copytree(holdings.blobs.folder, tmp_path / "copy")
    again = Holdings(Blobs(tmp_path / "copy"))
    assert again.missing("ann", [DIGEST]) == []
    assert again.missing("bob", [DIGEST]) == [DIGEST]


def test_what_cannot_be_written_down_is_not_held(
    holdings: Holdings, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(holdings, "ann")

    def full(*_: object) -> None:
        raise StoreFailed("the disk is full")

    monkeypatch.setattr(Holders, "add", full)
    with pytest.raises(StoreFailed):
        put(holdings, "bob")
    assert holdings.missing("bob", [DIGEST]) == [DIGEST]
    monkeypatch.undo()
    assert holdings.state("bob", DIGEST) == Stored(size=SIZE, complete=False)
    assert holdings.put_piece("bob", DIGEST, SIZE, SIZE, b"") == WHOLE, "nothing is sent again"


@pytest.mark.parametrize("fails", [0, 1])
def test_a_sync_that_fails(holdings: Holdings, monkeypatch: pytest.MonkeyPatch, fails: int) -> None:
    put(holdings, None)
    real, turns = blobs_module.sync, iter(range(100))

    def sync(path: Path) -> None:
        if next(turns) == fails:
            raise OSError(5, "Input/output error")
        real(path)

    monkeypatch.setattr(blobs_module, "sync", sync)
    with pytest.raises(StoreFailed):
        put(holdings, "ann")
    put(holdings, "ann")
    assert holdings.missing("ann", [DIGEST]) == []


def test_many_threads_share_commits(holdings: Holdings) -> None:
    put(holdings, "ann")
    holders, digests = holdings._holders, [f"{number:064x}" for number in range(400)]

    def add(first: int) -> None:
        for digest in digests[first::8]:
            holders.add("bob", digest).result()

    threads = [threading.Thread(target=add, args=(first,)) for first in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert holders.found("bob", digests, renew=False) == set(digests)


@pytest.mark.parametrize("owner", ["", "../../x", "a/b", "x" * 300, "\udc80", "\0"])
def test_an_owner_may_be_called_anything(holdings: Holdings, owner: str) -> None:
    put(holdings, owner)
    assert holdings.missing(owner, [DIGEST]) == []
    assert holdings.missing(owner + "x", [DIGEST]) == [DIGEST]
    assert {path.name for path in holdings.blobs.folder.parent.iterdir()} == {"files"}


@pytest.mark.parametrize("digest", ["", "x" * 64, "../" + "a" * 61, DIGEST.upper()])
def test_what_is_no_digest_names_no_file(holdings: Holdings, digest: str) -> None:
    for call in (
        lambda: holdings.missing("ann", [digest]),
        lambda: holdings.state("ann", digest),
        lambda: holdings.path("ann", digest),
        lambda: holdings.put_piece("ann", digest, 0, 1, b"x"),
        lambda: holdings.grant("ann", [digest]),
    ):
        with pytest.raises(BadFile, match="SHA-256"):
            call()


def test_many_senders_of_several_owners(holdings: Holdings) -> None:
    failed: list[Exception] = []

    def send(owner: str, step: int) -> None:
        try:
            found = NOTHING
            while not found.complete:
                piece = DATA[found.size : found.size + step]
                found = holdings.put_piece(owner, DIGEST, found.size, SIZE, piece)
        except Exception as error:
            failed.append(error)

    senders = [
        threading.Thread(target=send, args=(owner, step))
        for owner in ("ann", "bob", "carl")
        for step in (70, 999, 5000)
    ]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join()
    assert failed == []
    for owner in ("ann", "bob", "carl"):
        assert holdings.path(owner, DIGEST).read_bytes() == DATA


def test_what_nobody_uses_is_lost_and_collected(holdings: Holdings) -> None:
    for owner in ("ann", "bob"):
        put(holdings, owner)
    put(holdings, "bob", b"sent for an attempt, and never named")
    age(holdings, 1000)
    used = NamedFiles({"ann": {DIGEST}})
    assert holdings.collect(used, 5000) == Collected(0, 0)
    assert holdings.collect(used, 500).files == 1
    assert holdings.missing("ann", [DIGEST]) == []
    assert holdings.missing("bob", [DIGEST]) == [DIGEST], "whoever else has it"
    age(holdings, 1000)
    assert holdings.missing("ann", [DIGEST]) == []
    assert holdings.collect(NamedFiles(), 500) == Collected(0, 0), "she has just asked for it"
    age(holdings, 1000)
    assert holdings.collect(NamedFiles({}, {"eve": {DIGEST}}), 500) == Collected(0, 0)
    assert holdings.missing("ann", [DIGEST]) == [DIGEST]
    assert holdings.missing("eve", [DIGEST]) == [DIGEST], "what a pilot says grants nothing"
    assert holdings.collect(NamedFiles(), 500) == Collected(1, SIZE)


def test_a_broken_upload_goes_though_another_has_the_file(holdings: Holdings) -> None:
    put(holdings, "ann")
    holdings.put_piece("bob", DIGEST, 0, SIZE, DATA[:5])
    age(holdings, 1000)
    assert holdings.collect(NamedFiles({"ann": {DIGEST}}), 500) == Collected(1, 5)
    assert holdings.state("bob", DIGEST) == NOTHING
    assert holdings.state("ann", DIGEST) == WHOLE


def test_an_older_version_kept_no_holders(holdings: Holdings) -> None:
    folder = holdings.blobs.folder
    other = put(holdings, "ann", b"returned")
    put(holdings, "ann")
    holdings.close()
    (folder / "holders.db").unlink()
    named = NamedFiles({"ann": {DIGEST, "0" * 64}}, {"bob": {other}})
    again = Holdings(Blobs(folder))
    with pytest.raises(StoreFailed, match="who owns its files"):
        again.missing("ann", [DIGEST])
    again.restore(named)
    assert again.missing("ann", [DIGEST, other, "0" * 64]) == [other, "0" * 64]
    assert again.missing("bob", [DIGEST, other]) == [DIGEST]
    third = Holdings(Blobs(folder))
    third.restore(NamedFiles({"eve": {DIGEST}}, {"eve": {other}}))
    assert third.missing("eve", [DIGEST, other]) == [other], "that a pilot says so is not enough"


def test_what_is_granted(holdings: Holdings) -> None:
    put(holdings, None)
    assert holdings.missing("ann", [DIGEST]) == [DIGEST]
    holdings.grant("ann", [DIGEST, DIGEST])
    assert holdings.missing("ann", [DIGEST]) == []


def test_many_files_are_looked_up_quickly(holdings: Holdings) -> None:
    """A bag with 100,000 of them is not held up by whose they are."""
    digests = [digest_of(str(number).encode()) for number in range(20_000)]
    for digest in digests:
        place = Path(holdings.blobs._place(digest))
        place.parent.mkdir(parents=True, exist_ok=True)
        place.touch()
    holdings.grant("ann", digests)
    began = time.process_time()
    assert holdings.missing("ann", digests) == []
    assert time.process_time() - began < 2.0
