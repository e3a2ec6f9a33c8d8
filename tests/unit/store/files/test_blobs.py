"""Files that arrive in pieces, from several senders, over restarts, on full disks."""

import hashlib
import os
import re
import subprocess
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from covey.core.errors import BadFile, NotFound, StoreFailed
from covey.store.files import blobs as module
from covey.store.files.blobs import Blobs, Collected
from covey.wire import Stored

DATA = bytes(range(256)) * 40
SIZE = len(DATA)


def digest_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


DIGEST = digest_of(DATA)


def put(blobs: Blobs, data: bytes = DATA) -> str:
    assert blobs.put_piece(digest_of(data), 0, len(data), data).complete
    return digest_of(data)


@pytest.fixture
def blobs(tmp_path: Path) -> Blobs:
    return Blobs(tmp_path / "files")


def test_a_file_in_one_piece(blobs: Blobs) -> None:
    assert blobs.missing([DIGEST, DIGEST]) == [DIGEST]
    assert blobs.put_piece(DIGEST, 0, SIZE, DATA) == Stored(size=SIZE, complete=True)
    assert blobs.missing([DIGEST]) == []
    assert blobs.state(DIGEST) == Stored(size=SIZE, complete=True)
    assert blobs.open(DIGEST).read() == DATA
    assert b"".join(blobs.read_file(DIGEST)) == DATA
    assert blobs.path(DIGEST) == blobs.folder / DIGEST[:2] / DIGEST[2:]
    assert list((blobs.folder / "incoming").iterdir()) == []


def test_an_empty_file(blobs: Blobs) -> None:
    put(blobs, b"")
    assert blobs.open(digest_of(b"")).read() == b""


def test_pieces_repeated_overlapping_and_too_far_on(blobs: Blobs) -> None:
    def part(start: int, stop: int) -> Stored:
        return blobs.put_piece(DIGEST, start, SIZE, DATA[start:stop])

    assert part(0, 0) == Stored(size=0, complete=False)
    assert part(50, 60).size == 0
    assert part(0, 100).size == 100
    assert part(0, 100).size == 100
    assert part(20, 80).size == 100
    assert part(80, 200).size == 200
    assert blobs.state(DIGEST) == Stored(size=200, complete=False)
    assert not blobs.has(DIGEST)
    with pytest.raises(NotFound):
        blobs.open(DIGEST)
    assert part(200, SIZE).complete
    assert part(0, 100) == Stored(size=SIZE, complete=True)
    assert blobs.open(DIGEST).read() == DATA


def test_a_server_that_restarts_goes_on(blobs: Blobs) -> None:
    blobs.put_piece(DIGEST, 0, SIZE, DATA[:3000])
    again = Blobs(blobs.folder)
    assert again.state(DIGEST) == Stored(size=3000, complete=False)
    assert again.put_piece(DIGEST, 3000, SIZE, DATA[3000:]).complete
    assert Blobs(blobs.folder).open(DIGEST).read() == DATA


def test_a_torn_piece_is_gone_on_with(blobs: Blobs) -> None:
    """A server that was killed while it wrote has counted nothing, but the bytes are there."""
    blobs.put_piece(DIGEST, 0, SIZE, DATA[:3000])
    with (blobs.folder / "incoming" / DIGEST).open("ab") as file:
        file.write(DATA[3000:3500])
    assert blobs.put_piece(DIGEST, 3000, SIZE, DATA[3000:]).complete
    assert blobs.open(DIGEST).read() == DATA


def test_damage_is_noticed_and_the_file_can_be_sent_again(blobs: Blobs) -> None:
    blobs.put_piece(DIGEST, 0, SIZE, DATA[:3000])
    with pytest.raises(BadFile, match="another digest"):
        blobs.put_piece(DIGEST, 3000, SIZE, DATA[3000:-1] + b"?")
    assert blobs.state(DIGEST) == Stored(size=0, complete=False)
    assert blobs.missing([DIGEST]) == [DIGEST]
    put(blobs)


def test_a_wrong_size_does_not_spoil_the_file_for_others(blobs: Blobs) -> None:
    blobs.put_piece(DIGEST, 0, 2 * SIZE, DATA + b"more")
    with pytest.raises(BadFile, match="outside of a file of"):
        blobs.put_piece(DIGEST, 10, SIZE, DATA)
    put(blobs)
    assert blobs.open(DIGEST).read() == DATA


@pytest.mark.parametrize("digest", ["", "x" * 64, "../" + "a" * 61, DIGEST[:63], DIGEST.upper()])
def test_what_is_no_digest_names_no_file(blobs: Blobs, digest: str) -> None:
    for call in (blobs.has, blobs.state, blobs.open, lambda d: blobs.put_piece(d, 0, 1, b"x")):
        with pytest.raises(BadFile, match="SHA-256"):
            call(digest)
    assert not blobs.folder.exists()


def test_many_senders_of_one_file(blobs: Blobs) -> None:
    """Each sends all of it, in pieces of its own size; it is written once, and right."""
    failed: list[Exception] = []

    def send(step: int) -> None:
        try:
            found = Stored(size=0, complete=False)
            while not found.complete:
                start = found.size
                found = blobs.put_piece(DIGEST, start, SIZE, DATA[start : start + step])
        except Exception as error:
            failed.append(error)

    senders = [threading.Thread(target=send, args=(step,)) for step in range(7, 107, 10)]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join()
    assert failed == []
    assert blobs.has(DIGEST)
    assert blobs.open(DIGEST).read() == DATA


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_pieces_in_any_order(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Whatever is sent, with restarts in between: the answers are true, and whoever goes on from
    them gets it through."""
    content = data.draw(st.binary(max_size=200))
    digest, size = digest_of(content), len(content)
    blobs = Blobs(tmp_path_factory.mktemp("files"))
    before = 0
    for _ in range(data.draw(st.integers(0, 8))):
        start = data.draw(st.integers(0, size))
        stop = data.draw(st.integers(start, size))
        found = blobs.put_piece(digest, start, size, content[start:stop])
        assert found.size == (max(before, stop) if start <= before else before)
        assert found == blobs.state(digest)
        before = found.size
        if data.draw(st.booleans()):
            blobs = Blobs(blobs.folder)
    while not blobs.put_piece(digest, before, size, content[before : before + 50]).complete:
        before = blobs.state(digest).size
    assert blobs.open(digest).read() == content


def test_it_is_synced_before_it_is_called_complete(
    blobs: Blobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    real = module.sync

    def noted(path: Path) -> None:
        assert not blobs.has(DIGEST), "it was seen before it was durable"
        real(path)
        synced.append(path)

    monkeypatch.setattr(module, "sync", noted)
    put(blobs)
    place = blobs.path(DIGEST)
    assert synced == [blobs.folder / "incoming" / DIGEST, blobs.folder, place.parent]


@pytest.mark.parametrize("fails", [0, 1, 2])
def test_a_sync_that_fails(blobs: Blobs, monkeypatch: pytest.MonkeyPatch, fails: int) -> None:
    """Of the file, of the new folder, of the name in it: not complete until it has worked."""
    real, turns, synced = module.sync, iter(range(100)), set()

    def sync(path: Path) -> None:
        if next(turns) == fails:
            raise OSError(5, "Input/output error")
        real(path)
        synced.add(path)

    monkeypatch.setattr(module, "sync", sync)
    with pytest.raises(StoreFailed, match="Input/output error"):
        put(blobs)
    assert not blobs.has(DIGEST)
    assert blobs.state(DIGEST) == Stored(size=0 if fails != 1 else SIZE, complete=False)
    put(blobs)
    assert blobs.has(DIGEST)
    assert synced == {blobs.folder / "incoming" / DIGEST, blobs.folder, blobs.path(DIGEST).parent}
    assert blobs.open(DIGEST).read() == DATA


def test_a_file_stays_in_sight_while_others_send_it_too(blobs: Blobs) -> None:
    """Whoever was told that it is complete finds it, at every moment."""
    put(blobs)
    ends = threading.Event()
    lost: list[int] = []

    def look() -> None:
        while not ends.is_set():
            lost.extend([1] * (not blobs.has(DIGEST)))

    looking = threading.Thread(target=look)
    looking.start()
    for _ in range(300):
        with blobs._locked(DIGEST):  # as a sender does who was waiting for its turn
            blobs._forget(DIGEST)
    ends.set()
    looking.join()
    assert not lost


# -- garbage -------------------------------------------------------------------------------


def age(path: Path, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(path, (then, then))


def test_garbage_is_collected_when_it_is_old(blobs: Blobs) -> None:
    used, unused, young = put(blobs, b"used"), put(blobs, b"unused"), put(blobs, b"young")
    index = blobs.path(unused).with_name(blobs.path(unused).name + ".csv.index")
    index.write_bytes(b"12345")
    broken = digest_of(b"broken")
    blobs.put_piece(broken, 0, 6, b"bro")
    for path in (blobs.path(used), blobs.path(unused), index, blobs.folder / "incoming" / broken):
        age(path, 1000)
    assert blobs.collect({used}, 5000) == Collected(0, 0)
    assert blobs.collect({used}, 500) == Collected(3, 6 + 5 + 3)
    assert blobs.missing([used, unused, young]) == [unused]
    assert not index.exists()
    assert blobs.state(broken).size == 0
    assert blobs.put_piece(broken, 0, 6, b"broken").complete
    put(blobs, b"unused")


def test_a_file_that_was_asked_for_is_young_again(blobs: Blobs) -> None:
    digest = put(blobs)
    age(blobs.path(digest), 1000)
    assert blobs.missing([digest]) == []
    assert blobs.collect(set(), 500) == Collected(0, 0)
    age(blobs.path(digest), 1000)
    put(blobs)
    assert blobs.collect(set(), 500) == Collected(0, 0)


def test_collecting_where_nothing_is(tmp_path: Path) -> None:
    assert Blobs(tmp_path / "none").collect(set(), 0) == Collected(0, 0)


def test_arrivals_are_bounded(blobs: Blobs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_ARRIVING", 3)
    digests = [digest_of(bytes([n])) for n in range(4)]
    for digest in digests[:3]:
        blobs.put_piece(digest, 0, 1, b"")
    with pytest.raises(StoreFailed, match="too many"):
        blobs.put_piece(digests[3], 0, 1, b"")
    assert blobs.put_piece(digests[0], 0, 1, b"\0").complete
    blobs.collect(set(), -10)
    assert blobs.put_piece(digests[3], 0, 1, b"\3").complete


# -- a full disk ---------------------------------------------------------------------------


def test_a_full_disk_keeps_a_reserve(disk: Path) -> None:
    """For the record, which lies on the same one."""
    fill_and_go_on(disk)
    free = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize
    assert free > 100_000


def test_a_disk_that_others_have_filled(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Blobs, "_check_space", lambda self, count: None)
    fill_and_go_on(disk)


def fill_and_go_on(disk: Path) -> None:
    """Words, nothing half-written, and it goes on when there is space again."""
    blobs = Blobs(disk / "files")
    data = os.urandom(3_000_000)
    digest = digest_of(data)
    sent, told = send_until_refused(blobs, data)
    assert re.search("full|No space", told)
    assert 1_500_000 < sent < 2 << 20
    assert blobs.state(digest) == Stored(size=sent, complete=False)
    subprocess.run(["mount", "-o", "remount,size=8m", str(disk)], check=True)
    assert blobs.put_piece(digest, sent, len(data), data[sent:]).complete
    assert blobs.open(digest).read() == data
    blobs.collect(set(), -10)
    subprocess.run(["mount", "-o", "remount,size=2m", str(disk)], check=True)
    send_until_refused(blobs, data)


def send_until_refused(blobs: Blobs, data: bytes) -> tuple[int, str]:
    digest, sent = digest_of(data), 0
    try:
        while True:
            piece = data[sent : sent + 123_456]
            sent = blobs.put_piece(digest, sent, len(data), piece).size
    except StoreFailed as error:
        return sent, str(error)
