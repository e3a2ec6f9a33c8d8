"""Finding, starting and finding again the server of a directory, with a pretended `covey`."""

import fcntl
import json
import os
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from covey.client import embedded
from covey.client.embedded import attach, attach_or_start, is_held, last_lines, read_record
from covey.client.http import Endpoint
from covey.core.errors import CoveyError, ServerAway
from tests.unit.client.fake import FakeServer, Told, problem, serving

VIEW = {
    "version": "1", "epoch": 1, "pid": 1, "started": 0.0, "state": "ready", "store": "",
    "bags": 0, "pilots": 0, "slots": 0,
}  # fmt: skip


@pytest.fixture
def fake() -> Iterator[FakeServer]:
    with serving() as server:
        server.answers = [Told(VIEW)]
        yield server


def write_record(directory: Path, address: str, pid: int = 1) -> None:
    record = {"address": address, "token": "t", "pid": pid, "started": 0.0, "version": "1"}
    directory.mkdir(exist_ok=True)
    (directory / "server.json").write_text(json.dumps(record))


class Holder:
    """Has directories as a living server does."""

    def __init__(self) -> None:
        self._locks: dict[Path, int] = {}

    def hold(self, directory: Path) -> None:
        if directory not in self._locks:
            self._locks[directory] = os.open(directory / "lock", os.O_RDWR | os.O_CREAT)
            fcntl.flock(self._locks[directory], fcntl.LOCK_EX)

    def die(self, directory: Path) -> None:
        os.close(self._locks.pop(directory))


@pytest.fixture
def holder() -> Iterator[Holder]:
    made = Holder()
    yield made
    for directory in list(made._locks):
        made.die(directory)


class Spawned:
    """Stands for the child that would be the server."""

    pid = 4242

    def __init__(self, status: int | None = None) -> None:
        self.status = status

    def poll(self) -> int | None:
        return self.status


@pytest.fixture
def starts(fake: FakeServer, holder: Holder, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Each start writes what a real server would."""
    made: list[Path] = []

    def spawn(directory: Path, options: Any) -> Spawned:
        made.append(directory)
        write_record(directory, fake.address, Spawned.pid)
        holder.hold(directory)
        return Spawned()

    monkeypatch.setattr(embedded, "_spawn", spawn)
    return made


def test_nothing_to_attach_to(tmp_path: Path, fake: FakeServer, holder: Holder) -> None:
    assert attach(tmp_path / "none") is None
    write_record(tmp_path, fake.address)
    assert attach(tmp_path) is None
    holder.hold(tmp_path)
    (tmp_path / "server.json").write_text("{")
    assert attach(tmp_path) is None


@pytest.mark.parametrize("told", [Told(VIEW), problem(503, "busy")])
def test_attach_to_a_server_that_is_there(
    tmp_path: Path, fake: FakeServer, holder: Holder, told: Told
) -> None:
    fake.answers = [told]
    write_record(tmp_path, fake.address)
    holder.hold(tmp_path)
    assert attach(tmp_path) is not None
    assert fake.asked[0].token == "t"


def test_a_stranger_on_the_port_is_not_our_server(
    tmp_path: Path, fake: FakeServer, holder: Holder
) -> None:
    fake.answers = [problem(401, "who?")]
    write_record(tmp_path, fake.address)
    holder.hold(tmp_path)
    assert attach(tmp_path) is None


def test_start_where_there_is_none(tmp_path: Path, starts: list[Path]) -> None:
    place = tmp_path / ".covey"
    assert attach_or_start(place).server().state == "ready"
    assert attach_or_start(place).server().state == "ready"
    assert starts == [place]
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    assert (place / ".gitignore").read_text() == "*\n"


def test_a_start_waits_for_what_the_new_server_writes(
    tmp_path: Path, fake: FakeServer, holder: Holder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A killed server has left its record, and the new one answers on the same port before it
    writes its own."""
    write_record(tmp_path, fake.address, pid=1)

    class Starting(Spawned):
        polls = 0

        def poll(self) -> int | None:
            self.polls += 1
            if self.polls == 3:
                write_record(tmp_path, fake.address, self.pid)
            return self.status

    def spawn(directory: Path, options: Any) -> Spawned:
        holder.hold(directory)
        return Starting()

    monkeypatch.setattr(embedded, "_spawn_service", spawn)
    record, new = embedded.start_background(tmp_path, [])
    assert (record.pid, new) == (Spawned.pid, True)


def test_two_at_once_start_one(tmp_path: Path, starts: list[Path]) -> None:
    threads = [threading.Thread(target=attach_or_start, args=(tmp_path,)) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(starts) == 1


def test_a_start_that_fails_shows_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "_spawn", lambda directory, options: Spawned(1))
    (tmp_path / "server.log").write_text("\n".join(f"line {n}" for n in range(20)))
    with pytest.raises(ServerAway, match=r"did not start:\n  line 15\n(.*\n)*  line 19"):
        attach_or_start(tmp_path)


def test_a_start_that_takes_forever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "_spawn", lambda directory, options: Spawned())
    monkeypatch.setattr(embedded, "START_SECONDS", 0.1)
    with pytest.raises(ServerAway, match="process 4242"):
        attach_or_start(tmp_path)


def test_a_server_that_hangs_is_not_joined_by_a_second(
    tmp_path: Path,
    fake: FakeServer,
    holder: Holder,
    starts: list[Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(embedded, "START_SECONDS", 0.1)
    fake.answers = [problem(500, "?")]
    write_record(tmp_path, fake.address)
    holder.hold(tmp_path)
    with pytest.raises(ServerAway, match="does not answer"):
        attach_or_start(tmp_path)
    assert not starts


def test_a_server_that_died_is_started_again(
    tmp_path: Path, holder: Holder, starts: list[Path]
) -> None:
    client = attach_or_start(tmp_path)
    holder.die(tmp_path)
    client.connection.endpoint = Endpoint("http://127.0.0.1:9", "t")
    assert client.server().state == "ready"
    assert len(starts) == 2


def test_a_server_that_was_stopped_stays_so(
    tmp_path: Path, holder: Holder, starts: list[Path]
) -> None:
    client = attach_or_start(tmp_path)
    holder.die(tmp_path)
    embedded.note_stop(tmp_path)
    client.connection.endpoint = Endpoint("http://127.0.0.1:9", "t")
    with pytest.raises(ServerAway, match="was stopped"):
        client.server()
    assert len(starts) == 1


def test_a_reader_never_starts_a_server(
    tmp_path: Path, fake: FakeServer, holder: Holder, starts: list[Path]
) -> None:
    write_record(tmp_path, fake.address)
    holder.hold(tmp_path)
    client = attach(tmp_path)
    assert client is not None
    holder.die(tmp_path)
    write_record(tmp_path, "http://127.0.0.1:9")
    client.connection.endpoint = Endpoint("http://127.0.0.1:9", "t")
    client.connection.patience_seconds = 0.2
    with pytest.raises(ServerAway, match="connection refused"):
        client.server()
    assert not starts


def test_a_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CoveyError, match="Choose another place"):
        attach_or_start(tmp_path / "file" / "x")


def test_who_holds(tmp_path: Path, holder: Holder) -> None:
    assert not is_held(tmp_path)
    holder.hold(tmp_path)
    assert is_held(tmp_path)
    holder.die(tmp_path)
    assert not is_held(tmp_path)


def test_a_log_that_is_not_there(tmp_path: Path) -> None:
    assert "is empty" in last_lines(tmp_path / "none")
    assert read_record(tmp_path) is None
