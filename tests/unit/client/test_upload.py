"""Every file arrives, once, whatever happens on the way; and a file that is no good is named."""

import os
import time
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest

from covey.client import digests, upload
from covey.client.client import Client
from covey.client.digests import Digests
from covey.client.upload import Upload
from covey.core.errors import BadFile, Refused, ServerAway
from covey.core.record.model import Blob
from tests.unit.client.blobserver import BlobServer, serving

PIECE = 1000


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upload, "PIECE_BYTES", PIECE)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[BlobServer]:
    with serving(tmp_path / "server") as found:
        yield found


@pytest.fixture
def client(server: BlobServer) -> Iterator[Client]:
    made = Client(server.address, "", patience_seconds=5)
    yield made
    made.close()


@pytest.fixture
def cache(tmp_path: Path) -> Digests:
    return Digests(tmp_path / "cache" / "digests")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "data.bin"
    path.write_bytes(os.urandom(10 * PIECE + 17))
    return path


def digest_of(data: bytes) -> str:
    return sha256(data).hexdigest()


def test_files_are_sent_once(
    tmp_path: Path, server: BlobServer, client: Client, cache: Digests, file: Path
) -> None:
    twin, script, empty = tmp_path / "twin", tmp_path / "run.sh", tmp_path / "empty"
    twin.write_bytes(file.read_bytes())
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    empty.touch()
    (tmp_path / "link").symlink_to(script)
    seen: list[tuple[int, int]] = []
    sending = Upload(client, lambda done, total: seen.append((done, total)), cache)
    size = file.stat().st_size
    blobs = [sending.add(path) for path in (file, twin, script, empty, tmp_path / "link")]
    assert blobs[0] == blobs[1] == Blob(digest_of(file.read_bytes()), size)
    assert blobs[2] == blobs[4] == Blob(digest_of(b"#!/bin/sh\n"), 10, executable=True)
    assert sending.add(b"some text") == Blob(digest_of(b"some text"), 9)
    assert len(sending.missing()) == 4
    assert sending.send() == size + 10 + 9
    assert server.blobs.missing([blob.digest for blob in blobs]) == []
    assert server.blobs.open(blobs[0].digest).read() == file.read_bytes()
    assert seen[-1] == (size + 19, size + 19)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert len(server.puts) == 11 + 3
    again = Upload(client, digests=cache)
    again.add(file)
    assert (again.missing(), again.send()) == ([], 0)
    assert len(server.puts) == 11 + 3


def test_many_files_in_parallel(server: BlobServer, client: Client, cache: Digests) -> None:
    sending = Upload(client, digests=cache)
    contents = [b"file %d" % number for number in range(200)]
    for content in contents:
        sending.add(content)
    sending.send()
    assert server.blobs.missing(map(digest_of, contents)) == []
    assert 2 <= server.connections <= 1 + upload.THREADS


def test_the_question_is_asked_in_parts(
    server: BlobServer, client: Client, cache: Digests, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upload, "ASKED_AT_ONCE", 10)
    sending = Upload(client, digests=cache)
    for number in range(25):
        sending.add(b"%d" % number)
    assert len(sending.missing()) == 25
    assert server.asked == [10, 10, 5]


def test_an_upload_goes_on_where_it_was(
    server: BlobServer, client: Client, cache: Digests, file: Path
) -> None:
    data = file.read_bytes()
    server.blobs.put_piece(digest_of(data), 0, len(data), data[:4321])
    sending = Upload(client, digests=cache)
    sending.add(file)
    sending.send()
    assert server.puts[0][1] == 4321
    assert sum(count for _, _, count in server.puts) == len(data) - 4321
    assert server.blobs.has(digest_of(data))


def test_lost_answers_and_broken_connections(
    server: BlobServer, client: Client, cache: Digests, file: Path
) -> None:
    turns = iter(["", "hang up", "hang up", "", "hang up"] + [""] * 100)
    server.stumble = lambda: next(turns)
    sending = Upload(client, digests=cache)
    blob = sending.add(file)
    sending.send()
    assert server.blobs.open(blob.digest).read() == file.read_bytes()


def test_a_server_that_forgot_is_told_again(
    server: BlobServer, client: Client, cache: Digests, file: Path
) -> None:
    """Say, because somebody purged what nobody had named yet."""
    turns = iter(range(100))

    def forget() -> str:
        if next(turns) == 5:
            server.blobs.collect(set(), -10)
        return ""

    server.stumble = forget
    sending = Upload(client, digests=cache)
    blob = sending.add(file)
    sending.send()
    assert server.blobs.has(blob.digest)


def test_damage_on_the_way_is_repaired(
    server: BlobServer, client: Client, cache: Digests, file: Path
) -> None:
    turns = iter(["", "damage"] + [""] * 100)
    server.stumble = lambda: next(turns)
    sending = Upload(client, digests=cache)
    blob = sending.add(file)
    sending.send()
    assert server.blobs.open(blob.digest).read() == file.read_bytes()


def test_damage_again_and_again_is_said(
    server: BlobServer, client: Client, cache: Digests, file: Path
) -> None:
    server.stumble = lambda: "damage"
    sending = Upload(client, digests=cache)
    sending.add(file)
    with pytest.raises(Refused, match="another digest"):
        sending.send()
    assert not server.blobs.has(digest_of(file.read_bytes()))


@pytest.mark.parametrize("change", ["other", "shorter", "gone"])
def test_a_file_that_changes_is_noticed(
    server: BlobServer, client: Client, cache: Digests, file: Path, change: str
) -> None:
    sending = Upload(client, digests=cache)
    sending.add(file)
    if change == "other":
        file.write_bytes(os.urandom(file.stat().st_size))
    elif change == "shorter":
        file.write_bytes(b"x")
    else:
        file.unlink()
    with pytest.raises(BadFile, match="No such file" if change == "gone" else "changed while"):
        sending.send()


def test_a_server_that_is_gone(client: Client, server: BlobServer, cache: Digests) -> None:
    client.connection.patience_seconds = 0.2
    sending = Upload(client, digests=cache)
    sending.add(b"text")
    assert len(sending.missing()) == 1
    server.stumble = lambda: "away"
    with pytest.raises(ServerAway):
        sending.send()


def test_what_cannot_be_uploaded(tmp_path: Path, client: Client, cache: Digests) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "dangling").symlink_to(tmp_path / "nothing")
    sending = Upload(client, digests=cache)
    for path, words in (
        (tmp_path / "pipe", "not a file but"),
        (tmp_path, "is a directory"),
        (tmp_path / "none", "No such file"),
        (tmp_path / "dangling", "No such file"),
        (Path("/dev/null"), "not a file but"),
    ):
        with pytest.raises(BadFile, match=words):
            sending.add(path)
    assert sending.send() == 0


# -- digests that are remembered -----------------------------------------------------------


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files that were really read."""
    found: list[Path] = []
    real = digests.hash_file

    def noted(path: Path) -> str:
        found.append(path)
        return real(path)

    monkeypatch.setattr(digests, "hash_file", noted)
    monkeypatch.setattr(digests, "WORTH_BYTES", 100)
    return found


def old(path: Path, seconds: float = 100) -> None:
    then = time.time() - seconds
    os.utime(path, (then, then))


def ask(place: Path, path: Path) -> str:
    own = Digests(place)
    found = own.of(path, digests.look(path))
    own.save()
    return found


def test_a_digest_is_remembered(tmp_path: Path, file: Path, hashed: list[Path]) -> None:
    old(file)
    place = tmp_path / "cache"
    assert ask(place, file) == ask(place, file) == digest_of(file.read_bytes())
    assert len(hashed) == 1
    file.write_bytes(file.read_bytes()[::-1])
    old(file, 50)
    assert ask(place, file) == digest_of(file.read_bytes())
    assert len(hashed) == 2
    place.write_bytes(b"garbage")
    assert ask(place, file) == digest_of(file.read_bytes())
    assert len(hashed) == 3


def test_a_fresh_file_is_not_trusted(tmp_path: Path, file: Path, hashed: list[Path]) -> None:
    place = tmp_path / "cache"
    ask(place, file)
    assert not place.exists()
    ask(place, file)
    assert len(hashed) == 2


def test_a_file_that_changes_while_it_is_hashed(
    tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = digests.hash_file

    def meddle(path: Path) -> str:
        found = real(path)
        path.write_bytes(b"more")
        return found

    monkeypatch.setattr(digests, "hash_file", meddle)
    with pytest.raises(BadFile, match="changed while it is read"):
        ask(tmp_path / "cache", file)


def test_a_cache_that_cannot_be_written(file: Path, hashed: list[Path]) -> None:
    old(file)
    assert ask(Path("/proc/nowhere/digests"), file) == digest_of(file.read_bytes())
