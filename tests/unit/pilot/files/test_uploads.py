"""Files arrive at the server, or the attempt says why not."""

import base64
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from covey.pilot.files import uploads as module
from covey.pilot.files.uploads import Sent, Uploads
from covey.pilot.protocol.messages import OutputFile
from covey.pilot.slots.orders import Returned
from tests.unit.pilot.standin import Files, digest_of, serving


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[Files]:
    monkeypatch.setattr(module, "FIRST_BACKOFF", 0.01)
    monkeypatch.setattr(module, "PIECE_BYTES", 100_000)
    with serving(Files()) as found:
        yield found


def large(tmp_path: Path, data: bytes, name: str = "big.bin") -> Returned:
    path = tmp_path / name
    path.write_bytes(data)
    return Returned("out/" + name, len(data), False, b"", str(path))


def wait(outbox: Uploads, count: int = 1) -> list[Sent]:
    found: list[Sent] = []
    until = time.monotonic() + 20
    while len(found) < count and time.monotonic() < until:
        found += outbox.sent()
        time.sleep(0.005)
    return found


SMALL = Returned("out.txt", 5, True, b"small", "")


def test_small_files_travel_along(world: Files) -> None:
    outbox = Uploads(world.courier, lambda: None)
    data = base64.b64encode(b"small").decode()
    assert outbox.put("1.1", [SMALL]) == [OutputFile("out.txt", 5, "", data, True)]
    assert world.asked == []


def test_large_ones_are_uploaded_in_pieces_and_removed_here(world: Files, tmp_path: Path) -> None:
    data = os.urandom(250_000)
    woken: list[int] = []
    outbox = Uploads(world.courier, lambda: woken.append(1))
    assert outbox.put("1.1", [SMALL, large(tmp_path, data)]) is None
    (sent,) = wait(outbox)
    assert (sent.key, sent.problem, woken) == ("1.1", "", [1])
    assert [file.path for file in sent.files] == ["out.txt", "out/big.bin"]
    assert sent.files[1] == OutputFile("out/big.bin", 250_000, digest_of(data))
    assert bytes(world.arrived[digest_of(data)]) == data
    assert [asked[2] for asked in world.asked] == ["0", "100000", "200000"]
    assert list(tmp_path.iterdir()) == []


def test_it_goes_on_where_the_server_says(world: Files, tmp_path: Path) -> None:
    data = os.urandom(250_000)
    world.arrived[digest_of(data)] = bytearray(data[:150_000])
    world.statuses = [503, 500, 401]
    outbox = Uploads(world.courier, lambda: None)
    outbox.put("1.1", [large(tmp_path, data)])
    (sent,) = wait(outbox)
    assert sent.problem == ""
    assert bytes(world.arrived[digest_of(data)]) == data


def test_of_a_large_file_nothing_is_sent_twice(
    world: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ASK_BYTES", 1000)
    data = os.urandom(250_000)
    world.arrived[digest_of(data)] = bytearray(data[:120_000])
    outbox = Uploads(world.courier, lambda: None)
    outbox.put("1.1", [large(tmp_path, data)])
    assert [sent.problem for sent in wait(outbox)] == [""]
    assert [asked[2] for asked in world.asked] == ["0", "120000", "220000"]
    assert bytes(world.arrived[digest_of(data)]) == data
    outbox.put("1.2", [large(tmp_path, data)])
    assert [sent.problem for sent in wait(outbox)] == [""]
    assert len(world.asked) == 4


@pytest.mark.parametrize("status", [403, 413])
def test_a_refusal_is_final(world: Files, tmp_path: Path, status: int) -> None:
    world.statuses = [status]
    outbox = Uploads(world.courier, lambda: None)
    outbox.put("1.1", [large(tmp_path, b"x" * 1000)])
    (sent,) = wait(outbox)
    assert sent.problem == "out/big.bin: the server refused it: told so"
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_is_away_is_waited_for(world: Files, tmp_path: Path) -> None:
    world.statuses = [502] * 6
    outbox = Uploads(world.courier, lambda: None)
    outbox.put("1.1", [large(tmp_path, b"x" * 1000, "a")])
    outbox.put("1.2", [large(tmp_path, b"y" * 1000, "b")])
    assert sorted(sent.key for sent in wait(outbox, 2)) == ["1.1", "1.2"]


def test_what_is_not_sent_when_it_must_end_is_named(world: Files, tmp_path: Path) -> None:
    world.gate.clear()
    outbox = Uploads(world.courier, lambda: None)
    outbox.put("1.1", [large(tmp_path, b"x" * 1000)])
    assert outbox.close() == ["1.1"]
    world.gate.set()
    time.sleep(0.05)
    assert outbox.sent() == []
